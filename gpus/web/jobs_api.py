"""REST: jobs that hold or held GPUs. The twin of the pages /gpus/jobs/."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers
from rest_framework.response import Response

from clusters.models import GpuJob
from common.api import ApiViewSet
from common.requests import UserApiRequest
from compliance.models import NodeStanding
from gpus.models import WorkloadWait
from gpus.peers.lives import reports, selectors
from gpus.peers.lives.figures import Share
from gpus.peers.lives.ranks import Spread
from gpus.peers.lives.reports import JobReport


class GpuJobOut(serializers.ModelSerializer[GpuJob]):
    cluster_name = serializers.CharField(source="cluster.name")
    outcome = serializers.ChoiceField(
        choices=GpuJob.Outcome.choices, allow_blank=True, help_text="Empty while it lives."
    )
    gpu_hours = serializers.SerializerMethodField(help_text="That its pods held, of whole GPUs.")
    active_percent = serializers.SerializerMethodField(
        help_text="Of the GPU-hours that telemetry told of, those in which the GPU was active; null: no telemetry."
    )

    class Meta:
        model = GpuJob
        fields = [
            "id", "cluster", "cluster_name", "namespace", "kind", "name", "queue", "state", "outcome", "gpus", "size",
            "queued_at", "started_at", "all_running_at", "ended_at", "starts", "restarts", "pods_seen", "gpu_hours",
            "active_percent",
        ]  # fmt: skip
        read_only_fields = fields

    def get_gpu_hours(self, job: selectors.SummedJob) -> float:
        return round(selectors.gpu_hours(job), 2)

    @extend_schema_field(serializers.FloatField(allow_null=True))
    def get_active_percent(self, job: selectors.SummedJob) -> Any:
        percent = selectors.active_percent(job)
        return None if percent is None else round(percent, 1)


class GpuJobShareOut(serializers.Serializer[Share]):
    percent = serializers.FloatField(allow_null=True)
    lack = serializers.CharField(allow_blank=True, help_text="Why there is no figure.")


class GpuJobGoodputOut(serializers.Serializer[Any]):
    """Scheduling × runtime. The program's part is with the steps of a training job: `/gpus/jobs/{id}/training`."""

    scheduling = GpuJobShareOut(help_text="Of the time since it was queued, that in which all of its pods ran at once.")
    runtime = GpuJobShareOut(help_text="Of its GPU-hours with telemetry, those in which the GPU was active.")
    whole = GpuJobShareOut()


class GpuJobSpreadOut(serializers.Serializer[Spread]):
    """Shares of 0-1."""

    mean = serializers.FloatField(help_text="Over its GPUs and time.")
    least = serializers.FloatField(help_text="Of any pod.")
    middle = serializers.FloatField(help_text="The pods' median.")
    most = serializers.FloatField()
    pods = serializers.IntegerField(help_text="That have it.")


class GpuJobPodOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    node_name = serializers.CharField(allow_blank=True)
    gpus = serializers.IntegerField()
    role = serializers.CharField(allow_blank=True, help_text="Its part in the job; empty: not known.")
    created_at = serializers.DateTimeField()
    running_at = serializers.DateTimeField(allow_null=True, help_text="Null: it has never run.")
    ended_at = serializers.DateTimeField(allow_null=True)
    outcome = serializers.ChoiceField(choices=GpuJob.Outcome.choices, allow_blank=True)
    restarts = serializers.IntegerField(help_text="Of its containers.")
    busy = serializers.FloatField(allow_null=True, help_text="Mean share of 0-1; null: no telemetry of it.")
    ofu = serializers.FloatField(allow_null=True)


class GpuJobNodeOut(serializers.Serializer[Any]):
    node = serializers.IntegerField(allow_null=True, help_text="Its id; null: it is gone.")
    node_name = serializers.CharField()
    pods = serializers.IntegerField()
    state = serializers.ChoiceField(choices=NodeStanding.STATES, allow_blank=True, help_text="Of its compliance now.")
    drifts = serializers.IntegerField(help_text="Settings that drifted while pods of the job were there.")
    xids = serializers.ListField(child=serializers.IntegerField(), help_text="Of GPUs that its pods hold now.")
    is_slower = serializers.BooleanField(allow_null=True, help_text="Than its peers; null: not compared.")
    not_compared = serializers.CharField(
        allow_blank=True, help_text="Why; empty where it is, or was not looked at yet."
    )


class GpuJobRolloutOut(serializers.Serializer[Any]):
    rollout = serializers.UUIDField()
    number = serializers.IntegerField()
    status = serializers.CharField()
    nodes = serializers.IntegerField(help_text="Of the job's.")
    started_at = serializers.DateTimeField(allow_null=True)


class GpuJobGapOut(serializers.Serializer[Any]):
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()


def _money(text: str) -> serializers.DecimalField:
    return serializers.DecimalField(max_digits=20, decimal_places=2, allow_null=True, help_text=text)


class GpuJobWaitOut(serializers.Serializer[Any]):
    id = serializers.IntegerField(help_text="As /gpus/waits has it.")
    name = serializers.CharField(help_text="Of the workload.")
    number = serializers.IntegerField()
    queue = serializers.CharField(allow_blank=True)
    queued_at = serializers.DateTimeField()
    admitted_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    outcome = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    waited_seconds = serializers.IntegerField(allow_null=True, help_text="null: not known.")


class GpuJobDetailOut(GpuJobOut):
    """One job over its life. Figures that data lack for are null."""

    team = serializers.CharField(allow_blank=True, help_text="By the rules of showback; empty: unassigned.")
    models = serializers.ListField(child=serializers.CharField(allow_blank=True))
    queue_wait_seconds = serializers.IntegerField(help_text="Until its first pod ran, its end, or now.")
    waits = GpuJobWaitOut(many=True, help_text="Of its workloads in their queue, before pods were made; 100 at most.")
    effective_gpu_hours = serializers.FloatField()
    active_gpu_hours = serializers.FloatField()
    held_idle_gpu_hours = serializers.FloatField()
    no_telemetry_gpu_hours = serializers.FloatField()
    kwh = serializers.FloatField(help_text="Of its GPUs, without what the site adds.")
    gpu_cost = _money("GPU-hours times the price of their model, cluster and day; null: none has a price.")
    energy_cost = _money("kWh times PUE times the price of a kWh.")
    cost = _money("GPUs and energy.")
    currency = serializers.CharField()
    unpriced_gpu_hours = serializers.FloatField(help_text="In no cost.")
    goodput = GpuJobGoodputOut()
    activity_since = serializers.DateTimeField(
        help_text="`busy` and `ofu` are of the last two days of its life at most."
    )
    busy = GpuJobSpreadOut(allow_null=True)
    ofu = GpuJobSpreadOut(allow_null=True)
    gaps = GpuJobGapOut(many=True, help_text="Running time of which Setpoint recorded nothing; the first 20.")
    gap_seconds = serializers.FloatField()
    pods = GpuJobPodOut(many=True, help_text="Those that live, and the latest that ended while they are 2,000.")
    nodes = GpuJobNodeOut(many=True, help_text="By name; 500 at most.")
    rollouts = GpuJobRolloutOut(
        many=True, help_text="That touched its nodes in its time, the latest first; 50 at most."
    )

    class Meta(GpuJobOut.Meta):
        fields = [
            *GpuJobOut.Meta.fields, "team", "models", "queue_wait_seconds", "waits", "effective_gpu_hours",
            "active_gpu_hours",
            "held_idle_gpu_hours", "no_telemetry_gpu_hours", "kwh", "gpu_cost", "energy_cost", "cost", "currency",
            "unpriced_gpu_hours", "goodput", "activity_since", "busy", "ofu", "gaps", "gap_seconds", "pods", "nodes",
            "rollouts",
        ]  # fmt: skip
        read_only_fields = fields


class GpuJobViewSet(mixins.ListModelMixin, ApiViewSet):
    """Jobs whose pods hold or held GPUs: each stays after its pods are gone."""

    request: UserApiRequest
    queryset = GpuJob.objects.none()
    serializer_class = GpuJobOut
    filterset_class = selectors.JobFilter
    lookup_value_converter = "int"
    ordering_fields = ("queued_at", "gpus", "gpu_seconds", "active_share")
    scope_for = {"GET": "read"}

    def get_queryset(self) -> QuerySet[Any]:
        rows = selectors.jobs(self.request.user)
        return rows.defer("pods", "roles") if self.action == "list" else rows

    @extend_schema(responses=GpuJobDetailOut)
    def retrieve(self, request: UserApiRequest, *args: Any, **kwargs: Any) -> Response:  # type: ignore[override]
        """One job with its pods, nodes, figures and what happened in its time."""
        job = self.get_object()
        return Response(GpuJobOut(job).data | record(reports.of(request.user, job)))


def record(report: JobReport) -> dict[str, Any]:
    """Return what GpuJobDetailOut adds to GpuJobOut."""
    line, around = report.line, report.around
    fields = GpuJobDetailOut().fields
    values = {
        "team": report.team,
        "models": report.models,
        "queue_wait_seconds": int(report.queue_wait.total_seconds()),
        "waits": [_wait(wait, length) for wait, length in report.wait_lines],
        "effective_gpu_hours": round(line.effective, 2),
        "active_gpu_hours": round(line.active, 2),
        "held_idle_gpu_hours": round(line.held_idle, 2),
        "no_telemetry_gpu_hours": round(line.unknown, 2),
        "kwh": round(line.kwh, 2),
        "gpu_cost": _rounded(line.gpu_cost),
        "energy_cost": _rounded(line.energy_cost),
        "cost": _rounded(line.cost),
        "currency": report.currency,
        "unpriced_gpu_hours": round(line.unpriced, 2),
        "goodput": report.goodput,
        "activity_since": report.activity.start,
        "busy": report.activity.busy,
        "ofu": report.activity.ofu,
        "gaps": around.gaps,
        "gap_seconds": around.gap_seconds,
        "pods": [_pod(rank) for rank in report.activity.ranks],
        "nodes": [_node(place) for place in around.nodes],
        "rollouts": [
            {
                "rollout": touch.rollout.pk,
                "number": touch.rollout.number,
                "status": touch.rollout.status,
                "nodes": touch.nodes,
                "started_at": touch.rollout.started_at,
            }
            for touch in around.rollouts
        ],
    }
    return {name: None if value is None else fields[name].to_representation(value) for name, value in values.items()}


def _rounded(amount: Any) -> Any:
    return None if amount is None else round(amount, 2)


def _pod(rank: Any) -> dict[str, Any]:
    pod = rank.pod
    return {
        "name": pod.name,
        "node_name": pod.node,
        "gpus": pod.gpus,
        "role": pod.role,
        "created_at": _instant(pod.created),
        "running_at": _instant(pod.running),
        "ended_at": _instant(pod.ended),
        "outcome": pod.outcome,
        "restarts": pod.restarts,
        "busy": rank.busy,
        "ofu": rank.ofu,
    }


def _wait(wait: WorkloadWait, length: timedelta | None) -> dict[str, Any]:
    names = ("name", "number", "queue", "queued_at", "admitted_at", "ended_at", "outcome", "reason")
    values = {name: getattr(wait, name) for name in names}
    return {"id": wait.pk, **values, "waited_seconds": None if length is None else round(length.total_seconds())}


def _node(place: Any) -> dict[str, Any]:
    pace = place.pace
    return {
        "node": place.node.pk if place.node else None,
        "node_name": place.name,
        "pods": place.pods,
        "state": place.state,
        "drifts": place.drifts,
        "xids": [xid.code for xid in place.xids],
        "is_slower": None if pace is None or pace.verdict == pace.Verdict.FEW else pace.verdict == pace.Verdict.SLOWER,
        "not_compared": place.not_compared,
    }


def _instant(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
