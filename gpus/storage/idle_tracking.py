"""Pods that hold GPUs and do nothing with them: since when, and what that has come to.

A row lives as long as all of the pod's GPUs do nothing at every reading. It is written when something changes and
every five minutes; in between it grows at the same rate, which `so_far` adds. Time that no reading covers is not
counted, and after an hour of it it is not known whether the pod was idle all along: then it counts again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from gpus.models import IdleHolding
from gpus.storage.accumulator import COVERS_SECONDS, instant
from gpus.storage.node_snapshot import Idle, NodeSnapshot

BRIDGED = timedelta(hours=1)
WRITTEN_EVERY = timedelta(minutes=5)
_FIELDS = (
    "node", "model", "since", "gpus", "share", "gpu_seconds", "watts", "has_xid", "counted_until", "is_seen",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeUpdate:
    """One node at one look."""

    name: str
    seen: NodeSnapshot
    before: float
    """Up to when, in seconds since 1970, its time was accounted for until now."""
    when: datetime
    is_reading: bool
    """Else telemetry told nothing."""
    reach: float
    """Seconds that a reading speaks for."""

    @property
    def passed(self) -> float:
        """Seconds."""
        return self.when.timestamp() - self.before

    @property
    def covered(self) -> float:
        return max(0.0, min(self.passed, self.reach))


def stored(cluster_id: UUID) -> dict[str, list[IdleHolding]]:
    """Return the stored idle holdings by node name."""
    by_node: dict[str, list[IdleHolding]] = defaultdict(list)
    for row in IdleHolding.objects.filter(cluster=cluster_id).order_by("pk"):
        by_node[row.node_name].append(row)
    return by_node


def so_far(row: IdleHolding, read_at: datetime | None) -> float:
    """GPU-seconds up to the last reading. `read_at` is its source's."""
    if not row.is_seen or read_at is None:
        return row.gpu_seconds
    return row.gpu_seconds + row.share * max(0.0, (read_at - row.counted_until).total_seconds())


@dataclass(slots=True)
class Changes:
    """Changes for one group of nodes: judged first, written in the caller's transaction."""

    cluster_id: UUID
    rows: list[IdleHolding] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    def judge(self, turn: NodeUpdate, rows: Iterable[IdleHolding]) -> None:
        """`rows` are the node's."""
        if turn.is_reading and turn.passed < 0:
            return  # late: told already
        idle = {(holding.namespace, holding.pod): holding for holding in turn.seen.idle}
        for row in rows:
            holding = idle.pop((row.namespace, row.pod), None)
            if holding is not None:
                self._go_on(row, holding, turn)
            elif turn.is_reading and turn.seen.look.samples:
                self.gone.append(row.pk)  # it does something, or holds nothing any more
            elif turn.is_reading or turn.passed > COVERS_SECONDS:
                self._lose(row, turn)
        for begun in idle.values():
            row = IdleHolding(cluster_id=self.cluster_id, node_name=turn.name, namespace=begun.namespace, pod=begun.pod)
            row.since, row.gpu_seconds = instant(turn.when.timestamp() - turn.covered), begun.share * turn.covered
            self._describe(row, begun, turn)

    def drop(self, rows: Iterable[IdleHolding]) -> None:
        """The node is gone."""
        self.gone += [row.pk for row in rows]

    def write(self) -> None:
        """Within the caller's transaction."""
        if self.gone:
            IdleHolding.objects.filter(pk__in=self.gone).delete()
        IdleHolding.objects.bulk_create(
            self.rows,
            update_conflicts=True,
            unique_fields=["cluster", "node_name", "namespace", "pod"],
            update_fields=list(_FIELDS),
            batch_size=500,
        )

    def _go_on(self, row: IdleHolding, holding: Idle, turn: NodeUpdate) -> None:
        is_whole = row.is_seen and turn.passed <= turn.reach
        is_same = (row.gpus, row.share, row.has_xid) == (holding.gpus, holding.share, holding.has_xid)
        if is_whole and is_same and turn.when - row.counted_until < WRITTEN_EVERY:
            return
        if not row.is_seen and turn.when - row.counted_until > BRIDGED:
            row.since, row.gpu_seconds = instant(turn.when.timestamp() - turn.covered), 0.0
        elif row.is_seen:
            row.gpu_seconds += row.share * max(0.0, turn.before - row.counted_until.timestamp())
        row.gpu_seconds += holding.share * turn.covered
        self._describe(row, holding, turn)

    def _lose(self, row: IdleHolding, turn: NodeUpdate) -> None:
        if row.is_seen:
            row.gpu_seconds += row.share * max(0.0, turn.before - row.counted_until.timestamp())
            row.is_seen, row.counted_until = False, max(row.counted_until, instant(turn.before))
            self.rows.append(row)
        elif turn.when - row.counted_until > BRIDGED:
            self.gone.append(row.pk)

    def _describe(self, row: IdleHolding, holding: Idle, turn: NodeUpdate) -> None:
        row.node_id = turn.seen.offer.pk if turn.seen.offer else None
        row.model = turn.seen.offer.model if turn.seen.offer else holding.model
        row.gpus, row.share, row.watts, row.has_xid = holding.gpus, holding.share, holding.watts, holding.has_xid
        row.counted_until, row.is_seen = turn.when, True
        self.rows.append(row)
