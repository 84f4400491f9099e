"""Detection of Argo CD or Flux ownership of a release: they revert changes made beside the committed state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from clusters import objects
from components.catalog.entry import ChartReference

_TRACKING = "argocd.argoproj.io/tracking-id"
_INSTANCE = "argocd.argoproj.io/instance"
_FLUX = "helm.toolkit.fluxcd.io"
_KUSTOMIZE = "kustomize.toolkit.fluxcd.io"


@dataclass(frozen=True, slots=True)
class Manager:
    kind: str
    """Argo CD or Flux."""
    name: str
    """Of the Application, or of the HelmRelease."""
    namespace: str = ""
    """Of the HelmRelease; Argo CD's objects do not tell it."""
    word: str = "HelmRelease"
    """What Flux calls it."""

    @property
    def owner(self) -> str:
        word = "Application" if self.kind == "Argo CD" else self.word
        return f"{self.kind}'s {word} {self.namespace + '/' if self.namespace else ''}{self.name}"

    def refusal(self, release: str) -> str:
        return (
            f"{release} is kept by {self.owner}, which would put back what is changed beside it. Commit this instead:"
        )


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """Content of the change that the plan would have made."""

    chart: ChartReference
    version: str
    release: str
    namespace: str
    values: Mapping[str, Any]
    """Without secrets."""


def manager(live: Iterable[Mapping[str, Any]]) -> Manager | None:
    """Return the GitOps manager that claims one of these objects; None: none does."""
    for raw in live:
        labels = objects.meta(raw).get("labels") or {}
        annotations = objects.meta(raw).get("annotations") or {}
        if name := labels.get(f"{_FLUX}/name"):
            return Manager("Flux", str(name), str(labels.get(f"{_FLUX}/namespace") or ""))
        tracking = str(annotations.get(_TRACKING) or "").partition(":")[0]
        if name := tracking or labels.get(_INSTANCE):
            return Manager("Argo CD", str(name))
    return None


def of_object(raw: Mapping[str, Any]) -> Manager | None:
    """Return the GitOps manager that claims a single object, in no chart: a Kustomization of Flux, too."""
    labels = objects.meta(raw).get("labels") or {}
    if name := labels.get(f"{_KUSTOMIZE}/name"):
        return Manager("Flux", str(name), str(labels.get(f"{_KUSTOMIZE}/namespace") or ""), "Kustomization")
    return manager([raw])


def to_commit(who: Manager, wish: ProposedChange) -> str:
    """The Application or HelmRelease that says the same, as YAML."""
    made = _application(who, wish) if who.kind == "Argo CD" else _helm_release(who, wish)
    return yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=120)


def _application(who: Manager, wish: ProposedChange) -> dict[str, Any]:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": who.name},
        "spec": {
            "source": {
                "repoURL": wish.chart.url.removeprefix("oci://"),
                "chart": wish.chart.chart,
                "targetRevision": wish.version,
                "helm": {"releaseName": wish.release, "valuesObject": _mutable_copy(wish.values)},
            },
            "destination": {"namespace": wish.namespace},
        },
    }


def _helm_release(who: Manager, wish: ProposedChange) -> dict[str, Any]:
    return {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {"name": who.name, "namespace": who.namespace or wish.namespace},
        "spec": {
            "releaseName": wish.release,
            "targetNamespace": wish.namespace,
            "chart": {"spec": {"chart": wish.chart.chart, "version": wish.version}},
            "values": _mutable_copy(wish.values),
        },
    }


def _mutable_copy(values: Any) -> Any:
    """Copy values without the immutable mappings that a profile's values are made of."""
    if isinstance(values, Mapping):
        return {str(key): _mutable_copy(value) for key, value in values.items()}
    return [_mutable_copy(value) for value in values] if isinstance(values, list | tuple) else values
