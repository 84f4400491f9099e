"""Helm and the releases of one cluster, in memory: a double of components.release.work with the same signatures.

It keeps what helm keeps (a history of revisions, of which one may be left pending) and counts what was asked.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from clusters.models import Cluster
from components.helm.errors import HelmTimeout, Stopped
from components.models import Archive
from components.plans.authority import Authority
from components.plans.hits import Blast
from components.plans.prepared import Destroyed, ReplacedObject
from components.release import work
from components.release.work import ObjectDifference, PlanNote, Prepared, ReadinessResult
from profiles.content.cluster import WantedComponent


@dataclass
class Release:
    revisions: list[str] = field(default_factory=list)
    """Versions, oldest first."""
    pending: str = ""
    """pending-install or pending-upgrade: helm was killed at it."""


@dataclass
class Releases:
    requires: dict[str, tuple[str, ...]] = field(default_factory=dict)
    after: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: dict[str, tuple[PlanNote, ...]] = field(default_factory=dict)
    destroys: dict[str, tuple[Destroyed, ...]] = field(default_factory=dict)
    blasts: dict[str, Blast] = field(default_factory=dict)
    authorities: dict[str, Authority] = field(default_factory=dict)
    replaced: dict[str, tuple[ReplacedObject, ...]] = field(default_factory=dict)
    there: dict[str, Release] = field(default_factory=dict)
    not_ready: dict[str, str] = field(default_factory=dict)
    """What is missing, by component."""
    reads: dict[str, list[str]] = field(default_factory=dict)
    """What the next looks find, by component, where two in a row must be `ready`."""
    broken: dict[str, str] = field(default_factory=dict)
    """What failed for good, by component."""
    during: dict[str, Callable[[Callable[[], bool]], None]] = field(default_factory=dict)
    """Called half way through helm's run, with `stop`."""
    peers: dict[str, tuple[WantedComponent, ...]] = field(default_factory=dict)
    """With what the component was prepared last."""
    runs: Counter[tuple[str, str]] = field(default_factory=Counter)
    writes: list[tuple[str, str]] = field(default_factory=list)
    """Each completed change: (component, version now; empty: removed)."""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Releases:
        for name in ("prepare", "carry_out", "check_readiness"):
            monkeypatch.setattr(work, name, getattr(self, name))
        return self

    def version(self, name: str) -> str:
        release = self.there.get(name)
        return release.revisions[-1] if release and release.revisions else ""

    # ── what the engine calls ─────────────────────────────────────────────────────────────────────────────────────
    def prepare(self, cluster: Cluster, wanted: WantedComponent, peers: Sequence[WantedComponent] = ()) -> Prepared:
        self.peers[wanted.name] = tuple(peers)
        release = self.there.get(wanted.name, Release())
        version = wanted.version or "1.0.0"
        is_same = self.version(wanted.name) == version
        planned = "none" if is_same else "upgrade" if release.revisions else "install"
        if wanted.is_gone:
            planned = "remove" if release.revisions else "none"
        about = {"name": "tiny", "version": "1.0.0", "size": 1, "content": b"-", "origin": "uploaded"}
        archive, _ = Archive.objects.get_or_create(sha256="a" * 64, defaults=about)
        return _prepared(
            component=wanted.name,
            release=wanted.name,
            namespace=f"{wanted.name}-system",
            version=version,
            archive=archive.pk,
            values=dict(wanted.values),
            action=planned,
            from_revision=len(release.revisions),
            back_to=len(release.revisions),
            from_version=self.version(wanted.name) if planned == "upgrade" else "",
            authority=self.authorities.get(wanted.name),
            requires=self.requires.get(wanted.name, ()),
            after=self.after.get(wanted.name, ()),
            objects=(_object("created", wanted.name),),
            notes=self.notes.get(wanted.name, ()),
            destroys=self.destroys.get(wanted.name, ()),
            blast=self.blasts.get(wanted.name),
            replaced=self.replaced.get(wanted.name, ()),
        )

    def carry_out(
        self,
        cluster: Cluster,
        prepared: Prepared,
        *,
        direction: str,
        deadline: float,
        stop: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        name = prepared.component
        self.runs[name, direction] += 1
        release = self.there.setdefault(name, Release())
        goal = prepared.version if direction == "forward" else self._before(prepared)
        if self.version(name) == goal and not release.pending:
            return
        tell(f"{name}: from {self.version(name) or 'nothing'} to {goal or 'nothing'}")
        release.pending = "pending-upgrade" if release.revisions else "pending-install"
        if half_way := self.during.get(name):
            half_way(stop)
        if stop():
            raise Stopped("stopped")
        if time.monotonic() > deadline:
            raise HelmTimeout(f"helm was not done with {name} in time")
        release.pending = ""
        if goal:
            release.revisions.append(goal)
        else:
            release.revisions.clear()
        self.writes.append((name, goal))

    def check_readiness(
        self, cluster: Cluster, prepared: Prepared, *, direction: str, seen: int | None = None
    ) -> ReadinessResult:
        name = prepared.component
        if failed := self.broken.get(name):
            return ReadinessResult(is_ready=False, missing="", failed=failed)
        if missing := self.not_ready.get(name):
            return ReadinessResult(is_ready=False, missing=missing, failed="")
        goal = prepared.version if direction == "forward" else self._before(prepared)
        if seen is not None and (reads := self.reads.get(name, [])):
            state = reads.pop(0)
            return ReadinessResult(
                is_ready=state == "ready" and seen > 0, missing=state, is_steady=state == "ready" and not seen
            )
        is_there = self.version(name) == goal and not self.there[name].pending
        return ReadinessResult(
            is_ready=is_there, missing="" if is_there else f"{name} is not {goal or 'gone'}", failed=""
        )

    def _before(self, prepared: Prepared) -> str:
        if not prepared.from_revision:
            return ""
        return self.there[prepared.component].revisions[prepared.from_revision - 1]


def _object(change: str, name: str) -> ObjectDifference:
    return ObjectDifference(
        change=change,
        api_version="apps/v1",
        kind="Deployment",
        namespace=f"{name}-system",
        name=name,
        diff=f"+kind: Deployment\n+name: {name}\n",
        weight=1,
    )


def _prepared(**fields: Any) -> Prepared:
    return Prepared(helm_version="v3.17.3", manifest_digest="sha256:" + "b" * 64, **fields)


def altered(prepared: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Alter the prepared component as an attacker with write access to the database would."""
    return replace(Prepared.from_json(prepared), **fields).to_json()


def wanted(*names: str, **versions: str) -> list[WantedComponent]:
    """`wanted("cert-manager", kueue="1.1.0")`."""
    return [WantedComponent(name) for name in names] + [WantedComponent(n, v) for n, v in versions.items()]
