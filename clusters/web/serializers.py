"""Output and input of the API for clusters, nodes and pools. Credentials go in and never come out."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.people import owners
from clusters.connection import expiry
from clusters.models import Cluster, GpuPod, Node, NodeTuning, Pool
from clusters.reports import selectors
from clusters.services import label_selectors
from clusters.services.pools import MOST_HOLD_MINUTES, matching
from common.bodies import Body
from contract import disks
from contract.disks import Disk

_FLAGS = serializers.DictField(child=serializers.BooleanField())


# ── clusters ──────────────────────────────────────────────────────────────────────────────────────────────────────────
class ClusterOut(serializers.ModelSerializer[Cluster]):
    is_current = serializers.BooleanField(help_text="Rows say how things are now; else they are as of observed_at.")
    node_count = serializers.IntegerField()
    not_ready = serializers.IntegerField()
    cordoned = serializers.IntegerField()
    gpu_count = serializers.IntegerField()
    gpu_allocated = serializers.IntegerField()
    actions = serializers.SerializerMethodField()
    permissions = serializers.SerializerMethodField()

    class Meta:
        model = Cluster
        fields = [
            "id", "uid", "name", "environment", "server", "kubernetes_version", "budget", "ownership", "ownership_mark",
            "reach", "reach_since", "reach_reason", "refused_since", "is_current", "observed_at", "credential_set_at",
            "credential_expires_at", "authority_expires_at", "credential_renews",
            "node_count", "not_ready", "cordoned", "gpu_count", "gpu_allocated", "version",
            "created_at", "actions", "permissions",
        ]  # fmt: skip

    @extend_schema_field(_FLAGS)
    def get_actions(self, cluster: Cluster) -> dict[str, bool]:
        return selectors.cluster_actions(cluster)

    @extend_schema_field(_FLAGS)
    def get_permissions(self, cluster: Cluster) -> dict[str, bool]:
        return selectors.cluster_permissions(cluster, self.context["request"].user)


class EquipmentOut(serializers.Serializer[Any]):
    crd = serializers.BooleanField()
    agent_policy = serializers.BooleanField()
    spec_policy = serializers.BooleanField()
    agent_desired = serializers.IntegerField()
    agent_ready = serializers.IntegerField()
    hold_policy = serializers.BooleanField(help_text="Agents may end the hold of their own node, once its time is up.")
    missing = serializers.ListField(child=serializers.CharField())


class EndingOut(serializers.Serializer[Any]):
    what = serializers.ChoiceField(choices=["credential", "authority", "helm_credential"])
    at = serializers.DateTimeField()
    renews = serializers.BooleanField(help_text="It renews itself before that.")
    is_due = serializers.BooleanField(help_text="Needs attention: it ends soon, or its renewal is late.")
    sentence = serializers.CharField()


class ClusterDetailOut(ClusterOut):
    equipment = serializers.SerializerMethodField()
    credential_endings = serializers.SerializerMethodField()

    class Meta(ClusterOut.Meta):
        fields = [*ClusterOut.Meta.fields, "renewal_error", "credential_endings", "equipment", "enrolment_error"]

    @extend_schema_field(EndingOut(many=True))
    def get_credential_endings(self, cluster: Cluster) -> list[dict[str, Any]]:
        (endings,) = expiry.of_clusters([cluster]).values()
        return [
            {
                "what": ending.what,
                "at": ending.at,
                "renews": ending.renews,
                "is_due": ending.is_due(),
                "sentence": ending.sentence,
            }
            for ending in endings
        ]

    @extend_schema_field(EquipmentOut(allow_null=True))
    def get_equipment(self, cluster: Cluster) -> dict[str, Any] | None:
        return cluster.equipment or None

    @extend_schema_field(_FLAGS)
    def get_actions(self, cluster: Cluster) -> dict[str, bool]:
        return selectors.cluster_actions(cluster, is_detailed=True)


class CredentialIn(Body[Any]):
    """Either `kubeconfig`, or `server` and `token` (and `ca`, unless a public authority signed the server)."""

    kubeconfig = serializers.CharField(required=False, write_only=True, trim_whitespace=False, max_length=262_144)
    context = serializers.CharField(  # type: ignore[assignment]  # the kubeconfig's word; DRF has one of the same name
        required=False, max_length=253, help_text="Needed when the file names several."
    )
    server = serializers.CharField(required=False, max_length=2048)
    ca = serializers.CharField(required=False, allow_blank=True, max_length=65_536, help_text="PEM.")
    token = serializers.CharField(required=False, write_only=True, max_length=16_384)


class ConnectIn(CredentialIn):
    name = serializers.CharField(max_length=63)
    environment = serializers.ChoiceField(Cluster.Environment.choices)
    budget = serializers.IntegerField(required=False, default=1, min_value=1, max_value=10_000)
    take_over = serializers.BooleanField(required=False, default=False)


class ClusterChange(Body[Any]):
    name = serializers.CharField(required=False, max_length=63)
    environment = serializers.ChoiceField(Cluster.Environment.choices, required=False)
    budget = serializers.IntegerField(required=False, min_value=1, max_value=10_000)


class CheckOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    state = serializers.ChoiceField(["ok", "warn", "bad", "unknown"])
    text = serializers.CharField()
    fix = serializers.CharField()


class PermissionOut(serializers.Serializer[Any]):
    verb = serializers.CharField(source="permission.verb")
    group = serializers.CharField(source="permission.group")
    resource = serializers.CharField(source="permission.resource")
    namespace = serializers.CharField(source="permission.namespace")
    why = serializers.CharField(source="permission.why")
    allowed = serializers.BooleanField()
    reason = serializers.CharField()


class VerdictOut(serializers.Serializer[Any]):
    server = serializers.CharField()
    uid = serializers.CharField()
    version = serializers.CharField()
    is_connectable = serializers.BooleanField()
    is_foreign = serializers.BooleanField()
    known_as = serializers.CharField(
        allow_blank=True, help_text="Name of the cluster here that it is already, where the caller may see that one."
    )
    checks = CheckOut(many=True)
    permissions = PermissionOut(many=True)
    equipment = EquipmentOut(allow_null=True)


class FarewellOut(serializers.Serializer[Any]):
    stays = serializers.ListField(child=serializers.CharField())
    blockers = serializers.ListField(child=serializers.CharField())
    commands = serializers.ListField(child=serializers.CharField())


# ── pools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
class PoolOut(serializers.ModelSerializer[Pool]):
    cluster = serializers.UUIDField(source="cluster_id")
    cluster_name = serializers.CharField(source="cluster.name")
    selector_text = serializers.SerializerMethodField(help_text="As kubectl writes it.")
    owner = serializers.SerializerMethodField(help_text="Name of the team that owns it; null: none.")
    actions = serializers.SerializerMethodField()
    permissions = serializers.SerializerMethodField()

    class Meta:
        model = Pool
        fields = [
            "id", "cluster", "cluster_name", "name", "selector", "selector_text", "description", "hold_minutes",
            "owner", "version", "created_at", "actions", "permissions",
        ]  # fmt: skip

    def get_selector_text(self, pool: Pool) -> str:
        return label_selectors.text(pool.selector)

    def get_owner(self, pool: Pool) -> str | None:
        return owners.shown(pool.owner_team, self.context)

    @extend_schema_field(_FLAGS)
    def get_actions(self, pool: Pool) -> dict[str, bool]:
        return {"update": True, "delete": True}

    @extend_schema_field(_FLAGS)
    def get_permissions(self, pool: Pool) -> dict[str, bool]:
        return selectors.pool_permissions(pool, self.context["request"].user)


class PoolDetailOut(PoolOut):
    node_count = serializers.SerializerMethodField()

    class Meta(PoolOut.Meta):
        fields = [*PoolOut.Meta.fields, "node_count"]

    def get_node_count(self, pool: Pool) -> int:
        return matching(pool).count()

    @extend_schema_field(_FLAGS)
    def get_actions(self, pool: Pool) -> dict[str, bool]:
        return selectors.pool_actions(pool)


class SelectorField(serializers.JSONField):
    """A LabelSelector as an object, or kubectl's text."""


class SelectorIn(Body[Any]):
    selector = SelectorField(help_text="{matchLabels, matchExpressions}, or text such as `pool=train,zone in (a,b)`.")


def _hold_minutes(**options: Any) -> serializers.IntegerField:
    words = "New nodes with the taint setpoint.dev/untuned are held for at most so many minutes; null: they are not."
    return serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=MOST_HOLD_MINUTES, help_text=words, **options
    )


def _owner() -> serializers.CharField:
    words = "Name of the team that owns it; null: none. Takes an administrator."
    return serializers.CharField(required=False, allow_null=True, max_length=63, help_text=words)


class PoolIn(SelectorIn):
    name = serializers.CharField(max_length=63)
    description = serializers.CharField(required=False, allow_blank=True, max_length=300, default="")
    hold_minutes = _hold_minutes(default=None)
    owner = _owner()


class PoolChange(Body[Any]):
    name = serializers.CharField(required=False, max_length=63)
    selector = SelectorField(required=False)
    description = serializers.CharField(required=False, allow_blank=True, max_length=300)
    hold_minutes = _hold_minutes()
    owner = _owner()


class PreviewOut(serializers.Serializer[Any]):
    count = serializers.IntegerField()
    total = serializers.IntegerField()
    names = serializers.ListField(child=serializers.CharField())
    warning = serializers.CharField()


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
class NodeOut(serializers.ModelSerializer[Node]):
    cluster = serializers.UUIDField(source="cluster_id")
    cluster_name = serializers.CharField(source="cluster.name")
    health = serializers.ChoiceField(["healthy", "degraded", "unreachable", "unknown"], read_only=True)
    health_reason = serializers.CharField(read_only=True)
    gpu_shares_offered = serializers.IntegerField(
        read_only=True, help_text="Shares of GPUs, or of parts of GPUs, under time slicing or MPS. 0: none is shared."
    )
    agent_version = serializers.CharField(source="tuning.agent_version", default="", read_only=True)
    actions = serializers.SerializerMethodField()
    permissions = serializers.SerializerMethodField()

    class Meta:
        model = Node
        fields = [
            "id", "uid", "name", "cluster", "cluster_name", "health", "health_reason", "is_control_plane",
            "architecture", "os_image", "kernel", "kubelet", "boot_id", "is_ready", "ready_reason", "is_cordoned",
            "cordoned_by", "keep_cordoned", "driver_upgrade", "labels", "taints", "allocatable", "gpu_product",
            "gpu_count", "gpu_allocated", "gpu_shares_offered", "gpu_shares_held", "agent_version", "changed_at",
            "actions", "permissions",
        ]  # fmt: skip

    @extend_schema_field(_FLAGS)
    def get_actions(self, node: Node) -> dict[str, bool]:
        return {"refresh": True}

    @extend_schema_field(_FLAGS)
    def get_permissions(self, node: Node) -> dict[str, bool]:
        return {"refresh": selectors.cluster_permissions(node.cluster, self.context["request"].user)["refresh"]}


class GpuPodOut(serializers.ModelSerializer[GpuPod]):
    class Meta:
        model = GpuPod
        fields = [
            "uid", "namespace", "name", "gpus", "owner_kind", "owner_name", "phase", "started_at", "memory_kills",
            "memory_killed_at",
        ]  # fmt: skip


class TuningOut(serializers.ModelSerializer[NodeTuning]):
    class Meta:
        model = NodeTuning
        fields = [
            "generation", "observed_generation", "mode", "protocol", "agent_version", "malformed", "silent_since",
            "changed_at", "status", "observed",
        ]  # fmt: skip


class DiskOut(serializers.Serializer[Disk]):
    name = serializers.CharField()
    serial = serializers.CharField()
    model = serializers.CharField()
    size = serializers.IntegerField(help_text="In bytes.")
    is_rotating = serializers.BooleanField()
    partitions = serializers.IntegerField()
    is_empty = serializers.BooleanField(help_text="Nothing uses it, and only zeros were read.")
    state = serializers.CharField(help_text="`empty`, or why it does not count as empty.")


class NodeDetailOut(NodeOut):
    tuning = TuningOut(allow_null=True, default=None, read_only=True)
    gpu_pods = serializers.SerializerMethodField()
    disks = serializers.SerializerMethodField()

    class Meta(NodeOut.Meta):
        fields = [*NodeOut.Meta.fields, "annotations", "conditions", "disks", "gpu_pods", "tuning"]

    @extend_schema_field(DiskOut(many=True))
    def get_disks(self, node: Node) -> Any:
        tuning: NodeTuning | None = getattr(node, "tuning", None)
        return [DiskOut(disk).data for disk in disks.of_node(tuning.observed)] if tuning else []

    @extend_schema_field(GpuPodOut(many=True))
    def get_gpu_pods(self, node: Node) -> Any:
        return GpuPodOut(selectors.gpu_pods_on(node), many=True).data
