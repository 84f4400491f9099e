"""Effect on running pods of changing an object of a built-in kind, in any component."""

from __future__ import annotations

_RIGHTS = "No pod restarts, and what it grants is asked with each request."
_READ = "Pods read it when they start; running ones keep what they have."
_ADDRESS = "Addresses of pods; running pods are not touched."
_OBSERVED = "It only tells others what to look at."
_MADE = "Nothing of it ran before."
_ADMISSION = "Requests pass it as they are made: while its server is away, pods may not be made."

_ALWAYS = {
    **dict.fromkeys(("ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"), ("live", _RIGHTS)),
    **dict.fromkeys(("ServiceMonitor", "PodMonitor", "PrometheusRule", "APIService"), ("live", _OBSERVED)),
    **dict.fromkeys(("PodDisruptionBudget", "HorizontalPodAutoscaler", "Lease"), ("live", _OBSERVED)),
    **dict.fromkeys(("ConfigMap", "Secret", "PriorityClass", "RuntimeClass", "StorageClass"), ("new-pods", _READ)),
    **dict.fromkeys(("ResourceQuota", "LimitRange", "PersistentVolumeClaim"), ("new-pods", _READ)),
    **dict.fromkeys(("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"), ("new-pods", _ADMISSION)),
    **dict.fromkeys(("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"), ("new-pods", _ADMISSION)),
}
_CREATED = {
    **dict.fromkeys(("ConfigMap", "Secret", "Namespace", "CustomResourceDefinition", "Service"), ("live", _MADE)),
    **dict.fromkeys(("PriorityClass", "RuntimeClass", "StorageClass", "PersistentVolumeClaim"), ("live", _MADE)),
    **dict.fromkeys(("Job", "CronJob", "IngressClass", "DeviceClass"), ("live", _MADE)),
}
_CHANGED = {
    "Service": ("live", _ADDRESS),
    "CustomResourceDefinition": ("live", "Objects of the kind stay; new ones are judged by the new schema."),
    "Namespace": ("new-pods", "What its labels ask of pods is asked of new ones."),
    "CronJob": ("live", "Runs to come."),
}
_DELETED = {
    "Service": ("new-pods", "Its address answers no more."),
    "Job": ("live", "A job of the chart itself."),
    "Namespace": ("drain", "Everything in it is deleted, running pods as well."),
    "CustomResourceDefinition": ("live", "What goes with it is told by itself."),
}
_BY_CHANGE = {"created": _CREATED, "unvalidated": _CREATED, "changed": _CHANGED, "deleted": _DELETED}


def known_effect(kind: str, change: str) -> tuple[str, str] | None:
    """(class, why); None where that is not known of the kind."""
    return _BY_CHANGE.get(change, {}).get(kind) or _ALWAYS.get(kind)
