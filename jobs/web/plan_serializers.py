"""REST representations of plans and approvals, and the bodies that are accepted."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from common.bodies import Body, Instant
from jobs.approvals import owner_reviews, plan_actions, reviews, verdicts
from jobs.approvals.verdicts import ApprovalState
from jobs.diffs import staleness
from jobs.forecast import owners
from jobs.models import Approval, Plan, PlanNode, Rollout
from jobs.reports import plan_changes


class FindingOut(serializers.Serializer[Any]):
    severity = serializers.ChoiceField(choices=["block", "warn", "note"])
    code = serializers.CharField()
    title = serializers.CharField()
    detail = serializers.CharField()
    nodes = serializers.ListField(child=serializers.CharField())
    count = serializers.IntegerField()


class NeedOut(serializers.Serializer[Any]):
    """One rule that applies to the plan, and how far it is met."""

    id = serializers.IntegerField(source="rule.pk", allow_null=True, help_text="Null: what always holds.")
    name = serializers.CharField(source="rule.name")
    about = serializers.CharField(source="rule.about", help_text="Which plans it fits, in words.")
    demand = serializers.CharField(source="rule.demand", help_text="What it asks for, in words.")
    approvers = serializers.IntegerField(source="rule.approvers")
    of_count = serializers.IntegerField(source="rule.of_count", help_text="So many of them hold `of_role`.")
    of_role = serializers.CharField(source="rule.of_role", allow_blank=True)
    of_scope = serializers.CharField(
        source="rule.of_scope", allow_blank=True, help_text="Empty: any scope that covers the plan's cluster."
    )
    missing = serializers.IntegerField()


class StandingOut(serializers.Serializer[Any]):
    rule = serializers.CharField(source="rule.name", help_text="The strictest of the rules that apply.")
    needed = serializers.IntegerField(source="rule.approvers")
    missing = serializers.IntegerField(help_text="At least so many more must approve.")
    approved_by = serializers.ListField(child=serializers.CharField())
    changes_by = serializers.ListField(child=serializers.CharField(), help_text="Accounts that requested changes.")
    rejected_by = serializers.ListField(child=serializers.CharField())
    rules = NeedOut(source="needs", many=True, help_text="All of them apply, the strictest first.")


class OwnerReviewOut(serializers.Serializer[Any]):
    """A team that owns the plan's pool, its profile, or a pool of which it touches a node: when it was made, or now."""

    name = serializers.CharField()
    is_gone = serializers.BooleanField(help_text="The team was removed since.")
    is_required = serializers.BooleanField(help_text="The approval policy asks for an approver of this team.")
    approved_by = serializers.ListField(child=serializers.CharField(), help_text="People of the team who approved it.")


class PolicyRefusalOut(serializers.Serializer[Any]):
    rule = serializers.CharField()
    why = serializers.CharField()
    is_error = serializers.BooleanField(help_text="The rule had no answer, which refuses.")
    asks_the_clock = serializers.BooleanField(help_text="It depends on the time of day, and refuses a start only.")


class PlanPolicyOut(serializers.Serializer[Any]):
    """Judgment of the plan by the approval policy, as of now; its requirements are among the rules of `approval`."""

    version = serializers.IntegerField(allow_null=True, help_text="Null: no policy was ever activated.")
    refusals = PolicyRefusalOut(many=True)
    fresh_login_rules = serializers.ListField(
        child=serializers.CharField(), help_text="Rules by which an approval takes a recent log-in."
    )


class ApprovalOut(serializers.ModelSerializer[Approval]):
    person = serializers.CharField(source="person.email")

    class Meta:
        model = Approval
        fields = ["person", "verdict", "comment", "consent", "digest", "round", "policy", "at"]


class PlansOut(serializers.ListSerializer[Any]):
    """Plans of a list: the owners of those whose start is judged are read together."""

    def to_representation(self, data: Any) -> Any:
        plans = list(data)
        with owners.kept([plan for plan in plans if plan.status == Plan.Status.APPROVED]):
            return super().to_representation(plans)


class PlanOut(serializers.ModelSerializer[Plan]):
    name = serializers.CharField(source="__str__", read_only=True)
    cluster = serializers.UUIDField(source="cluster_id")
    cluster_name = serializers.CharField(source="cluster.name")
    pool = serializers.IntegerField(source="pool_id")
    pool_name = serializers.CharField(source="pool.name")
    revision = serializers.CharField(source="revision.digest")
    revision_name = serializers.CharField(source="revision.name")
    created_by = serializers.CharField(source="created_by.email", default=None, allow_null=True)
    worst_class = serializers.CharField(
        source="shown_class",
        read_only=True,
        help_text="`unknown` while a component of it cannot be prepared; such a plan is blocked.",
    )
    actions = serializers.SerializerMethodField(
        help_text="By verb, whether the plan's state permits it. Of one plan, that it is unaltered is looked at, too."
    )
    permissions = serializers.SerializerMethodField(
        help_text="By verb, whether the caller may, with this token, in any state."
    )
    fleet_run = serializers.UUIDField(
        source="fleet_run_id",
        allow_null=True,
        read_only=True,
        help_text="Fleet run that it is in: it starts once its ring is open.",
    )
    ring = serializers.IntegerField(read_only=True, help_text="Ring of that run, counted from 1; 0 in none.")

    class Meta:
        model = Plan
        list_serializer_class = PlansOut
        fields = [
            "id", "number", "name", "cluster", "cluster_name", "pool", "pool_name", "revision", "revision_name",
            "status", "digest", "worst_class", "message", "change_record", "created_by", "created_at", "requested_at",
            "round", "superseded_by", "observed_at", "expires_at", "fleet_run", "ring", "version",
            "actions", "permissions",
        ]  # fmt: skip

    @extend_schema_field(serializers.DictField(child=serializers.BooleanField()))
    def get_actions(self, plan: Plan) -> dict[str, bool]:
        return {verb: not why for verb, why in plan_actions.reasons_of_state(plan, is_whole=False).items()}

    @extend_schema_field(serializers.DictField(child=serializers.BooleanField()))
    def get_permissions(self, plan: Plan) -> dict[str, bool]:
        return {
            verb: not why for verb, why in plan_actions.reasons_of_person(plan, self.context["request"].user).items()
        }


class ChangeOut(serializers.Serializer[Any]):
    kind = serializers.CharField()
    key = serializers.CharField()
    operator = serializers.CharField()
    before = serializers.CharField(allow_null=True)
    after = serializers.CharField(allow_null=True)
    apply_class = serializers.CharField()
    nodes = serializers.IntegerField()
    names = serializers.ListField(child=serializers.CharField())


class GroupOut(serializers.Serializer[Any]):
    apply_class = serializers.CharField()
    changes = ChangeOut(many=True)


class SinceOut(serializers.Serializer[Any]):
    values = serializers.IntegerField(
        help_text="Planned values that are neither what the plan saw nor what it wants: their steps will be held."
    )
    of = serializers.IntegerField(help_text="Values that the plan changes.")
    nodes = serializers.IntegerField(help_text="With such a value.")
    gone = serializers.IntegerField(help_text="Nodes of the plan that are not in the cluster any more.")
    is_partial = serializers.BooleanField(help_text="More changed than was looked at: the counts are at least this.")


class PlanDetailOut(PlanOut):
    """One plan, whole: what an approver must see."""

    why_not = serializers.SerializerMethodField(
        help_text="By verb that the caller cannot use now: why, and what to do instead."
    )
    changed_since = serializers.SerializerMethodField(help_text="Of an open plan: what changed since it was made.")
    strategy = serializers.DictField(read_only=True)
    selector = serializers.DictField(read_only=True)
    summary = serializers.DictField(read_only=True)
    findings = FindingOut(many=True, read_only=True)
    differences = serializers.SerializerMethodField()
    approval = serializers.SerializerMethodField()
    owners = serializers.SerializerMethodField(help_text="Teams that own what it touches.")
    policy = serializers.SerializerMethodField(help_text="What the approval policy says of it now.")
    verdicts = ApprovalOut(source="approvals", many=True, read_only=True)
    rollout = serializers.SerializerMethodField()
    _answered: tuple[Plan, dict[str, plan_actions.ActionCheck]] | None = None
    _judged: tuple[Plan, ApprovalState] | None = None

    class Meta(PlanOut.Meta):
        fields = [
            *PlanOut.Meta.fields,
            "why_not", "strategy", "selector", "summary", "findings", "changed_since", "differences", "approval",
            "owners", "policy", "verdicts", "rollout",
        ]  # fmt: skip

    def to_representation(self, plan: Plan) -> Any:
        with owners.kept([plan]):
            return super().to_representation(plan)

    @extend_schema_field(serializers.DictField(child=serializers.BooleanField()))
    def get_actions(self, plan: Plan) -> dict[str, bool]:
        return {verb: not answer.of_state for verb, answer in self._answers(plan).items()}

    @extend_schema_field(serializers.DictField(child=serializers.BooleanField()))
    def get_permissions(self, plan: Plan) -> dict[str, bool]:
        return {verb: not answer.of_person for verb, answer in self._answers(plan).items()}

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_why_not(self, plan: Plan) -> dict[str, str]:
        return {verb: answer.reason for verb, answer in self._answers(plan).items() if answer.reason}

    def _answers(self, plan: Plan) -> dict[str, plan_actions.ActionCheck]:
        """Read once for three fields: it takes reading the whole plan."""
        if self._answered is None or self._answered[0] is not plan:
            user = self.context["request"].user
            self._answered = plan, plan_actions.check_actions(plan, user, policy=self._standing(plan).policy)
        return self._answered[1]

    @extend_schema_field(GroupOut(many=True))
    def get_differences(self, plan: Plan) -> Any:
        return GroupOut(plan_changes.grouped_changes(plan), many=True).data

    @extend_schema_field(StandingOut())
    def get_approval(self, plan: Plan) -> Any:
        return StandingOut(self._standing(plan)).data

    @extend_schema_field(OwnerReviewOut(many=True))
    def get_owners(self, plan: Plan) -> Any:
        return OwnerReviewOut(owner_reviews.reviews_of(plan, self._standing(plan)), many=True).data

    @extend_schema_field(PlanPolicyOut())
    def get_policy(self, plan: Plan) -> Any:
        return PlanPolicyOut(self._standing(plan).policy).data

    def _standing(self, plan: Plan) -> ApprovalState:
        """Read once for three fields."""
        if self._judged is None or self._judged[0] is not plan:
            self._judged = plan, verdicts.approval_state(plan)
        return self._judged[1]

    @extend_schema_field(SinceOut)
    def get_changed_since(self, plan: Plan) -> Any:
        return SinceOut(staleness.changes_since_planned(plan)).data

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_rollout(self, plan: Plan) -> Any:
        return Rollout.objects.filter(plan=plan).values_list("pk", flat=True).first()


class PlanNodeOut(serializers.ModelSerializer[PlanNode]):
    node = serializers.IntegerField(source="node_id")
    change_set = serializers.CharField(source="change_set_id", allow_null=True)

    class Meta:
        model = PlanNode
        fields = ["node", "name", "uid", "batch", "position", "worst_class", "gpus", "gpu_pods", "change_set",
                  "domain", "is_unavailable", "left_out"]  # fmt: skip


class PlanIn(Body[Any]):
    pool = serializers.IntegerField(help_text="A pool's id.")
    revision = serializers.CharField(
        max_length=71, help_text="A revision's id, or its digest, `sha256:…`, where only one profile has it."
    )
    strategy = serializers.DictField(required=False, help_text="Only what differs from the defaults.")
    message = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")


class VerdictIn(Body[Any]):
    digest = serializers.CharField(max_length=71, help_text="What you read: the plan must still have it.")
    comment = serializers.CharField(max_length=reviews.COMMENT_CHARACTERS, required=False, allow_blank=True, default="")


class ApproveIn(VerdictIn):
    consent = serializers.CharField(
        max_length=200,
        required=False,
        allow_blank=True,
        default="",
        help_text="The plan's `summary.consent`, typed again, where that is not empty: the plan destroys objects.",
    )


class CommentIn(Body[Any]):
    comment = serializers.CharField(max_length=reviews.COMMENT_CHARACTERS, required=False, allow_blank=True, default="")


class StartIn(Body[Any]):
    at = Instant(required=False, allow_null=True, default=None, help_text="Absent: now.")
