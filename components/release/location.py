"""Location of a component's release in a cluster, and the objects that it has installed there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clusters.kube.apiserver import ApiServer
from components.catalog.entry import Component
from components.helm import releases, rendering
from components.helm.releases import Release, ReleaseHistory
from components.helm.rendering import Manifest
from components.plans.prepared import BLOCK, PlanNote
from components.release import revision_labels


@dataclass(slots=True)
class ReleaseLocation:
    """Location of a component in one cluster, installed or to be."""

    release: str
    namespace: str
    history: ReleaseHistory
    current: Release | None = None
    """What is in force, else the newest try."""
    notes: list[PlanNote] = field(default_factory=list)

    @property
    def version(self) -> str:
        """Version of the chart in force; empty: nothing is installed."""
        return self.current.chart_version if self.current else ""

    @property
    def is_ours(self) -> bool:
        return revision_labels.is_ours(self.history)


def find(server: ApiServer, component: Component, chart: str) -> ReleaseLocation:
    """The release where the catalog puts it, else wherever the cluster has one of this chart. Raises FleetError."""
    history = releases.history(server, component.namespace, component.name)
    place = ReleaseLocation(component.name, component.namespace, history)
    if history.last is None:
        others = releases.find(server, chart)
        if len(others) > 1:
            named = ", ".join(f"{namespace}/{name}" for namespace, name in others)
            title = f"The cluster has several releases of the chart {chart}: {named}"
            place.notes.append(PlanNote(BLOCK, "several-releases", title, "Remove all but one of them."))
        elif others:
            (namespace, name), *_ = others
            place = ReleaseLocation(name, namespace, releases.history(server, namespace, name))
    revision = place.history.deployed or place.history.last
    if revision is not None and revision.status != releases.UNINSTALLED:
        place.current = revision.read()
    place.notes += _pending(place)
    return place


def _pending(place: ReleaseLocation) -> list[PlanNote]:
    """Block what another helm works on. A rollback of ours can be continued, also to a revision of plain helm."""
    last = place.history.last
    if last is None or not last.is_pending:
        return []
    if place.is_ours or revision_labels.is_made_by_us(place.history, last):
        return []
    title = f"The release {place.release} is {last.status}: another helm works on it, or was killed"
    return [PlanNote(BLOCK, "pending", title, "Wait for it, or roll it back with `helm rollback`.")]


def installed(place: ReleaseLocation) -> Sequence[Manifest]:
    """Return the objects that the revision in force put into the cluster, without hooks."""
    if place.current is None:
        return ()
    return [Manifest(raw) for raw, _ in rendering.split(place.current.manifest.encode())]
