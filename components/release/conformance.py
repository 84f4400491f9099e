"""Conformance of a component to its approved state: its release, its values, each object of it, and its readiness.

One look, which writes nothing: the dry runs are those of a plan (components.plans.diff), so a difference here is
exactly what a repair would put back. Field managers are the API server's own record. No transaction is open.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

from django.utils.dateparse import parse_datetime

from clusters.connection import registry
from clusters.fleet import FleetError, FleetUnavailable
from clusters.kube import discovery
from clusters.kube.apiserver import ApiServer
from clusters.kube.discovery import ServedApis
from clusters.models import Cluster
from common.errors import Refusal
from common.secret_names import looks_secret
from components.catalog import catalog, values_check
from components.catalog.entry import Component
from components.helm import releases, rendering
from components.helm.errors import HelmError
from components.helm.rendering import Manifest
from components.models import ClusterValues
from components.plans import field_managers
from components.plans.diff import Compared, Comparison, cleaned, covered
from components.plans.impact import DEFINITION
from components.release import brought, definitions, revision_labels
from components.release.component_rendering import SecretMissing, secret_reader
from components.release.location import ReleaseLocation, find
from components.release.readiness import Readiness
from components.values.secrets import masked_text
from profiles.content.cluster import WantedComponent

COMPLIANT, DRIFTED, NOT_READY, MISSING = "compliant", "drifted", "not-ready", "missing"
FOREIGN, UNFINISHED, BEHIND, UNKNOWN = "foreign", "unfinished", "behind", "unknown"
"""unfinished: helm is at work, or ended half way. behind: ours, and other than what is wanted by now."""

SECONDS = 90.0
CHUNK = 40
"""Objects compared before the clock is looked at."""
MOST = 60
"""Differences that are kept; all are counted."""
HIDDEN = "(hidden)"
DELETED = "Kubernetes does not record who deletes; the API server's audit log does."
UNDEFINED = f"With it went every object of its kind. A plan makes the definition again, not those objects. {DELETED}"
TO_COME = "A rollout at work is about to make it."
_ORDER = {"DaemonSet": 0, "Deployment": 1, "StatefulSet": 1, "ConfigMap": 2}


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field of one object that is not as approved; or the object as a whole, where `path` is empty."""

    kind: str
    name: str
    namespace: str = ""
    api_version: str = ""
    path: str = ""
    approved: str | None = None
    """As text; null: nothing was to be there."""
    live: str | None = None
    who: str = ""
    """The field manager that holds it; empty: the API server records none."""
    at: str = ""
    note: str = ""
    is_awaited: bool = False
    """An object that is not there, and that a rollout at work is about to make."""

    @property
    def where(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def sentence(self) -> str:
        if not self.path:
            return f"{self.kind} {self.where} is {'not there yet' if self.is_awaited else 'gone'}"
        now = "is gone" if self.live is None else f"is {_short(self.live)}"
        return f"{self.kind} {self.where}: {self.path} {now}{f', set by {self.who}' if self.who else ''}"

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class Conformity:
    state: str
    sentence: str = ""
    release: str = ""
    namespace: str = ""
    installed: str = ""
    """The chart's version in force; empty: there is none."""
    assigned: str = ""
    number: int = 0
    """helm's newest revision."""
    differences: tuple[FieldDifference, ...] = ()
    total: int = 0
    is_ready: bool | None = None
    missing: str = ""
    """What it lacks to be ready."""
    history: tuple[Mapping[str, Any], ...] = ()
    """helm's revisions, the newest first: number, status, version, at, is_ours, description."""
    kinds: tuple[tuple[str, str], ...] = ()
    """apiVersion and plural of its objects: what is worth watching."""


def _short(text: str) -> str:
    line = text.splitlines()[0] if text else "empty"
    return line if len(line) <= 80 else f"{line[:79]}…"


@catalog.held()
def conform(cluster: Cluster, wanted: WantedComponent) -> Conformity:
    """One look, at most SECONDS and one round of calls long. What cannot be seen is unknown, in words."""
    try:
        component = catalog.get(wanted.name)
        with registry.api_server(cluster) as server:
            return _ConformanceCheck(
                cluster, server, discovery.read(server), component, wanted, time.monotonic() + SECONDS
            ).look()
    except (Refusal, FleetError, HelmError) as error:
        return Conformity(UNKNOWN, f"It could not be checked: {error or type(error).__name__}"[:500])


@dataclass(slots=True)
class _ConformanceCheck:
    cluster: Cluster
    server: ApiServer
    served: ServedApis
    component: Component
    wanted: WantedComponent
    deadline: float
    seen: list[str] = field(default_factory=list)
    """Secrets that were resolved: in no text."""

    def look(self) -> Conformity:
        place = find(self.server, self.component, self.component.chart.chart.rpartition("/")[2])
        last, current = place.history.last, place.current
        if self.wanted.is_gone:
            return _removed(place)
        assigned = self.wanted.version or (current.chart_version if current and place.is_ours else "")
        assigned = assigned or self.component.newest
        base = Conformity(MISSING, release=place.release, namespace=place.namespace, assigned=assigned)
        if last is None or current is None:
            return dataclasses.replace(base, sentence=f"helm has no release {place.release} in {place.namespace}.")
        manifests = [Manifest(raw) for raw, _ in rendering.split(current.manifest.encode())]
        base = dataclasses.replace(
            base,
            installed=current.chart_version,
            number=last.number,
            history=tuple(self._recent_revisions(place)),
            kinds=tuple(sorted({*self._kinds(manifests)})),
        )
        if last.is_pending or current.status != releases.DEPLOYED:
            return dataclasses.replace(base, state=UNFINISHED, sentence=_unfinished(place))
        layered = self._layered(assigned)
        off = [*_version(current.chart_version, assigned), *self._values(layered, current.values, place.namespace)]
        differences, doubts = self._objects(place, manifests)
        readiness = Readiness(self.server, self.served, place.namespace)
        ready = readiness.look(self.component.tests(place.release, layered, place.namespace))
        base = dataclasses.replace(
            base,
            differences=tuple([*off, *differences][:MOST]),
            total=len(off) + len(differences),
            is_ready=ready.is_ready,
            missing=masked_text(ready.missing, self.seen),
        )
        state, sentence = _verdict(place, off, differences, doubts, base)
        return dataclasses.replace(base, state=state, sentence=sentence[:500])

    # ── the release ───────────────────────────────────────────────────────────────────────────────────────────────
    def _layered(self, version: str) -> dict[str, Any]:
        row = ClusterValues.objects.filter(cluster=self.cluster, component=self.component.name).first()
        wanted = self.wanted
        return values_check.layered(
            self.component, version, wanted.presets, wanted.values, row.values if row else {}
        ).values

    def _values(
        self, layered: Mapping[str, Any], installed: Mapping[str, Any], namespace: str
    ) -> Iterator[FieldDifference]:
        """Values by which the release is another than what is wanted by now, without secrets."""
        try:
            given = values_check.resolved(layered, secret_reader(self.server, namespace, self.seen))
        except SecretMissing as error:
            yield FieldDifference(
                "Values", self.component.name, path="$secret", approved=str(error), note="A Secret is gone."
            )
            return
        for path, want, have in field_managers.differing(given, dict(installed)):
            approved, live = self._texts(path, want, have)
            yield FieldDifference(
                "Values", self.component.name, path=field_managers.text(path), approved=approved, live=live
            )

    def _recent_revisions(self, place: ReleaseLocation) -> Iterator[Mapping[str, Any]]:
        for revision in reversed(place.history.revisions[-10:]):
            release = revision.read()
            yield {
                "number": revision.number,
                "status": revision.status,
                "version": release.chart_version,
                "at": _utc(release.updated),
                "is_ours": revision_labels.leads_to_ours(place.history, revision),
                "description": release.description[:200],
            }

    # ── its objects ───────────────────────────────────────────────────────────────────────────────────────────────
    def _kinds(self, manifests: Iterable[Manifest]) -> Iterator[tuple[str, str]]:
        for manifest in manifests:
            if resource := self.served.find(manifest.api_version, manifest.kind):
                yield resource.api_version, resource.plural

    def _objects(
        self, place: ReleaseLocation, manifests: Sequence[Manifest]
    ) -> tuple[list[FieldDifference], list[str]]:
        """Return the differences, and the doubts about what could not be compared. Raises FleetError."""
        assert place.current is not None
        comparison = Comparison(
            server=self.server,
            served=self.served,
            release=place.release,
            namespace=place.namespace,
            is_server_side=place.current.is_server_side,
            is_whole=True,
        )
        differences: list[FieldDifference] = []
        doubts: list[str] = []
        for start in range(0, len(manifests), CHUNK):
            if time.monotonic() > self.deadline:
                raise FleetUnavailable(f"comparing its {len(manifests)} objects took longer than {SECONDS:.0f} s")
            some = manifests[start : start + CHUNK]
            for compared in comparison.compare(some, some):
                if compared.note is not None and compared.note.code == "refused":
                    doubts.append(f"{compared.note.title}: {compared.note.detail}")
                else:
                    differences += self._differences(compared)
        differences += self._definitions(place)
        differences.sort(
            key=lambda difference: (
                bool(difference.path),
                _ORDER.get(difference.kind, 3),
                difference.kind,
                difference.where,
                difference.path,
            )
        )
        return differences, doubts

    def _definitions(self, place: ReleaseLocation) -> Iterator[FieldDifference]:
        """Those of `crds/` that are gone: helm's manifest does not have them."""
        revision = place.history.deployed
        if revision is None or place.current is None:
            return
        for name in sorted(brought.of_revision(self.served, revision, place.current)):
            if not definitions.is_there(self.server, name):
                yield FieldDifference(DEFINITION, name, api_version="apiextensions.k8s.io/v1", note=UNDEFINED)

    def _differences(self, compared: Compared) -> Iterator[FieldDifference]:
        manifest = compared.wanted
        about: dict[str, Any] = {
            "kind": manifest.kind,
            "name": manifest.name,
            "namespace": compared.namespace,
            "api_version": manifest.api_version,
        }
        if compared.live is None:
            yield FieldDifference(**about, note=DELETED)
            return
        approved, live = cleaned(compared.result), cleaned(compared.live)
        if manifest.kind == "Secret":
            approved, live = covered(approved, live)
        for path, want, have in field_managers.differing(approved, live):
            left, right = self._texts(path, want, have)
            who = field_managers.writer(compared.live, path, but="helm") if have is not field_managers.ABSENT else None
            note = _note(compared, path, who)
            writer, at = (str(who), who.at) if who else ("", "")
            yield FieldDifference(
                **about, path=field_managers.text(path), approved=left, live=right, who=writer, at=at, note=note
            )

    def _texts(self, path: field_managers.Path, want: Any, have: Any) -> tuple[str | None, str | None]:
        """Both sides without what is secret: by its place, by what was resolved, or within it."""
        if isinstance(want, str) and want.startswith(HIDDEN[:-1]):
            return field_managers.as_texts(want, have)
        if _is_secret(path, want, have):
            return (None if want is field_managers.ABSENT else HIDDEN), (
                None if have is field_managers.ABSENT else HIDDEN
            )
        left, right = field_managers.as_texts(_masked(want), _masked(have))
        return self._covered(left), self._covered(right)

    def _covered(self, text: str | None) -> str | None:
        return None if text is None else masked_text(text, self.seen)


def _removed(place: ReleaseLocation) -> Conformity:
    """Judge a component that is to be removed: nothing is there to compare."""
    last, current = place.history.last, place.current
    base = Conformity(COMPLIANT, "It is removed, as requested.", release=place.release, namespace=place.namespace)
    if last is None or current is None:
        return base
    there = dataclasses.replace(base, installed=current.chart_version, number=last.number)
    if last.is_pending or current.status != releases.DEPLOYED:
        return dataclasses.replace(there, state=UNFINISHED, sentence=_unfinished(place)[:500])
    if not place.is_ours:
        return dataclasses.replace(there, state=FOREIGN, sentence="Another party installed it; the profile removes it.")
    return dataclasses.replace(
        there, state=BEHIND, sentence="It is installed, and the profile removes it: a plan carries that out."
    )


def _masked(value: Any) -> Any:
    return values_check.masked(value) if isinstance(value, Mapping | list) else value


def _is_secret(path: field_managers.Path, *sides: Any) -> bool:
    text = next((side for side in sides if isinstance(side, str)), "")
    return any(looks_secret(name, text or "x") for name in field_managers.names(path)) and not all(
        isinstance(side, Mapping) for side in sides
    )


def _note(compared: Compared, path: field_managers.Path, who: field_managers.FieldWriter | None) -> str:
    if path == ("spec", "replicas") and (who is None or who.subresource == "scale"):
        return "Scaled: by an autoscaler, or with kubectl scale. A repair sets it back."
    if compared.wanted.kind == "CustomResourceDefinition":
        return "A plan does not put definitions back: a step back can lose what is stored."
    if who and who.manager == "helm":
        return "helm holds it: its values, a hook or `helm upgrade` by hand wrote it."
    return ""


def _version(installed: str, assigned: str) -> Iterator[FieldDifference]:
    if installed != assigned:
        yield FieldDifference("Chart", "version", path="version", approved=assigned, live=installed)


def _utc(updated: str) -> str:
    """helm writes the time zone of the machine that ran it."""
    at = parse_datetime(updated) if updated else None
    return at.astimezone(UTC).isoformat(timespec="seconds") if at else ""


def _unfinished(place: ReleaseLocation) -> str:
    last = place.history.last
    assert last is not None
    release = last.read()
    why = f": {release.description}" if last.status == releases.FAILED and release.description else ""
    since = _utc(release.updated)[:19]
    return f"helm has revision {last.number} of {place.release} as {last.status} since {since} UTC{why}."


def _verdict(
    place: ReleaseLocation,
    off: Sequence[FieldDifference],
    drifted: Sequence[FieldDifference],
    doubts: Sequence[str],
    seen: Conformity,
) -> tuple[str, str]:
    """Return state and sentence: what is wrong comes before what is not known, and that before what is right."""
    if not place.is_ours:
        assigned = f"; {_named(off)} other than assigned" if off else "; version and values are as assigned"
        drift = f", and {drifted[0].sentence}" if drifted else ""
        return FOREIGN, f"Another party made revision {seen.number} of {place.release}{assigned}{drift}."
    if drifted:
        return DRIFTED, first_of(drifted)
    if off:
        return BEHIND, f"What is wanted is another by now: {_named(off)}. A plan would bring it."
    if doubts:
        return UNKNOWN, f"Not all of it could be compared: {doubts[0]}"
    if not seen.is_ready:
        return NOT_READY, seen.missing or "It is not ready."
    return COMPLIANT, ""


def first_of(differences: Sequence[FieldDifference]) -> str:
    more = (
        f", and {len(differences) - 1} more difference{'' if len(differences) == 2 else 's'}"
        if len(differences) > 1
        else ""
    )
    return f"{differences[0].sentence}{more}."[:500]


def _named(off: Sequence[FieldDifference]) -> str:
    shown = ", ".join(difference.path for difference in off[:3])
    more = f" and {len(off) - 3} more" if len(off) > 3 else ""
    return f"{shown}{more} {'is' if len(off) == 1 else 'are'}" if off else ""
