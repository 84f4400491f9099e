"""Conflicts of a component with what a cluster has, or is to have: other releases, and workloads that anyone brought.

The catalog declares them (`conflicts`). A profile that wants both of two components is refused when it is written; here
the cluster is asked, which may have one of them from another pool's target, from another party's helm, or without helm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from clusters import objects
from clusters.fleet import FleetRefused
from clusters.kube import paging
from clusters.kube.apiserver import ApiServer, Call
from clusters.models import Cluster
from common.errors import Refusal
from components.catalog import catalog, layering
from components.catalog.entry import Component, ComponentConflict, WorkloadPattern
from components.helm import releases
from components.helm.releases import Release
from components.models import ClusterValues
from components.plans.prepared import BLOCK, WARN, PlanNote
from components.release.location import ReleaseLocation
from profiles.content.cluster import WantedComponent

CODE = "component-conflict"
_PAGE = 500
_SHOWN = 3
_RUNS = ("desiredNumberScheduled", "numberReady", "replicas")
"""Fields of a workload's status of which one is above zero where it has pods, or is to have them."""


@dataclass
class ConflictCheck:
    """Search of one cluster for what a component conflicts with there."""

    server: ApiServer
    cluster: Cluster
    place: ReleaseLocation
    peers: Sequence[WantedComponent]
    """Everything else that this plan and the targets of the cluster's pools want, or want removed."""

    def notes(
        self, component: Component, given: Mapping[str, Any], defaults: Mapping[str, Any], *, is_kept: bool
    ) -> Iterator[PlanNote]:
        """`is_kept`: it runs as it is wanted, so a conflict is no news. Raises FleetError."""
        values = layering.coalesced(given, defaults)
        for conflict, name in catalog.conflicts_of(component):
            is_own = conflict in component.conflicts
            title = catalog.get(name).title if name else conflict.title
            severity = BLOCK if conflict.is_block and not is_kept else WARN
            try:
                for where in self._places(conflict, name, values, is_own=is_own):
                    yield PlanNote(severity, CODE, f"It conflicts with {title}: {where}", _advice(conflict))
            except FleetRefused as error:
                unseen = f"It conflicts with {title}, and whether that runs cannot be seen"
                yield PlanNote(WARN, CODE, unseen, str(error))

    def _places(
        self, conflict: ComponentConflict, name: str, values: Mapping[str, Any], *, is_own: bool
    ) -> Iterator[str]:
        """Say where the other one is, where nothing settles the conflict."""
        wishes = [peer for peer in self.peers if peer.name == name]
        if any(peer.is_gone for peer in wishes):
            return  # the same plan removes it, before this one comes
        others = [(self._values(peer), "it is wanted in this cluster, too") for peer in wishes[:1]]
        if name and not others:
            chart = catalog.get(name).chart.chart.rpartition("/")[2]
            there = [release for release in self._releases if release.chart == chart]
            others = [(layering.coalesced(release.values, release.defaults), _place(release)) for release in there]
        for theirs, where in others:
            if conflict.applies(values, theirs) if is_own else conflict.applies(theirs, values):
                yield where
        if not others and is_own and conflict.workloads is not None and conflict.applies(values, {}):
            yield from self._workloads(conflict.workloads)

    def _values(self, peer: WantedComponent) -> Mapping[str, Any]:
        row = ClusterValues.objects.filter(cluster=self.cluster, component=peer.name).first()
        try:
            wanted = layering.layered(peer.name, peer.version, peer.presets, peer.values, row.values if row else {})
        except Refusal:
            return {}  # presets that do not exist, or exclude each other: its own plan says so
        return wanted.values

    @cached_property
    def _releases(self) -> list[Release]:
        """Every release of the cluster but the component's own; those that cannot be read are of an unknown chart."""
        readable = []
        for revision in releases.newest(self.server):
            try:
                readable.append(revision.read())
            except releases.BadRecord:
                continue
        own = (self.place.namespace, self.place.release)
        return [release for release in readable if (release.namespace, release.name) != own]

    def _workloads(self, pattern: WorkloadPattern) -> Iterator[str]:
        plural = f"{pattern.kind.lower()}s"
        page = paging.listed(self.server, Call("list", plural), f"/apis/apps/v1/{plural}", limit=_PAGE, keep=_kept)
        running = [raw for raw in page.items if self._is_meant(pattern, raw)]
        if running:
            named = [f"{objects.meta(raw).get('namespace')}/{objects.meta(raw).get('name')}" for raw in running]
            more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
            yield f"the cluster runs the {pattern.kind} {', '.join(named[:_SHOWN])}{more}"

    def _is_meant(self, pattern: WorkloadPattern, raw: Mapping[str, Any]) -> bool:
        meta = objects.meta(raw)
        namespace, name = str(meta.get("namespace")), str(meta.get("name"))
        return pattern.is_about(namespace, name) and _runs(raw) and not self._is_own(meta)

    def _is_own(self, meta: Mapping[str, Any]) -> bool:
        """Tell whether it is of the component's release, or made by its operator: owned by an object, beside it."""
        given = meta.get("annotations") or {}
        of_release = (given.get("meta.helm.sh/release-namespace"), given.get("meta.helm.sh/release-name"))
        is_made = bool(meta.get("ownerReferences")) and meta.get("namespace") == self.place.namespace
        return is_made or of_release == (self.place.namespace, self.place.release)


def _advice(conflict: ComponentConflict) -> str:
    """Return why it is one and what settles it, with what to read about that."""
    reading = "; ".join(f"{source.text} ({source.url})" for source in conflict.sources if source.url)
    return f"{conflict.why} To read: {reading}." if reading else conflict.why


def _place(release: Release) -> str:
    return f"the cluster has its release {release.namespace}/{release.name}"


def _kept(raw: dict[str, Any]) -> dict[str, Any]:
    """Leave out the templates, of which a large cluster has many."""
    return {"metadata": raw.get("metadata") or {}, "status": raw.get("status") or {}}


def _runs(raw: Mapping[str, Any]) -> bool:
    status = raw.get("status") or {}
    return any(status.get(field) for field in _RUNS)
