"""The resource types that a simulated cluster serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


RESOURCES: Mapping[str, Resource] = {
    r.plural: r
    for r in (
        Resource("nodes", "Node", namespaced=False, generation=False),
        Resource("pods", "Pod", generation=False),
        Resource("namespaces", "Namespace", namespaced=False, generation=False),
        Resource("configmaps", "ConfigMap", generation=False),
        Resource("leases", "Lease", "coordination.k8s.io", generation=False),
        Resource("poddisruptionbudgets", "PodDisruptionBudget", "policy"),
        Resource("jobs", "Job", "batch"),
        Resource("cronjobs", "CronJob", "batch"),
        Resource("replicasets", "ReplicaSet", "apps"),
        Resource("deployments", "Deployment", "apps"),
        Resource("statefulsets", "StatefulSet", "apps"),
        Resource("daemonsets", "DaemonSet", "apps"),
        Resource("nodetunings", "NodeTuning", "setpoint.dev", "v1alpha1", namespaced=False, custom=True),
        Resource("customresourcedefinitions", "CustomResourceDefinition", "apiextensions.k8s.io", namespaced=False),
        Resource(
            "validatingadmissionpolicies", "ValidatingAdmissionPolicy", "admissionregistration.k8s.io", namespaced=False
        ),
        Resource(
            "validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
            "admissionregistration.k8s.io",
            namespaced=False,
        ),
    )
}
