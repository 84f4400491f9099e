"""REST representations of a plan's components and policy objects."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from components.catalog.effects import CLASSES
from jobs.diffs import cluster_scope
from jobs.models import PlanComponent
from jobs.reports import component_rights, plan_components


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
    count = serializers.IntegerField(help_text="Of nodes, in every class.")
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
    caveats = serializers.SerializerMethodField(
        help_text="What the catalog warns of for this step between the chart's versions, this install or this removal."
    )
    rights = serializers.SerializerMethodField(help_text="Null: nothing is done, or these are policy objects.")

    class Meta:
        model = PlanComponent
        fields = ["id", "kind", "component", "namespace", "release", "version", "action", "digest", "position",
                  "requires", "after", "left_out", "worst_class", "blast", "caveats", "rights", "notes",
                  "objects"]  # fmt: skip

    @extend_schema_field(RightsOut(allow_null=True))
    def get_rights(self, row: PlanComponent) -> Any:
        authority = component_rights.authority_of(row)
        return component_rights.as_json(row, authority) if authority else None

    @extend_schema_field(BlastOut(allow_null=True))
    def get_blast(self, row: PlanComponent) -> Any:
        blast = cluster_scope.read_prepared(row).blast if row.prepared and not row.left_out else None
        return BlastOut(blast).data if blast else None

    def get_caveats(self, row: PlanComponent) -> list[str]:
        return list(row.prepared.get("caveats", ())) if not row.left_out else []

    @extend_schema_field(PartNoteOut(many=True))
    def get_notes(self, row: PlanComponent) -> Any:
        return PartNoteOut(cluster_scope.read_prepared(row).notes if row.prepared else (), many=True).data

    @extend_schema_field(PartObjectOut(many=True))
    def get_objects(self, row: PlanComponent) -> Any:
        return PartObjectOut(
            plan_components.objects_of(cluster_scope.read_prepared(row)) if row.prepared else (), many=True
        ).data
