"""The resource types that a simulated cluster serves: those built in, and those that CustomResourceDefinitions add.

A type is known by a key: its plural, or plural.group where a definition brought it, for a custom Job and a built-in one
may live in the same cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource type: how it is addressed and which of its writes count as a new generation."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    generation: bool = True
    """A change outside metadata and status bumps metadata.generation. Nodes, Pods, Leases and ConfigMaps carry none."""
    custom: bool = False
    versions: tuple[str, ...] = ()
    """All that are served, if more than `version`; objects are the same in each."""
    has_status: bool = True
    """Status is written through a subresource only. Where a custom resource has none, it is a field like others."""
    short: tuple[str, ...] = ()
    key: str = ""
    """"": the plural."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def served(self) -> tuple[str, ...]:
        return self.versions or (self.version,)

    def at(self, version: str) -> Resource:
        """Return the resource at one of its versions."""
        return self if version == self.version else replace(self, version=version)


ADMISSION, RBAC = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
DEVICES = "resource.k8s.io"
RESOURCES: Mapping[str, Resource] = {
    r.plural: r
    for r in (
        Resource("nodes", "Node", namespaced=False, generation=False, short=("no",)),
        Resource("pods", "Pod", generation=False, short=("po",)),
        Resource("namespaces", "Namespace", namespaced=False, generation=False, short=("ns",)),
        Resource("configmaps", "ConfigMap", generation=False, short=("cm",)),
        Resource("secrets", "Secret", generation=False),
        Resource("services", "Service", generation=False, short=("svc",)),
        Resource("serviceaccounts", "ServiceAccount", generation=False, short=("sa",)),
        Resource("endpoints", "Endpoints", generation=False, short=("ep",)),
        Resource("events", "Event", generation=False, short=("ev",)),
        Resource("persistentvolumeclaims", "PersistentVolumeClaim", generation=False, short=("pvc",)),
        Resource("persistentvolumes", "PersistentVolume", namespaced=False, generation=False, short=("pv",)),
        Resource("resourcequotas", "ResourceQuota", generation=False, short=("quota",)),
        Resource("limitranges", "LimitRange", generation=False, short=("limits",)),
        Resource("leases", "Lease", "coordination.k8s.io", generation=False),
        Resource("poddisruptionbudgets", "PodDisruptionBudget", "policy", short=("pdb",)),
        Resource("jobs", "Job", "batch"),
        Resource("cronjobs", "CronJob", "batch", short=("cj",)),
        Resource("replicasets", "ReplicaSet", "apps", short=("rs",)),
        Resource("deployments", "Deployment", "apps", short=("deploy",)),
        Resource("statefulsets", "StatefulSet", "apps", short=("sts",)),
        Resource("daemonsets", "DaemonSet", "apps", short=("ds",)),
        Resource("horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling", "v2", short=("hpa",)),
        Resource("roles", "Role", RBAC, generation=False),
        Resource("rolebindings", "RoleBinding", RBAC, generation=False),
        Resource("clusterroles", "ClusterRole", RBAC, namespaced=False, generation=False),
        Resource("clusterrolebindings", "ClusterRoleBinding", RBAC, namespaced=False, generation=False),
        Resource("networkpolicies", "NetworkPolicy", "networking.k8s.io", short=("netpol",)),
        Resource("ingresses", "Ingress", "networking.k8s.io", short=("ing",)),
        Resource("ingressclasses", "IngressClass", "networking.k8s.io", namespaced=False),
        Resource("priorityclasses", "PriorityClass", "scheduling.k8s.io", namespaced=False, short=("pc",)),
        Resource("runtimeclasses", "RuntimeClass", "node.k8s.io", namespaced=False, generation=False),
        Resource("storageclasses", "StorageClass", "storage.k8s.io", namespaced=False, generation=False, short=("sc",)),
        Resource("csidrivers", "CSIDriver", "storage.k8s.io", namespaced=False, generation=False),
        Resource("apiservices", "APIService", "apiregistration.k8s.io", namespaced=False, generation=False),
        Resource("resourceslices", "ResourceSlice", DEVICES, namespaced=False),
        Resource("resourceclaims", "ResourceClaim", DEVICES, generation=False),
        Resource("nodetunings", "NodeTuning", "setpoint.dev", "v1alpha1", namespaced=False, custom=True),
        Resource(
            "customresourcedefinitions",
            "CustomResourceDefinition",
            "apiextensions.k8s.io",
            namespaced=False,
            short=("crd", "crds"),
        ),
        Resource("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", ADMISSION, namespaced=False),
        Resource("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", ADMISSION, namespaced=False),
        Resource("validatingadmissionpolicies", "ValidatingAdmissionPolicy", ADMISSION, namespaced=False),
        Resource("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", ADMISSION, namespaced=False),
    )
}
