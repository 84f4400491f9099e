"""Names and versions of a cluster's objects, held against its rows every few minutes: what differs is mended, counted.

The watch keeps rows true, and this finds out where it does not. It belongs to the process that holds the cluster's
lease, asks for metadata alone, and takes nothing for a difference that the watch may only be about to write: what
differs is looked at again after a moment, and what was heard since the list was read is no difference at all. It has no
way of its own to write rows: what it reads goes through the inventory, and its judgment of what may replace what.

Values are compared besides, a part of the rows after each comparison of a kind's names (comparing_values).
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, QuerySet

from clusters import objects
from clusters.fleet import Keep, NotFound, ObjectKind, Page
from clusters.inventory import inspection, rows, store, write_lock
from clusters.inventory.versions import Observation, Recorded
from clusters.models import Cluster, GpuPod, Node, RowCheck
from clusters.watch.streams import KINDS, Watched, WatchTimings
from clusters.watch.value_comparison import ComparingValues
from common.clock import now

log = logging.getLogger(__name__)

ONE_BY_ONE = 100
"""Up to so many objects are read each by itself; where more differ, all of the kind are listed."""
NAMED = 10
"""Objects that the log names."""

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ComparedRow:
    namespace: str
    name: str
    uid: str
    recorded: Recorded | None
    """None: a node that has no NodeTuning."""


@dataclass(frozen=True, slots=True)
class NameComparison:
    """One list of names, and what differed from it."""

    kind: ObjectKind
    observation: Observation
    heads: Mapping[str, Raw]
    """By key, of what differed."""
    found: Mapping[str, str]
    """Kind of difference (RowCheck.COUNTED) by key."""


def differences(
    versions: Mapping[str, str], recorded: Mapping[str, Recorded], observation: Observation
) -> dict[str, str]:
    """Kind of difference by key, between a complete list and rows that were read after it."""
    by_key = {}
    for key, version in versions.items():
        row = recorded.get(key)
        if row is None:
            by_key[key] = "missing"
        elif rows.is_older(row.version, version):
            by_key[key] = "behind"
        elif row.version != version and observation.knows(row):
            by_key[key] = "misread"
    return by_key | {key: "orphaned" for key, row in recorded.items() if key not in versions and observation.knows(row)}


class AntiEntropy:
    """Anti-entropy of one cluster.

    `turn` is called every few seconds, by one thread at a time, and does at most one thing.
    """

    def __init__(self, watched: Watched, pace: WatchTimings) -> None:
        self.watched, self.pace = watched, pace
        self._due = {kind: time.monotonic() + pace.compare * random.uniform(0.3, 1) for kind in KINDS}  # noqa: S311
        self._values = ComparingValues(watched, pace)
        self._values_of: ObjectKind | None = None
        """Kind whose names were compared last: its values' turn is next."""
        self._comparison: NameComparison | None = None
        self._again_at = 0.0
        self._rowless: dict[str, str] = {}
        """NodeTunings that have no row though their node has, by name, and their versions: a predecessor's."""

    def turn(self) -> None:
        """Raises FleetError."""
        at = time.monotonic()
        if self._comparison is not None:
            if at >= self._again_at:
                comparison, self._comparison = self._comparison, None
                self.settle(comparison)
            return
        if (of := self._values_of) is not None:
            self._values_of = None
            if self._is_followed(of):
                self._values.turn(of)
            return
        due = [kind for kind in KINDS if self._due[kind] <= at and self._is_followed(kind)]
        if due:
            kind = min(due, key=self._due.__getitem__)
            self._due[kind] = at + self.pace.compare * random.uniform(0.9, 1.1)  # noqa: S311
            self._values_of = kind
            self._comparison, self._again_at = self.compare_names(kind), time.monotonic() + self.pace.settle

    def _is_followed(self, kind: ObjectKind) -> bool:
        """Return whether a kind is followed: if its watch failed, or is about to list, rows are known to be behind."""
        return kind in self.watched.proved and kind not in self.watched.failed and kind not in self.watched.relist

    def compare_names(self, kind: ObjectKind) -> NameComparison | None:
        """Compare for the first time. None where nothing differs."""
        cluster, fleet, at = self.watched.cluster, self.watched.fleet, now()
        inspection.check_identity(cluster, fleet)
        page = fleet.heads(kind, keep=self._pods_with_rows() if kind == "pods" else None)
        observation = Observation(at, complete=True, version=page.resource_version)
        heads = {_key(kind, raw): raw for raw in page.items}
        heads.pop("", None)
        there = {key: row for key, row in _rows(cluster, kind, None).items() if key not in page.left_out}
        differing = self._compare(kind, heads, there, observation)
        if not differing:
            _count(cluster, kind, {}, 0)
            return None
        return NameComparison(kind, observation, {key: heads[key] for key in differing if key in heads}, differing)

    def _pods_with_rows(self) -> Keep:
        """Leave out pods that have no row and need none: they are nineteen in twenty.

        One that is given a row while the list is read is no difference, and is compared the next time.
        """
        having = set(GpuPod.every.filter(cluster=self.watched.cluster).values_list("uid", flat=True))
        rowless = self.watched.rowless

        def keep(head: dict[str, Any]) -> dict[str, Any] | None:
            uid = objects.uid(head)
            return head if uid in having or uid not in rowless else None

        return keep

    def _compare(
        self, kind: ObjectKind, heads: Mapping[str, Raw], there: Mapping[str, ComparedRow], observation: Observation
    ) -> dict[str, str]:
        versions = {
            key: rows.resource_version(raw) for key, raw in heads.items() if self._has_row(kind, key, raw, there)
        }
        return differences(versions, {key: row.recorded for key, row in there.items() if row.recorded}, observation)

    def _has_row(self, kind: ObjectKind, key: str, raw: Raw, there: Mapping[str, ComparedRow]) -> bool:
        """Return whether the object should have a row, as far as its metadata tell."""
        if kind == "pods":
            return key in there or key not in self.watched.rowless
        if kind == "nodetunings":
            return key in there and self._rowless.get(key) != rows.resource_version(raw)
        return True

    def settle(self, comparison: NameComparison) -> None:
        """Compare what differed again, with the rows as they are now; mend what differs still. Raises FleetError."""
        differing = self._still(comparison)
        if not differing or not self._is_followed(comparison.kind):
            _count(self.watched.cluster, comparison.kind, {}, 0)
            return
        inspection.check_identity(self.watched.cluster, self.watched.fleet)
        left: Collection[str] = differing
        if len(differing) <= ONE_BY_ONE and "misread" not in differing.values():
            needless = self._read_each(comparison, differing)
            differing = _without_needless(differing, needless)
            left = _without_needless(self._still(comparison), needless).keys() & differing.keys()
        if left:
            needless = self._read_all(comparison.kind, differing.keys() & comparison.heads.keys())
            differing = _without_needless(differing, needless)
            left = _without_needless(self._still(comparison), needless).keys() & differing.keys()
        self._tell(comparison, differing, left)

    def _still(self, comparison: NameComparison) -> dict[str, str]:
        cluster, keys = self.watched.cluster, list(comparison.found)
        there = _rows(cluster, comparison.kind, keys)
        differing = self._compare(comparison.kind, comparison.heads, there, comparison.observation)
        missing = {_tomb(comparison.kind, key, there): key for key, what in differing.items() if what == "missing"}
        for tomb, buried in _buried(cluster, comparison.kind, missing).items():
            if not comparison.observation.knows(buried):
                del differing[missing[tomb]]  # deleted since the list was read, and heard
        return differing

    def _read_each(self, comparison: NameComparison, differing: Mapping[str, str]) -> set[str]:
        """Returns what turned out to need no row, or to be there no more."""
        seen: list[Raw] = []
        dead: list[Raw] = []
        needless: set[str] = set()
        there = _rows(self.watched.cluster, comparison.kind, list(differing))
        read = self._reader(comparison.kind)
        for key, difference in differing.items():
            head = comparison.heads[key]["metadata"] if key in comparison.heads else {}
            row = there.get(key)
            namespace = str(head.get("namespace", "")) or (row.namespace if row else "")
            name, uid = (row.name, row.uid) if row else (rows.identity({"metadata": head})[1], key)
            try:
                raw = read(namespace, name)
            except NotFound:
                dead.append({"metadata": {"name": name, "uid": uid}})
                if difference != "orphaned":
                    needless.add(key)  # deleted meanwhile
                continue
            seen.append(raw)
            if comparison.kind != "nodetunings" and rows.identity(raw)[0] != key:
                dead.append({"metadata": {"name": name, "uid": uid}})
                if difference != "orphaned":
                    needless.add(key)  # deleted meanwhile, and made again under its name
            elif self._is_rowless(comparison.kind, key, raw, there):
                needless.add(key)
        store.OBSERVE[comparison.kind](self.watched.cluster, seen, complete=False, deleted=dead)
        return needless

    def _reader(self, kind: ObjectKind) -> Callable[[str, str], Raw]:
        fleet = self.watched.fleet
        if kind == "pods":
            return fleet.pod
        read = fleet.node if kind == "nodes" else fleet.tuning
        return lambda _, name: read(name)

    def _read_all(self, kind: ObjectKind, listed: Set[str]) -> set[str]:
        """Returns what turned out to need no row, or, of what was listed before, to be there no more."""
        cluster, at = self.watched.cluster, now()
        page: Page = self.watched.fleet.list(kind, fresh=True, keep=store.KEEP.get(kind))
        store.OBSERVE[kind](cluster, page.items, complete=True, at=at, version=page.resource_version)
        there = _rows(cluster, kind, None)
        self.watched.rowless.update(page.left_out - there.keys())
        needless = {key for raw in page.items if self._is_rowless(kind, key := _key(kind, raw), raw, there)}
        return needless | (listed - {_key(kind, raw) for raw in page.items})

    def _is_rowless(self, kind: ObjectKind, key: str, raw: Raw, there: Mapping[str, ComparedRow]) -> bool:
        """Return whether the whole object shows that it needs no row; remembers that."""
        if kind == "pods" and rows.gpu_pod(raw) is None:
            self.watched.rowless.add(key)
            return True
        if kind == "nodetunings" and key in there and rows.tuning(raw, there[key].uid) is None:
            self._rowless[key] = rows.resource_version(raw)
            return True
        return False

    def _tell(self, comparison: NameComparison, differing: Mapping[str, str], left: Collection[str]) -> None:
        cluster, counts = self.watched.cluster, Counter(differing.values())
        _count(cluster, comparison.kind, counts, len(left))
        if differing:
            some = sorted(differing)[:NAMED]
            what = ", ".join(f"{n} {difference}" for difference, n in sorted(counts.items()))
            log.warning("rows of %s of %s differed and were read anew: %s (%s)", comparison.kind, cluster, what, some)
        if left:
            log.error("rows of %s of %s still differ: %s", comparison.kind, cluster, sorted(left)[:NAMED])


def _without_needless(differing: Mapping[str, str], needless: Set[str]) -> dict[str, str]:
    """Leave out what lacks a row and needs none. Where there is a row, it is a difference that a person is told of."""
    return {key: what for key, what in differing.items() if what != "missing" or key not in needless}


def _key(kind: ObjectKind, raw: Raw) -> str:
    """Return the key of its row: the UID of nodes and pods, the name of NodeTunings."""
    uid, name = rows.identity(raw)
    return name if kind == "nodetunings" else uid


def _tomb(kind: ObjectKind, key: str, there: Mapping[str, ComparedRow]) -> str:
    return there[key].uid if kind == "nodetunings" and key in there else key


def _buried(cluster: Cluster, kind: ObjectKind, tombs: Collection[str]) -> dict[str, Recorded]:
    """Deletions that were heard of these."""
    buried = write_lock.buried(cluster, kind, tombs)
    if kind == "nodes":
        for some in write_lock.chunks(sorted(tombs)):
            gone = Node.objects.filter(cluster=cluster, uid__in=some).exclude(gone_at=None)
            for uid, version, at in gone.values_list("uid", "resource_version", "versioned_at"):
                buried[uid] = Recorded(version, at)
    return buried


def _rows(cluster: Cluster, kind: ObjectKind, keys: Collection[str] | None) -> dict[str, ComparedRow]:
    """Return rows by key; for NodeTunings, those of all nodes that could have one."""
    if kind == "pods":
        of: QuerySet[Any] = GpuPod.every.filter(cluster=cluster)
        columns, by = ("uid", "namespace", "name", "resource_version", "versioned_at"), "uid"
    else:
        of = Node.objects.present().filter(cluster=cluster)
        prefix, by = ("tuning__", "name") if kind == "nodetunings" else ("", "uid")
        columns = (by, "uid", "name", f"{prefix}resource_version", f"{prefix}versioned_at")
    parts = [of] if keys is None else [of.filter(**{f"{by}__in": chunk}) for chunk in write_lock.chunks(sorted(keys))]
    by_key: dict[str, ComparedRow] = {}
    for part in parts:
        for key, second, name, version, at in part.values_list(*columns):
            recorded = Recorded(version, at) if isinstance(at, datetime) else None
            by_key[key] = (
                ComparedRow(second, name, key, recorded) if kind == "pods" else ComparedRow("", name, second, recorded)
            )
    return by_key


def _count(cluster: Cluster, kind: ObjectKind, counts: Mapping[str, int], left: int) -> None:
    RowCheck.objects.get_or_create(cluster=cluster, kind=kind)
    more = {name: F(name) + n for name, n in counts.items() if n}
    RowCheck.objects.filter(cluster=cluster, kind=kind).update(
        checked_at=now(), checks=F("checks") + 1, unmended=F("unmended") + left, **more
    )
