"""REST representations of fleet runs, and the bodies that are accepted."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from common.bodies import Body
from jobs.models import FleetRun
from jobs.models.fleet_runs import REASON_CHARACTERS
from jobs.reports import fleet_runs as reports
from jobs.rollouts import fleet_runs


class FleetMemberOut(serializers.Serializer[Any]):
    plan = serializers.UUIDField(source="plan.pk")
    plan_name = serializers.CharField(source="plan")
    cluster = serializers.UUIDField(source="plan.cluster_id")
    cluster_name = serializers.CharField(source="plan.cluster.name")
    pool_name = serializers.CharField(source="plan.pool.name")
    plan_status = serializers.CharField(source="plan.status")
    rollout = serializers.UUIDField(source="rollout.pk", default=None, allow_null=True)
    rollout_status = serializers.CharField(source="rollout.status", default="", allow_blank=True)
    state = serializers.CharField(help_text="not started, in progress, done, failed, came to nothing or left out.")
    left_out = serializers.CharField(source="plan.ring_left", allow_blank=True, help_text="Why it is not waited for.")


class FleetRingOut(serializers.Serializer[Any]):
    number = serializers.IntegerField(source="ring.number")
    name = serializers.CharField(source="ring.name")
    soak_minutes = serializers.IntegerField(source="ring.soak_minutes")
    state = serializers.ChoiceField(choices=["finished", "soaking", "open", "failed", "waiting"])
    reason = serializers.CharField(allow_blank=True, help_text="Why it has not finished, or is not open.")
    finished_at = serializers.DateTimeField(source="ring.finished_at", allow_null=True)
    soaks_until = serializers.DateTimeField(allow_null=True)
    plans = FleetMemberOut(source="members", many=True)
    hidden_plans = serializers.IntegerField(source="hidden", help_text="Of clusters that the caller may not see.")


class FleetRunOut(serializers.ModelSerializer[FleetRun]):
    created_by = serializers.CharField(source="created_by.email", default=None, allow_null=True)
    started_by = serializers.CharField(source="started_by.email", default=None, allow_null=True)
    waiting_for = serializers.SerializerMethodField()

    class Meta:
        model = FleetRun
        fields = ["id", "number", "name", "status", "created_by", "created_at", "started_by", "started_at",
                  "finished_at", "held_reason", "waiting_for", "version"]  # fmt: skip

    @extend_schema_field(serializers.CharField(help_text="Of the last look at it.", allow_blank=True))
    def get_waiting_for(self, run: FleetRun) -> str:
        return reports.waiting_for(run, self.context["request"].user)


class FleetRunDetailOut(FleetRunOut):
    rings = serializers.SerializerMethodField()
    actions = serializers.SerializerMethodField(help_text="By verb, whether the run's state permits it.")
    permissions = serializers.SerializerMethodField(help_text="By verb, whether the caller may, in any state.")

    class Meta(FleetRunOut.Meta):
        fields = [*FleetRunOut.Meta.fields, "rings", "actions", "permissions"]

    @extend_schema_field(FleetRingOut(many=True))
    def get_rings(self, run: FleetRun) -> Any:
        return FleetRingOut(reports.ring_reports(run, self.context["request"].user), many=True).data

    @extend_schema_field(serializers.DictField(child=serializers.BooleanField()))
    def get_actions(self, run: FleetRun) -> dict[str, bool]:
        return {verb: not why for verb, why in fleet_runs.reasons_of_state(run).items()}

    @extend_schema_field(serializers.DictField(child=serializers.BooleanField()))
    def get_permissions(self, run: FleetRun) -> dict[str, bool]:
        user = self.context["request"].user
        return {verb: not why for verb, why in fleet_runs.reasons_of_person(run, user).items()}


class FleetRingIn(Body[Any]):
    name = serializers.CharField(max_length=fleet_runs.NAME_CHARACTERS)
    soak_minutes = serializers.IntegerField(
        min_value=0, max_value=fleet_runs.LONGEST_SOAK_MINUTES, required=False, default=0,
        help_text="How long nothing of the next ring starts after this one has finished; 0 in the last.",
    )  # fmt: skip
    plans = serializers.ListField(
        child=serializers.UUIDField(), min_length=1, max_length=fleet_runs.MOST_PLANS, help_text="Draft plans, by id."
    )


class FleetRunIn(Body[Any]):
    """Fleet run: draft plans in rings, the first to be carried out first. A pool has one plan in it."""

    name = serializers.CharField(max_length=fleet_runs.NAME_CHARACTERS)
    rings = serializers.ListField(child=FleetRingIn(), min_length=1, max_length=fleet_runs.MOST_RINGS)


class FleetReasonIn(Body[Any]):
    reason = serializers.CharField(max_length=300)


class FleetRequestIn(Body[Any]):
    message = serializers.CharField(max_length=REASON_CHARACTERS, required=False, allow_blank=True, default="")


class FleetLeaveOutIn(FleetReasonIn):
    plan = serializers.UUIDField()


class FleetAddIn(Body[Any]):
    plan = serializers.UUIDField()
    ring = serializers.IntegerField(min_value=1, max_value=fleet_runs.MOST_RINGS)
