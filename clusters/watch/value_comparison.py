"""Values of a cluster's rows, held against their objects, a part of the rows at a time.

Names and versions (anti_entropy) say nothing of a row that has the right version and other values: an edit past
Setpoint, a disk, a mistake in a writer, a version of Setpoint that read objects otherwise. A digest kept beside the row
would only say whether the row changed, not whether it was read right, and a list of everything is a gigabyte of pods.
So each row's object is read and parsed as the watch does it: in turns of a bounded number, which memory follows, each
row within a day. One version of an object has one content, so what differs at the same version is a difference; every
other row is the watch's business, or that of the names.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, QuerySet

from clusters.fleet import Fleet, NotFound, ObjectKind
from clusters.inventory import inspection, rows, store, write_lock
from clusters.models import Cluster, GpuPod, Node, NodeTuning, RowCheck
from clusters.watch.streams import Watched, WatchTimings

log = logging.getLogger(__name__)

AT_LEAST = 100
"""Rows of one turn: a cluster of 5,000 nodes is through in four hours, at one call in three seconds for each kind."""
WITHIN_SECONDS = 86_400.0
"""Turns grow where a cluster has so many rows that this would be exceeded."""
NAMED = 10

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _StoredRow:
    pk: int
    version: str
    namespace: str
    name: str
    uid: str
    """Of its node or pod."""
    stored: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _ComparableKind:
    of: Callable[[Cluster], QuerySet[Any]]
    fields: Sequence[str]
    where: tuple[str, str, str]
    """Columns: namespace, name, UID."""
    read: Callable[[Fleet, _StoredRow], Raw]
    parse: Callable[[Raw, _StoredRow], rows.Values | None]


def _nodes(cluster: Cluster) -> QuerySet[Node]:
    return Node.objects.present().filter(cluster=cluster)


def _tunings(cluster: Cluster) -> QuerySet[NodeTuning]:
    return NodeTuning.objects.filter(node__cluster=cluster, node__gone_at=None)


def _pods(cluster: Cluster) -> QuerySet[GpuPod]:
    return GpuPod.every.filter(cluster=cluster)


_KINDS: dict[ObjectKind, _ComparableKind] = {
    "nodes": _ComparableKind(
        _nodes,
        rows.NODE_FIELDS,
        ("uid", "name", "uid"),
        lambda fleet, row: fleet.node(row.name),
        lambda raw, row: rows.node(raw),
    ),
    "nodetunings": _ComparableKind(
        _tunings,
        rows.TUNING_FIELDS,
        ("node__uid", "node__name", "node__uid"),
        lambda fleet, row: fleet.tuning(row.name),
        lambda raw, row: rows.tuning(raw, row.uid),
    ),
    "pods": _ComparableKind(
        _pods,
        rows.POD_FIELDS,
        ("namespace", "name", "uid"),
        lambda fleet, row: fleet.pod(row.namespace, row.name),
        lambda raw, row: rows.gpu_pod(raw, row.stored["devices"]),
    ),
}


class ComparingValues:
    """Comparison of one cluster's rows. Begins at a random row: frequent handovers do not skip the last ones."""

    def __init__(self, watched: Watched, pace: WatchTimings) -> None:
        self.watched, self.pace = watched, pace
        self._after: dict[ObjectKind, int] = {}

    def turn(self, kind: ObjectKind) -> int:
        """The next part of the rows; returns how many were held against their objects. Raises FleetError."""
        cluster, fleet = self.watched.cluster, self.watched.fleet
        some = self._next(kind)
        if not some:
            return 0
        inspection.check_identity(cluster, fleet)
        compared, altered = 0, {}
        for row in some:
            try:
                raw = _KINDS[kind].read(fleet, row)
            except NotFound:
                continue  # deleted meanwhile, or the names will tell
            if not _is_of(kind, raw, row):
                continue
            compared += 1
            if differing := _differing(kind, raw, row):
                altered[row.pk] = (row, raw, differing)
        left = self._mend(kind, altered)
        counts = {"values_compared": compared, "altered": len(altered), "unmended": left}
        more = {name: F(name) + n for name, n in counts.items() if n}
        if more:
            RowCheck.objects.get_or_create(cluster=cluster, kind=kind)
            RowCheck.objects.filter(cluster=cluster, kind=kind).update(**more)
        return compared

    def _next(self, kind: ObjectKind) -> list[_StoredRow]:
        of = _KINDS[kind].of(self.watched.cluster).order_by("pk")
        number = of.count()
        if not number:
            return []
        turns = max(1, int(WITHIN_SECONDS / max(1.0, self.pace.compare)))
        at_once = max(AT_LEAST, math.ceil(number / turns))
        if kind not in self._after:
            pks = list(of.values_list("pk", flat=True)[(by_chance := random.randrange(number)) : by_chance + 1])  # noqa: S311
            self._after[kind] = pks[0] - 1 if pks else 0
        some = _read(kind, of.filter(pk__gt=self._after[kind])[:at_once])
        if len(some) < min(at_once, number):
            first = of.filter(pk__lte=self._after[kind])[: min(at_once, number) - len(some)]
            some += _read(kind, first)
        if some:
            self._after[kind] = some[-1].pk
        return some

    def _mend(self, kind: ObjectKind, altered: Mapping[int, tuple[_StoredRow, Raw, Sequence[str]]]) -> int:
        """Repair rows through the inventory, like all writes: a row without a version is replaced by any. Returns how
        many still differ."""
        if not altered:
            return 0
        cluster = self.watched.cluster
        named = [f"{row.name} ({', '.join(fields)})" for row, _, fields in altered.values()][:NAMED]
        log.warning("rows of %s of %s had other values than their objects: %s", kind, cluster, "; ".join(named))
        with write_lock.of_rows(cluster):
            for pk, (row, _, _) in altered.items():
                _KINDS[kind].of(cluster).filter(pk=pk, resource_version=row.version).update(resource_version="")
        store.OBSERVE[kind](cluster, [raw for _, raw, _ in altered.values()], complete=False)
        now_there = _read(kind, _KINDS[kind].of(cluster).filter(pk__in=list(altered)))
        left = [row.name for row in now_there if _is_still(kind, altered[row.pk][1], row)]
        if left:
            log.error("rows of %s of %s still have other values: %s", kind, cluster, sorted(left)[:NAMED])
        return len(left)


def _read(kind: ObjectKind, of: QuerySet[Any]) -> list[_StoredRow]:
    how = _KINDS[kind]
    stored_rows = of.values_list("pk", "resource_version", *how.where, *how.fields)
    return [
        _StoredRow(pk, version, namespace, name, uid, dict(zip(how.fields, stored, strict=True)))
        for pk, version, namespace, name, uid, *stored in stored_rows
    ]


def _is_of(kind: ObjectKind, raw: Raw, row: _StoredRow) -> bool:
    """Return whether the object is the row's, at the version that the row names."""
    if rows.resource_version(raw) != row.version or not row.version:
        return False
    return kind == "nodetunings" or rows.identity(raw)[0] == row.uid


def _differing(kind: ObjectKind, raw: Raw, row: _StoredRow) -> list[str]:
    """Names of columns. What an agent said before its answer was malformed is kept, and is no difference."""
    values = _KINDS[kind].parse(raw, row)
    if values is None:
        return ["no row"]
    return sorted(name for name, value in values.items() if row.stored[name] != value)


def _is_still(kind: ObjectKind, raw: Raw, row: _StoredRow) -> bool:
    return not row.version or (_is_of(kind, raw, row) and bool(_differing(kind, raw, row)))
