"""REST of one team's week. The twin of the page /team/<id>/."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from clusters.models import GpuJob
from common.api import ApiView
from common.requests import UserApiRequest
from compliance.models import NodeStanding
from gpus.peers.lives import team_weeks
from gpus.peers.lives.team_weeks import TeamJob, TeamNode, TeamWeek
from gpus.showback import files
from gpus.web.cost import team_views
from gpus.web.jobs_api import GpuJobShareOut


class TeamNodeOut(serializers.Serializer[Any]):
    """A node on which pods of the team held GPUs this week, or hold some now. No figure is of another team."""

    node = serializers.IntegerField(allow_null=True, help_text="null: it is gone.")
    node_name = serializers.CharField()
    cluster_name = serializers.CharField()
    held_gpu_hours = serializers.FloatField()
    active_gpu_hours = serializers.FloatField()
    pods = serializers.IntegerField(help_text="Of the team, now.")
    state = serializers.ChoiceField(
        choices=NodeStanding.STATES, allow_blank=True, help_text="On the axis of compliance; empty: the node is gone."
    )


class TeamJobOut(serializers.Serializer[Any]):
    """A job of the team that lives, or ended this week."""

    id = serializers.IntegerField(help_text="As /gpus/jobs has it.")
    cluster_name = serializers.CharField()
    namespace = serializers.CharField()
    kind = serializers.CharField()
    name = serializers.CharField()
    queue = serializers.CharField(allow_blank=True)
    state = serializers.ChoiceField(choices=GpuJob.State.choices)
    outcome = serializers.ChoiceField(
        choices=GpuJob.Outcome.choices, allow_blank=True, help_text="Empty while it lives."
    )
    gpus = serializers.IntegerField()
    gpu_hours = serializers.FloatField(allow_null=True, help_text="That its pods held this week; null: it is shared.")
    is_shared = serializers.BooleanField(
        help_text=f"Pods of it are another team's, or may be: it has {GpuJob.MOST_CONTROLLERS} controllers or more."
    )
    scheduling = GpuJobShareOut()
    queued_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)


def _money(text: str = "") -> serializers.DecimalField:
    return serializers.DecimalField(max_digits=20, decimal_places=2, allow_null=True, help_text=text)


class TeamWeekOut(serializers.Serializer[Any]):
    """Today and the six days before, in UTC. Costs are null where nothing of them has a price."""

    team = serializers.IntegerField()
    name = serializers.CharField()
    start = serializers.DateField()
    end = serializers.DateField(help_text="The day after the last.")
    sees_all_clusters = serializers.BooleanField(help_text="Else it is what the team has in clusters that you see.")
    gpu_hours = serializers.FloatField(help_text="That its pods held this week.")
    active_gpu_hours = serializers.FloatField()
    held_idle_gpu_hours = serializers.FloatField()
    no_telemetry_gpu_hours = serializers.FloatField()
    held_idle = GpuJobShareOut(help_text="Of its GPU-hours with telemetry, those held idle.")
    scheduling = GpuJobShareOut(
        help_text="Goodput's part: of the jobs' lives, that in which all of their pods ran, by the GPUs requested."
    )
    cost = _money("Of this week: GPUs and energy.")
    month = serializers.CharField(help_text="Such as 2026-11.")
    month_cost = _money("Of this month so far.")
    budget = _money("Of a month; null: none, or it is not of all clusters.")
    budget_left = _money("Negative: overspent.")
    currency = serializers.CharField()
    unpriced_gpu_hours = serializers.FloatField(help_text="Of this month, in no cost.")
    nodes_count = serializers.IntegerField()
    nodes_since = serializers.DateField(
        allow_null=True,
        help_text="The day from which on GPU-hours of nodes are counted: nodes are recorded since, and by owner since "
        "the rules with owners were last saved. null: no node was recorded yet.",
    )
    nodes = TeamNodeOut(many=True, help_text=f"The most GPU-hours first; {team_weeks.MOST_NODES} at most.")
    jobs_count = serializers.IntegerField(help_text=f"{team_weeks.MOST_READ} at most.")
    jobs_are_cut = serializers.BooleanField(help_text="There are more jobs than were counted.")
    jobs = TeamJobOut(many=True, help_text=f"Those that live first; {team_weeks.MOST_JOBS} at most.")


class TeamWeekView(ApiView):
    request: UserApiRequest
    needs_role = False
    scope_for = {"GET": "read"}

    @extend_schema(operation_id="gpus_teams_week", responses=TeamWeekOut)
    def get(self, request: UserApiRequest, pk: int) -> Response:
        """One team's nodes, jobs and cost this week: for its members, whose role may be limited to it."""
        team_views.require_some(request.user)
        return Response(TeamWeekOut(record(team_weeks.of(request.user, pk))).data)


def record(week: TeamWeek) -> dict[str, Any]:
    line, month = week.line, week.this_month
    return {
        "team": week.team.pk,
        "name": week.team.name,
        "start": week.week.start,
        "end": week.week.end,
        "sees_all_clusters": week.is_whole,
        "gpu_hours": round(float(line.gpu_hours), 2),
        "active_gpu_hours": round(float(line.active), 2),
        "held_idle_gpu_hours": round(float(line.held_idle), 2),
        "no_telemetry_gpu_hours": round(float(line.unknown), 2),
        "held_idle": week.idle,
        "scheduling": week.scheduling,
        "cost": files.rounded(line.cost),
        "month": week.month.name,
        "month_cost": files.rounded(month.cost),
        "budget": files.rounded(month.budget),
        "budget_left": files.rounded(month.rest),
        "currency": week.currency,
        "unpriced_gpu_hours": round(float(month.unpriced), 2),
        "nodes_count": week.nodes_count,
        "nodes_since": week.nodes_since,
        "nodes": [_node(node) for node in week.nodes],
        "jobs_count": week.jobs_count,
        "jobs_are_cut": week.jobs_are_cut,
        "jobs": [_job(entry) for entry in week.jobs],
    }


def _node(node: TeamNode) -> dict[str, Any]:
    return {
        "node": node.pk,
        "node_name": node.name,
        "cluster_name": node.cluster,
        "held_gpu_hours": round(node.held_hours, 2),
        "active_gpu_hours": round(node.active_hours, 2),
        "pods": node.pods,
        "state": node.state,
    }


def _job(entry: TeamJob) -> dict[str, Any]:
    job = entry.job
    names = ("namespace", "kind", "name", "queue", "state", "outcome", "gpus", "queued_at", "started_at", "ended_at")
    values = {name: getattr(job, name) for name in names}
    figures = {
        "gpu_hours": None if entry.gpu_hours is None else round(entry.gpu_hours, 2),
        "is_shared": entry.is_shared,
        "scheduling": entry.scheduling,
    }
    return {"id": job.pk, "cluster_name": job.cluster.name, **values, **figures}
