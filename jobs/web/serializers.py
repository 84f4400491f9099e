"""REST representations of plans, approvals, rollouts, steps and freezes, and the bodies that are accepted."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from clusters.models import Cluster
from common.bodies import Body, Instant
from components.catalog.effects import CLASSES
from jobs.approvals import plan_actions, reviews, rulebook, rules, verdicts
from jobs.diffs import cluster_scope, staleness
from jobs.diffs.changes import Disruption
from jobs.forecast import slots
from jobs.models import Approval, ApprovalRule, Freeze, Plan, PlanComponent, PlanNode, Rollout, Step, StepEvent
from jobs.reports import component_rights, plan_changes, plan_components, selectors
from jobs.rollouts import rollout_actions


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
    changes_by = serializers.ListField(child=serializers.CharField(), help_text="Who requested changes.")
    rejected_by = serializers.ListField(child=serializers.CharField())
    rules = NeedOut(source="needs", many=True, help_text="All of them apply, the strictest first.")


class ApprovalOut(serializers.ModelSerializer[Approval]):
    person = serializers.CharField(source="person.email")

    class Meta:
        model = Approval
        fields = ["person", "verdict", "comment", "consent", "digest", "round", "at"]


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
        help_text="By verb, whether the caller may, with this token, whatever the state."
    )

    class Meta:
        model = Plan
        fields = [
            "id", "number", "name", "cluster", "cluster_name", "pool", "pool_name", "revision", "revision_name",
            "status", "digest", "worst_class", "message", "created_by", "created_at", "requested_at", "round",
            "superseded_by", "observed_at", "expires_at", "version", "actions", "permissions",
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
    verdicts = ApprovalOut(source="approvals", many=True, read_only=True)
    rollout = serializers.SerializerMethodField()
    _answered: tuple[Plan, dict[str, plan_actions.ActionCheck]] | None = None

    class Meta(PlanOut.Meta):
        fields = [
            *PlanOut.Meta.fields,
            "why_not", "strategy", "selector", "summary", "findings", "changed_since", "differences", "approval",
            "verdicts", "rollout",
        ]  # fmt: skip

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
            self._answered = plan, plan_actions.check_actions(plan, self.context["request"].user)
        return self._answered[1]

    @extend_schema_field(GroupOut(many=True))
    def get_differences(self, plan: Plan) -> Any:
        return GroupOut(plan_changes.grouped_changes(plan), many=True).data

    @extend_schema_field(StandingOut())
    def get_approval(self, plan: Plan) -> Any:
        return StandingOut(verdicts.approval_state(plan)).data

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
                  "is_unavailable", "left_out"]  # fmt: skip


class PartNoteOut(serializers.Serializer[Any]):
    severity = serializers.CharField(help_text="block, warn or info")
    code = serializers.CharField()
    title = serializers.CharField()
    detail = serializers.CharField()


class TakeOut(serializers.Serializer[Any]):
    """A field that is taken from its holder."""

    field = serializers.CharField()
    manager = serializers.CharField(help_text="The field manager that holds it.")
    since = serializers.CharField(allow_blank=True, help_text="When that manager last wrote anything of the object.")
    there = serializers.JSONField(help_text="Its value when the plan was made.")
    wanted = serializers.JSONField()


class PartObjectOut(serializers.Serializer[Any]):
    change = serializers.CharField(help_text="created, changed, deleted or unvalidated")
    api_version = serializers.CharField()
    kind = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    diff = serializers.CharField(help_text="Unified, secrets masked.")
    takes = TakeOut(
        many=True,
        default=(),
        help_text="Fields of a policy object that others changed, and that the plan takes back; `summary.takes` counts "
        "them.",
    )


class HitOut(serializers.Serializer[Any]):
    """One thing that a component or a group of policy objects does to running work."""

    what = serializers.CharField(help_text="`DaemonSet kube-system/cilium`")
    change = serializers.ChoiceField(["created", "changed", "deleted"])
    worst = serializers.ChoiceField(list(CLASSES))
    why = serializers.CharField()
    paths = serializers.ListField(child=serializers.CharField(), help_text="Fields that decided it, the first few.")
    restarts = serializers.ListField(child=serializers.CharField(), help_text="DaemonSets whose pods restart.")
    nodes = serializers.ListField(child=serializers.CharField(), help_text="By name; only from `network` up.")
    count = serializers.IntegerField(help_text="Of nodes, whatever the class.")
    at_once = serializers.IntegerField(help_text="Nodes at once at most; 0: not known, or none go one by one.")
    controller = serializers.CharField(
        allow_blank=True, help_text="Label by which an operator's own upgrade controller says which node it works on."
    )
    interrupts = serializers.BooleanField(help_text="Jobs that hold GPUs on these nodes end.")


class BlastOut(serializers.Serializer[Any]):
    worst = serializers.ChoiceField(list(CLASSES))
    why = serializers.CharField()
    hits = HitOut(many=True, help_text="The most disruptive first.")
    deleted = serializers.ListField(child=serializers.CharField(), help_text="Kind and name of each object that goes.")
    places = serializers.IntegerField(
        help_text="Nodes that its operator may take out at once: as many places of the budget are kept."
    )
    nodes_at_once = serializers.IntegerField()
    gpus_at_once = serializers.IntegerField()
    jobs = serializers.ListField(child=serializers.CharField(), help_text="Interrupted: `namespace/Kind name`.")
    gpu_pods = serializers.IntegerField()
    gpus = serializers.IntegerField(help_text="On all nodes that are disturbed.")
    undo = serializers.CharField(allow_blank=True, help_text="The class of putting it back, where that is another.")
    undo_why = serializers.CharField(allow_blank=True)


class RightOut(serializers.Serializer[Any]):
    """One rule of Kubernetes' roles that a component needs."""

    namespace = serializers.CharField(allow_blank=True, help_text="Empty: everywhere.")
    api_groups = serializers.ListField(child=serializers.CharField(allow_blank=True))
    resources = serializers.ListField(child=serializers.CharField())
    resource_names = serializers.ListField(child=serializers.CharField())
    non_resource_urls = serializers.ListField(child=serializers.CharField())
    verbs = serializers.ListField(child=serializers.CharField())
    needed_for = serializers.CharField()
    danger = serializers.CharField(allow_blank=True, help_text="What more its holder can do; empty: nothing more.")
    lacks = serializers.ListField(
        child=serializers.CharField(), help_text="What of it the account lacked when the plan was made."
    )


class RightsOut(serializers.Serializer[Any]):
    """The account that helm runs as for a component, and the rights that it needs there."""

    account = serializers.CharField(allow_blank=True, help_text="Empty: the cluster's own credential.")
    administrator_until = serializers.DateTimeField(
        allow_null=True, help_text="Not null: helm is a cluster administrator for this component, until then."
    )
    is_known = serializers.BooleanField(help_text="Whether the API server said what the account may do.")
    lacking = serializers.IntegerField(help_text="How many of the rules it has not, or not wholly.")
    rules = RightOut(many=True)
    role = serializers.CharField(help_text="As YAML: the role for the cluster's administrator to apply.")
    apply = serializers.CharField(help_text="The command, once `role` is in that file.")


class PlanComponentOut(serializers.ModelSerializer[PlanComponent]):
    requires = serializers.ListField(child=serializers.CharField(), help_text="Must have succeeded before it starts.")
    after = serializers.ListField(
        child=serializers.CharField(), help_text="Must have ended before it starts; `nodes`: the node settings."
    )
    notes = serializers.SerializerMethodField()
    objects = serializers.SerializerMethodField()
    blast = serializers.SerializerMethodField()
    rights = serializers.SerializerMethodField(help_text="Null: nothing is done, or these are policy objects.")

    class Meta:
        model = PlanComponent
        fields = ["id", "kind", "component", "namespace", "release", "version", "action", "digest", "position",
                  "requires", "after", "left_out", "worst_class", "blast", "rights", "notes", "objects"]  # fmt: skip

    @extend_schema_field(RightsOut(allow_null=True))
    def get_rights(self, row: PlanComponent) -> Any:
        found = component_rights.authority_of(row)
        return component_rights.as_json(row, found) if found else None

    @extend_schema_field(BlastOut(allow_null=True))
    def get_blast(self, row: PlanComponent) -> Any:
        blast = cluster_scope.read_prepared(row).blast if row.prepared and not row.left_out else None
        return BlastOut(blast).data if blast else None

    @extend_schema_field(PartNoteOut(many=True))
    def get_notes(self, row: PlanComponent) -> Any:
        return PartNoteOut(cluster_scope.read_prepared(row).notes if row.prepared else (), many=True).data

    @extend_schema_field(PartObjectOut(many=True))
    def get_objects(self, row: PlanComponent) -> Any:
        return PartObjectOut(
            plan_components.objects_of(cluster_scope.read_prepared(row)) if row.prepared else (), many=True
        ).data


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


class RuleOut(serializers.ModelSerializer[ApprovalRule]):
    cluster = serializers.UUIDField(source="cluster_id", allow_null=True)
    cluster_name = serializers.CharField(source="cluster.name", default=None, allow_null=True)
    about = serializers.SerializerMethodField(help_text="Which plans it fits, in words.")
    demand = serializers.SerializerMethodField(help_text="What it asks for, in words.")
    changed_by = serializers.CharField(source="changed_by.email", default=None, allow_null=True)

    class Meta:
        model = ApprovalRule
        fields = ["id", *rulebook.FIELDS, "cluster_name", "about", "demand", "version", "changed_at", "changed_by"]

    @extend_schema_field(serializers.CharField())
    def get_about(self, row: ApprovalRule) -> str:
        return rules.describe_conditions(row)

    @extend_schema_field(serializers.CharField())
    def get_demand(self, row: ApprovalRule) -> str:
        return rules.describe_demand(rules.RuleRequirement.of(row))


class RuleIn(Body[Any]):
    """Approval rule: the plans it fits (an absent condition fits all), the number of approvers, and their roles."""

    name = serializers.CharField(max_length=80)
    environment = serializers.ChoiceField(choices=Cluster.Environment.choices, required=False, allow_blank=True)
    cluster = serializers.UUIDField(required=False, allow_null=True)
    worst_class = serializers.ChoiceField(
        choices=[str(c) for c in Disruption], required=False, allow_blank=True, help_text="This disruptive, or more."
    )
    gpu_percent = serializers.IntegerField(
        min_value=1,
        max_value=100,
        required=False,
        allow_null=True,
        help_text="At least this share of the cluster's GPUs.",
    )
    node_percent = serializers.IntegerField(
        min_value=1, max_value=100, required=False, allow_null=True, help_text="At least this share of its nodes."
    )
    gpus = serializers.IntegerField(
        min_value=1, max_value=rulebook.MOST, required=False, allow_null=True,
        help_text="At least so many GPUs out of service.",
    )  # fmt: skip
    gpu_jobs = serializers.IntegerField(
        min_value=1, max_value=rulebook.MOST, required=False, allow_null=True,
        help_text="At least so many GPU jobs interrupted.",
    )  # fmt: skip
    namespace = serializers.CharField(
        max_length=63, required=False, allow_blank=True, help_text="GPU jobs of this namespace are interrupted."
    )
    component = serializers.CharField(
        max_length=63, required=False, allow_blank=True, help_text="This component of the catalog is changed."
    )
    weakens_security = serializers.BooleanField(
        required=False, help_text="True: only plans with settings that weaken a node's security."
    )
    approvers = serializers.IntegerField(min_value=1, max_value=rulebook.MOST_APPROVERS)
    of_count = serializers.IntegerField(
        min_value=0, max_value=rulebook.MOST_APPROVERS, required=False, help_text="So many of them hold `of_role`."
    )
    is_enabled = serializers.BooleanField(required=False, help_text="False: it fits no plan until it is enabled again.")
    of_role = serializers.ChoiceField(choices=[str(r) for r in rulebook.OF_ROLES], required=False, allow_blank=True)
    of_scope = serializers.CharField(
        max_length=60, required=False, allow_blank=True,
        help_text="`*`, `env:<environment>` or `cluster:<uuid>`; empty: any that covers the plan's cluster.",
    )  # fmt: skip


class RolloutOut(serializers.ModelSerializer[Rollout]):
    name = serializers.CharField(source="__str__", read_only=True)
    plan = serializers.UUIDField(source="plan_id")
    cluster = serializers.UUIDField(source="cluster_id")
    cluster_name = serializers.CharField(source="cluster.name")
    started_by = serializers.CharField(source="started_by.email", default=None, allow_null=True)
    state = serializers.CharField(
        read_only=True,
        help_text="What is the case: the status, or `held` where nothing moves until an operator decides.",
    )

    class Meta:
        model = Rollout
        fields = ["id", "number", "name", "plan", "cluster", "cluster_name", "status", "state", "start_at",
                  "created_at", "started_at", "finished_at", "waiting_for", "waiting_since", "started_by",
                  "version"]  # fmt: skip


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


class RolloutDetailOut(RolloutOut):
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
        fields = [*RolloutOut.Meta.fields, "failure", "done", "steps", "out_of_service", "actions", "reasons",
                  "permissions"]  # fmt: skip

    @extend_schema_field(OutOfServiceOut)
    def get_out_of_service(self, rollout: Rollout) -> Any:
        places = slots.out_of_service(rollout.cluster)
        return places.counts() | {"sentence": places.sentence()}

    def get_failure(self, rollout: Rollout) -> str:
        return selectors.failure_sentence(rollout)

    @extend_schema_field(DoneOut)
    def get_done(self, rollout: Rollout) -> Any:
        return DoneOut(selectors.finished_steps(rollout)).data

    @extend_schema_field(serializers.DictField(child=serializers.IntegerField()))
    def get_steps(self, rollout: Rollout) -> Any:
        return selectors.step_counts(rollout)

    @extend_schema_field(serializers.DictField(child=serializers.BooleanField()))
    def get_actions(self, rollout: Rollout) -> Any:
        return {a.verb: a.is_possible for a in rollout_actions.all_actions(rollout)}

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_reasons(self, rollout: Rollout) -> Any:
        return {a.verb: a.reason for a in rollout_actions.all_actions(rollout)}

    @extend_schema_field(serializers.DictField(child=serializers.BooleanField()))
    def get_permissions(self, rollout: Rollout) -> Any:
        return rollout_actions.permissions(rollout, self.context["request"].user)


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


class StepIn(Body[Any]):
    step = serializers.UUIDField(
        required=False, allow_null=True, default=None, help_text="One step; absent: all it fits."
    )


class SkipIn(Body[Any]):
    step = serializers.UUIDField()


class RevertIn(StepIn):
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="",
                                   help_text="Needed while a freeze is active.")  # fmt: skip


class FreezeOut(serializers.ModelSerializer[Freeze]):
    cluster = serializers.UUIDField(source="cluster_id", allow_null=True)
    created_by = serializers.CharField(source="created_by.email", default=None, allow_null=True)

    class Meta:
        model = Freeze
        fields = ["id", "cluster", "reason", "created_by", "created_at", "until", "lifted_at"]


class FreezeIn(Body[Any]):
    cluster = serializers.UUIDField(required=False, allow_null=True, default=None, help_text="Absent: all clusters.")
    reason = serializers.CharField(max_length=500)
    until = Instant(required=False, allow_null=True, default=None)
