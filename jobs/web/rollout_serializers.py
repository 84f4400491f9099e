"""REST representations of rollouts and steps, and the bodies that are accepted."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from common.bodies import Body
from jobs.approvals import glass_reviews
from jobs.forecast import slots
from jobs.models import BreakGlass, GlassReview, Rollout, Step, StepEvent
from jobs.reports import rollout_page
from jobs.rollouts import possible_actions


class GlassReviewOut(serializers.ModelSerializer[GlassReview]):
    by = serializers.CharField(source="person.email")

    class Meta:
        model = GlassReview
        fields = ["by", "verdict", "text", "at"]


class BreakGlassOut(serializers.ModelSerializer[BreakGlass]):
    by = serializers.CharField(source="person.email")
    state = serializers.ChoiceField(["open", "overdue", "reviewed"], read_only=True)
    missing = serializers.IntegerField(read_only=True, help_text="Reviews that are still needed.")
    reviews = GlassReviewOut(source="genuine_reviews", many=True, read_only=True)

    class Meta:
        model = BreakGlass
        fields = ["by", "at", "reason", "worst_class", "until", "review_by", "state", "missing", "reviews"]


class RolloutOut(serializers.ModelSerializer[Rollout]):
    name = serializers.CharField(source="__str__", read_only=True)
    plan = serializers.UUIDField(source="plan_id")
    cluster = serializers.UUIDField(source="cluster_id")
    cluster_name = serializers.CharField(source="cluster.name")
    started_by = serializers.CharField(source="started_by.email", default=None, allow_null=True)
    change_record = serializers.CharField(
        source="plan.change_record", read_only=True, help_text="Of its plan, in the ticket system; empty: it has none."
    )
    state = serializers.CharField(
        read_only=True,
        help_text="What is the case: the status, or `held` where nothing moves until an operator decides.",
    )

    break_glass = BreakGlassOut(
        source="broken_glass", read_only=True, allow_null=True,
        help_text="Its start without approval; null: it was started with its approvals.",
    )  # fmt: skip

    class Meta:
        model = Rollout
        fields = ["id", "number", "name", "plan", "cluster", "cluster_name", "status", "state", "start_at",
                  "created_at", "started_at", "finished_at", "waiting_for", "waiting_since", "started_by",
                  "change_record", "break_glass", "version"]  # fmt: skip


class OutOfServiceOut(serializers.Serializer[Any]):
    """Nodes out of service in the whole cluster: the same for each of its rollouts."""

    total = serializers.IntegerField(help_text="Nodes unavailable now, for any cause.")
    by_setpoint = serializers.IntegerField(help_text="Of them, held by steps of rollouts.")
    allowed = serializers.IntegerField(
        help_text="How many Setpoint may hold: the cluster's budget, or less where a plan in progress allows less."
    )
    before = serializers.IntegerField(help_text="Listed as unavailable by every plan in progress: they take no place.")
    by_others = serializers.IntegerField(help_text="The rest: they take places of the budget.")
    gpus = serializers.IntegerField(help_text="On all of these nodes.")
    sentence = serializers.CharField(help_text="All of it as pages say it.")


class DoneOut(serializers.Serializer[Any]):
    nodes = serializers.IntegerField(help_text="Nodes that succeeded or were reverted.")
    of_nodes = serializers.IntegerField()
    parts = serializers.IntegerField(help_text="Components and groups of policy objects, in the same way.")
    of_parts = serializers.IntegerField()


class RemainingOut(serializers.Serializer[Any]):
    """Remaining time over the windows and freezes of the target, by the times of the rollout's own nodes."""

    seconds = serializers.IntegerField(allow_null=True, help_text="Null: unknown, and `why` has the reason.")
    ends = serializers.DateTimeField(allow_null=True)
    why = serializers.CharField(help_text="What the number rests on, or why there is none.")


class RolloutDetailOut(RolloutOut):
    remaining = serializers.SerializerMethodField(help_text="Null: the rollout has ended.")
    out_of_service = serializers.SerializerMethodField(help_text="Nodes of the cluster that are unavailable now.")
    failure = serializers.SerializerMethodField(
        help_text="Which step failed or is held, and why; of a rollout that was put back or cancelled, which failed "
        "first. Empty where none did."
    )
    done = serializers.SerializerMethodField(help_text="What of it is done, nodes and parts of the cluster apart.")
    steps = serializers.SerializerMethodField(help_text="Steps by status, those of nodes and of parts together.")
    actions = serializers.SerializerMethodField()
    reasons = serializers.SerializerMethodField(help_text="Why a verb is not possible, or what follows.")
    permissions = serializers.SerializerMethodField()

    class Meta(RolloutOut.Meta):
        fields = [*RolloutOut.Meta.fields, "failure", "done", "steps", "remaining", "out_of_service", "actions",
                  "reasons", "permissions"]  # fmt: skip

    @extend_schema_field(OutOfServiceOut)
    def get_out_of_service(self, rollout: Rollout) -> Any:
        places = slots.out_of_service(rollout.cluster)
        return places.counts() | {"sentence": places.sentence()}

    @extend_schema_field(RemainingOut(allow_null=True))
    def get_remaining(self, rollout: Rollout) -> Any:
        left = rollout_page.time_left(rollout)
        return RemainingOut(left).data if left else None

    def get_failure(self, rollout: Rollout) -> str:
        return rollout_page.failure_sentence(rollout)

    @extend_schema_field(DoneOut)
    def get_done(self, rollout: Rollout) -> Any:
        return DoneOut(rollout_page.finished_steps(rollout)).data

    @extend_schema_field(serializers.DictField(child=serializers.IntegerField()))
    def get_steps(self, rollout: Rollout) -> Any:
        return rollout_page.step_counts(rollout)

    @extend_schema_field(serializers.DictField(child=serializers.BooleanField()))
    def get_actions(self, rollout: Rollout) -> Any:
        return {a.verb: a.is_possible for a in possible_actions.all_actions(rollout)}

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_reasons(self, rollout: Rollout) -> Any:
        return {a.verb: a.reason for a in possible_actions.all_actions(rollout)}

    @extend_schema_field(serializers.DictField(child=serializers.BooleanField()))
    def get_permissions(self, rollout: Rollout) -> Any:
        return possible_actions.permissions(rollout, self.context["request"].user)


class StepOut(serializers.ModelSerializer[Step]):
    node = serializers.IntegerField(source="node_id", allow_null=True, help_text="null: it is no node's.")
    output = serializers.ListField(
        child=serializers.CharField(), help_text="The latest lines that helm said, or what was applied."
    )
    stages = serializers.DictField(child=serializers.FloatField(), help_text="Seconds in each stage of this attempt.")
    actions = serializers.SerializerMethodField(
        help_text="What its state permits. `retry-failed`, `skip` and `revert` are the rollout's actions, with `step`."
    )
    reasons = serializers.SerializerMethodField(help_text="Why a verb is not possible, or what follows.")
    permissions = serializers.SerializerMethodField()

    class Meta:
        model = Step
        fields = ["id", "kind", "node", "node_name", "node_uid", "component", "batch", "position",
                  "worst_class", "status", "direction",
                  "attempt", "entered_at", "deadline_at", "waiting_for", "error", "failed_in", "is_disrupted",
                  "output", "stages", "actions", "reasons", "permissions"]  # fmt: skip

    @extend_schema_field(serializers.DictField(child=serializers.BooleanField()))
    def get_actions(self, step: Step) -> Any:
        return {a.verb: a.is_possible for a in self.context["offers"].of(step)}

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_reasons(self, step: Step) -> Any:
        return {a.verb: a.reason for a in self.context["offers"].of(step)}

    @extend_schema_field(serializers.DictField(child=serializers.BooleanField()))
    def get_permissions(self, step: Step) -> Any:
        return self.context["offers"].permitted()


class EventOut(serializers.ModelSerializer[StepEvent]):
    node = serializers.CharField(source="step.node_name", default=None, allow_null=True)
    component = serializers.CharField(source="step.component", default=None, allow_null=True)

    class Meta:
        model = StepEvent
        fields = ["id", "at", "level", "node", "component", "text"]


class AbortIn(Body[Any]):
    in_flight = serializers.ChoiceField(choices=["finish", "revert"], default="finish")


class GlassReviewIn(Body[Any]):
    verdict = serializers.ChoiceField(choices=GlassReview.Verdict.choices)
    text = serializers.CharField(max_length=glass_reviews.TEXT_CHARACTERS, help_text="What was checked.")


class StepIn(Body[Any]):
    step = serializers.UUIDField(
        required=False, allow_null=True, default=None, help_text="One step; absent: all it fits."
    )


class SkipIn(Body[Any]):
    step = serializers.UUIDField()


class RevertIn(StepIn):
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="",
                                   help_text="Needed while a freeze is active.")  # fmt: skip
