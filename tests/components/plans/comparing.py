"""Objects of a cluster and of a chart, and their comparison."""

from __future__ import annotations

from clusters.kube.discovery import Resource, ServedApis
from components.helm.patches import marked
from components.helm.rendering import Manifest
from components.plans import impact
from components.plans.diff import Comparison
from components.plans.impact import destroyed
from tests.components.kube import Kube

MAPS = "/api/v1/namespaces/space/configmaps"
CRDS = "apiextensions.k8s.io/v1"
TYPES = (
    Resource("v1", "Namespace", "namespaces", False),
    Resource("v1", "ConfigMap", "configmaps", True),
    Resource("v1", "Secret", "secrets", True),
    Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims", True),
    Resource("apps/v1", "DaemonSet", "daemonsets", True),
    Resource(CRDS, "CustomResourceDefinition", "customresourcedefinitions", False),
    Resource("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "validatingwebhooks", False),
    Resource("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhooks", False),
    Resource("example.com/v1", "Thing", "things", True),
)
SERVED = ServedApis("v1.35.4", {(resource.api_version, resource.kind): resource for resource in TYPES})


def manifest(kind: str, name: str = "a", api_version: str = "v1", generated: tuple[str, ...] = (), **over) -> Manifest:
    return Manifest({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **over}, generated)


def there(kube: Kube, existing: Manifest, *, owned: bool = True, becomes: dict | None = None, **over) -> None:
    """Put an object into the cluster, as helm would have made it, with the answer of a dry run of it."""
    resource = SERVED.find(existing.api_version, existing.kind)
    raw = {**(marked(existing.raw, "one", "space") if owned else existing.raw), **over}
    raw = {**raw, "metadata": {**raw["metadata"], "uid": "u", "resourceVersion": "7", "managedFields": [{}]}}
    path = resource.path("space" if resource.is_namespaced else "", existing.name)
    kube.say("GET", path, raw)
    kube.say("PATCH", path, lambda how: (200, {**raw, **(becomes or {}), "status": {"seen": True}}))


def comparison(kube: Kube, **over) -> Comparison:
    return Comparison(**({"server": kube, "served": SERVED, "release": "one", "namespace": "space"} | over))


def differences(kube: Kube, *wanted: Manifest, old: tuple[Manifest, ...] = (), **over):
    comparator = comparison(kube, **over)
    return comparator.shown(comparator.compare(wanted, old))


def notes(kube: Kube, *wanted: Manifest, old: tuple[Manifest, ...] = (), crds: tuple[Manifest, ...] = ()):
    compared = comparison(kube).compare(wanted, old)
    return impact.notes(kube, SERVED, compared, crds, destroyed(kube, SERVED, compared))
