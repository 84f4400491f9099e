"""The table of policy objects that a profile may want, each with the checks it passes before any cluster is asked.

A profile is approved once and carried out with Setpoint's own rights, so what those must never do for anyone is refused
here: what gives rights, reaches a node's files, or touches the namespaces of Kubernetes and of Setpoint itself.

Sources: kubernetes.io (resource-quotas, limit-range, pod-priority-preemption, runtime-class, pod-security-admission),
Volcano's Queue (v1.15), Kueue's API v1beta2 (v0.19), the Network Operator's NicClusterPolicy (26.7); of the others, in
the module of their checks. The API server has the last word, in the plan's dry run, by the kind's own schema.
"""

from __future__ import annotations

from collections.abc import Mapping

from profiles.policies import (
    attachments,
    autoscaling,
    backups,
    configuration,
    devices,
    kubernetes,
    multikueue,
    network,
    nic,
    node_features,
    queues,
    rights,
    storage,
)
from profiles.policies.components import rows
from profiles.policies.kind import PolicyKind

MAX_OBJECTS = 200
MAX_OBJECT = 32 * 1024
"""Characters of one object as JSON."""


_SPEC = frozenset({"spec"})
VOLCANO = ("scheduling.volcano.sh/v1beta1",)
NETWORK = ("mellanox.com/v1alpha1",)
_STORAGE_FIXED = frozenset({"provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"})
SRIOV = ("sriovnetwork.openshift.io/v1",)
DRA = ("resource.k8s.io/v1",)
RBAC = ("rbac.authorization.k8s.io/v1",)
KUEUE = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")

KINDS: Mapping[str, PolicyKind] = {
    kind.name: kind
    for kind in (
        PolicyKind("Namespace", ("v1",), False, frozenset(), kubernetes.namespace),
        PolicyKind("ResourceQuota", ("v1",), True, _SPEC, kubernetes.resource_quota),
        PolicyKind("LimitRange", ("v1",), True, _SPEC, kubernetes.limit_range),
        PolicyKind(
            "PriorityClass",
            ("scheduling.k8s.io/v1",),
            False,
            frozenset({"value", "globalDefault", "description", "preemptionPolicy"}),
            kubernetes.priority_class,
        ),
        PolicyKind(
            "RuntimeClass",
            ("node.k8s.io/v1",),
            False,
            frozenset({"handler", "overhead", "scheduling"}),
            kubernetes.runtime_class,
        ),
        PolicyKind("Queue", VOLCANO, False, _SPEC, queues.queue, "volcano"),
        PolicyKind("Topology", KUEUE, False, _SPEC, queues.topology, "kueue"),
        PolicyKind("ResourceFlavor", KUEUE, False, _SPEC, queues.resource_flavor, "kueue"),
        PolicyKind("ClusterQueue", KUEUE, False, _SPEC, queues.cluster_queue, "kueue"),
        PolicyKind("LocalQueue", KUEUE, True, _SPEC, queues.local_queue, "kueue"),
        PolicyKind("HyperNode", ("topology.volcano.sh/v1alpha1",), False, _SPEC, queues.hyper_node, "volcano"),
        PolicyKind("NicClusterPolicy", NETWORK, False, _SPEC, nic.nic_cluster_policy, "network-operator"),
        PolicyKind(
            "NodeFeatureRule",
            ("nfd.k8s-sigs.io/v1alpha1",),
            False,
            _SPEC,
            node_features.node_feature_rule,
            "node-feature-discovery",
            also=("gpu-operator", "network-operator"),
        ),
        PolicyKind(
            "StorageClass",
            ("storage.k8s.io/v1",),
            False,
            _STORAGE_FIXED | {"allowVolumeExpansion", "mountOptions", "allowedTopologies"},
            storage.storage_class,
            fixed=tuple(sorted(_STORAGE_FIXED)),
        ),
        PolicyKind(
            "PersistentVolume",
            ("v1",),
            False,
            _SPEC,
            storage.persistent_volume,
            fixed=("spec.nfs", "spec.local", "spec.volumeMode", "spec.nodeAffinity"),
        ),
        PolicyKind(
            "PersistentVolumeClaim",
            ("v1",),
            True,
            _SPEC,
            storage.claim,
            fixed=("spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeMode", "spec.volumeName"),
            is_kept_out=True,
        ),
        PolicyKind(
            "ConfigMap",
            ("v1",),
            True,
            frozenset({"data", "binaryData", "immutable"}),
            configuration.config_map,
            is_kept_out=True,
        ),
        PolicyKind("NetworkPolicy", ("networking.k8s.io/v1",), True, _SPEC, network.network_policy, is_kept_out=True),
        PolicyKind(
            "CiliumNetworkPolicy",
            ("cilium.io/v2",),
            True,
            frozenset({"spec", "specs"}),
            network.cilium_network_policy,
            "cilium",
            is_kept_out=True,
        ),
        PolicyKind(
            "NetworkAttachmentDefinition",
            ("k8s.cni.cncf.io/v1",),
            True,
            _SPEC,
            attachments.network_attachment,
            "network-operator",
            also=("multus", "sriov-network-operator"),
            is_kept_out=True,
        ),
        PolicyKind(
            "SriovNetworkNodePolicy",
            SRIOV,
            True,
            _SPEC,
            attachments.sriov_node_policy,
            "network-operator",
            also=("sriov-network-operator",),
            is_kept_out=True,
        ),
        PolicyKind(
            "SriovNetwork",
            SRIOV,
            True,
            _SPEC,
            attachments.sriov_network,
            "network-operator",
            also=("sriov-network-operator",),
            is_kept_out=True,
        ),
        PolicyKind("DeviceClass", DRA, False, _SPEC, devices.device_class),
        PolicyKind(
            "ResourceClaimTemplate",
            DRA,
            True,
            _SPEC,
            devices.claim_template,
            fixed=("spec",),
            is_kept_out=True,
        ),
        PolicyKind("Schedule", ("velero.io/v1",), True, _SPEC, backups.schedule, "velero", is_kept_out=True),
        PolicyKind("MultiKueueCluster", KUEUE, False, _SPEC, multikueue.cluster, "kueue"),
        PolicyKind("MultiKueueConfig", KUEUE, False, _SPEC, multikueue.config, "kueue"),
        PolicyKind("AdmissionCheck", KUEUE, False, _SPEC, multikueue.admission_check, "kueue"),
        PolicyKind("Role", RBAC, True, frozenset({"rules"}), rights.role, is_kept_out=True),
        PolicyKind(
            "RoleBinding",
            RBAC,
            True,
            frozenset({"roleRef", "subjects"}),
            rights.role_binding,
            fixed=("roleRef",),
            is_kept_out=True,
        ),
        PolicyKind(
            "HorizontalPodAutoscaler", ("autoscaling/v2",), True, _SPEC, autoscaling.horizontal, is_kept_out=True
        ),
        PolicyKind(
            "VerticalPodAutoscaler",
            ("autoscaling.k8s.io/v1",),
            True,
            _SPEC,
            autoscaling.vertical,
            "vertical-pod-autoscaler",
            is_kept_out=True,
        ),
        *rows.ROWS,
    )
}
