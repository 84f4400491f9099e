"""Serializers of compliance."""

from __future__ import annotations

from typing import Any, cast

from drf_spectacular.utils import extend_schema_field, inline_serializer
from rest_framework import serializers

from clusters.models import Node
from common.bodies import Body
from compliance.models import Assignment, ComplianceState, NodeStanding, Outlier, SettingChange, SettingState
from compliance.reports import exports, security, selectors
from compliance.services import assignments

_FLAGS = serializers.DictField(child=serializers.BooleanField())


class CountsOut(serializers.Serializer[Any]):
    """Nodes by state. The five sum to the nodes asked about; `unassigned` is beside the axis: no plan touched them."""

    compliant = serializers.IntegerField()
    drifted = serializers.IntegerField()
    pending = serializers.IntegerField()
    unknown = serializers.IntegerField()
    unassigned = serializers.IntegerField()


class SecurityCountsOut(serializers.Serializer[Any]):
    """Assigned settings whose value weakens security. `wanted` and `observed` are nodes; one may be in both."""

    settings = serializers.IntegerField()
    nodes = serializers.IntegerField()
    wanted = serializers.IntegerField()
    observed = serializers.IntegerField()


class ClusterCountsOut(serializers.Serializer[Any]):
    cluster = serializers.UUIDField()
    cluster_name = serializers.CharField()
    counts = CountsOut()


class ClusterSummaryOut(ClusterCountsOut):
    weakens_security = SecurityCountsOut()


class PoolCountsOut(ClusterCountsOut):
    pool = serializers.IntegerField()
    pool_name = serializers.CharField()
    target = serializers.CharField()
    mode = serializers.ChoiceField(choices=Assignment.Mode.choices)
    joining = serializers.IntegerField(help_text="Nodes that joined the pool and that no step has reached.")
    plan = serializers.IntegerField(allow_null=True, help_text="Number of the open plan to the target.")


class SummaryOut(serializers.Serializer[Any]):
    counts = CountsOut()
    weakens_security = SecurityCountsOut()
    clusters = ClusterSummaryOut(many=True)
    pools = PoolCountsOut(many=True)


class CellOut(serializers.Serializer[Any]):
    pool = serializers.IntegerField()
    counts = CountsOut(help_text="`unassigned`: nodes that do not have the key.")
    weakens_security = serializers.CharField(help_text="Why the value that this pool's target wants does; empty: not.")


class MatrixRowOut(serializers.Serializer[Any]):
    key = serializers.CharField()
    cells = CellOut(many=True)


class MatrixOut(serializers.Serializer[Any]):
    pools = PoolCountsOut(many=True)
    settings = MatrixRowOut(many=True, help_text="Those with a difference first.")


class NodeComplianceOut(serializers.ModelSerializer[Node]):
    cluster = serializers.UUIDField(source="cluster_id")
    cluster_name = serializers.CharField(source="cluster.name")
    state = serializers.ChoiceField(choices=NodeStanding.STATES, source="shown")
    reason = serializers.SerializerMethodField(help_text="Why it is so; empty when compliant.")
    since = serializers.DateTimeField(source="standing.since", default=None, allow_null=True)
    pool = serializers.IntegerField(source="standing.pool_id", default=None, allow_null=True)
    pool_name = serializers.CharField(source="standing.pool.name", default=None, allow_null=True)
    target = serializers.SerializerMethodField(help_text="The revision that it is to run, such as `gpu r7`.")
    expected = serializers.SerializerMethodField(help_text="The revision that it is expected to run now.")
    is_joining = serializers.BooleanField(source="standing.is_joining", default=False)
    settings = serializers.IntegerField(source="standing.settings", default=0)
    drifted = serializers.IntegerField(source="standing.drifted", default=0)
    pending = serializers.IntegerField(source="standing.pending", default=0)
    lacking = serializers.ListField(
        child=serializers.CharField(), source="standing.lacking", default=list, help_text="Keys it does not have."
    )

    weakening = serializers.SerializerMethodField(help_text="How many of its settings weaken its security.")

    class Meta:
        model = Node
        fields = [
            "id", "uid", "name", "cluster", "cluster_name", "state", "reason", "since", "pool", "pool_name", "target",
            "expected", "is_joining", "settings", "drifted", "pending", "lacking",
            "weakening",
        ]  # fmt: skip
        read_only_fields = fields

    def get_reason(self, node: selectors.ShownNode) -> str:
        return exports.why(node)

    def get_weakening(self, node: Node) -> int:
        """Return the number of weakening settings; for a list, all rows are counted in one query."""
        counts: dict[int, int] = cast("dict[str, Any]", self.context).setdefault("weakening", {})
        if node.pk not in counts:
            nodes = getattr(self.parent, "instance", None) or [node]
            counted = security.of_nodes(row.pk for row in nodes)
            counts.update({row.pk: counted.get(row.pk, 0) for row in nodes})
        return counts[node.pk]

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_target(self, node: Node) -> str | None:
        target = selectors.target_of(node)
        return str(target) if target else None

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_expected(self, node: Node) -> str | None:
        expectation = getattr(node, "expectation", None)
        return str(expectation.revision) if expectation and expectation.revision else None


class _OfNode(serializers.ModelSerializer[Any]):
    node_name = serializers.CharField(source="node.name")
    cluster = serializers.UUIDField(source="node.cluster_id")
    cluster_name = serializers.CharField(source="node.cluster.name")
    weakens_security = serializers.ListField(
        child=serializers.ChoiceField(choices=security.CHOICES),
        source="weak.sides",
        read_only=True,
        help_text="`wanted`: the value that Setpoint wants does; `observed`: the one that the node has does.",
    )
    why_it_weakens = serializers.CharField(source="weak.why", read_only=True, help_text="Empty where it does not.")


class SettingStateOut(_OfNode):
    state = serializers.ChoiceField(choices=ComplianceState.choices, source="shown")
    rollout = serializers.UUIDField(
        source="rollout_id", allow_null=True, help_text="The last that wrote this key here."
    )

    class Meta:
        model = SettingState
        fields = [
            "id", "node", "node_name", "cluster", "cluster_name", "key", "state", "operator", "desired", "written",
            "effective", "original", "has_original", "cause", "won_by", "reason", "since", "rollout",
            "weakens_security", "why_it_weakens",
        ]  # fmt: skip
        read_only_fields = fields


class SettingChangeOut(_OfNode):
    rollout = serializers.UUIDField(source="rollout_id", allow_null=True)

    class Meta:
        model = SettingChange
        fields = [
            "id", "at", "node", "node_name", "cluster", "cluster_name", "key", "state", "operator", "desired",
            "effective", "cause", "won_by", "reason", "rollout", "weakens_security",
            "why_it_weakens",
        ]  # fmt: skip
        read_only_fields = fields


class OutlierOut(serializers.ModelSerializer[Outlier]):
    cluster = serializers.UUIDField(source="cluster_id")
    cluster_name = serializers.CharField(source="cluster.name")
    pool = serializers.IntegerField(source="pool_id", allow_null=True)
    pool_name = serializers.CharField(source="pool.name", default=None, allow_null=True)
    values = serializers.SerializerMethodField(help_text="At most ten values, each with its first ten nodes.")

    class Meta:
        model = Outlier
        fields = [
            "id", "cluster", "cluster_name", "pool", "pool_name", "peers", "key", "usual", "usual_nodes", "count",
            "values", "since",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(
        inline_serializer(
            "OutlierValue",
            {
                "value": serializers.CharField(),
                "count": serializers.IntegerField(),
                "names": serializers.ListField(child=serializers.CharField()),
                "weakens_security": serializers.CharField(help_text="Why it does; empty: it does not."),
            },
            many=True,
        )
    )
    def get_values(self, row: Outlier) -> Any:
        return [{**answer, "weakens_security": security.why_of_answer(row, answer)} for answer in row.values]


class AssignmentOut(serializers.ModelSerializer[Assignment]):
    cluster = serializers.UUIDField(source="pool.cluster_id")
    cluster_name = serializers.CharField(source="pool.cluster.name")
    pool_name = serializers.CharField(source="pool.name")
    revision = serializers.CharField(source="revision.digest")
    revision_name = serializers.CharField(source="revision.name")
    rollout = serializers.UUIDField(source="rollout_id", allow_null=True, help_text="The rollout that set it.")
    set_by = serializers.CharField(source="set_by.email", default=None, allow_null=True)
    actions = serializers.SerializerMethodField()
    permissions = serializers.SerializerMethodField()

    class Meta:
        model = Assignment
        fields = [
            "id", "cluster", "cluster_name", "pool", "pool_name", "revision", "revision_name", "mode", "rollout",
            "set_by", "set_at", "actions", "permissions",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(_FLAGS)
    def get_actions(self, row: Assignment) -> dict[str, bool]:
        live = self.context.get("live")
        return {"observe": not assignments.why_not_weaken(row, live)}

    @extend_schema_field(_FLAGS)
    def get_permissions(self, row: Assignment) -> dict[str, bool]:
        return {"observe": assignments.may_weaken(self.context["request"].user, row)}


class ObserveIn(Body[Any]):
    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)
