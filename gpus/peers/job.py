"""Each hour, how the nodes of a cluster kept pace with their peers over the last day: looked at, and stored.

Only the hours of GPUs that the history has are read, one hour at a time. A row of the database says up to when a
cluster was looked at; a look that is killed costs its lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from clusters.models import Cluster, Node
from common.clock import now
from gpus.metrics.buckets import Bucket, Device
from gpus.models import NodePace, PaceLook
from gpus.peers import comparison, roles
from gpus.peers.comparison import PeerComparison
from gpus.storage import history

HOURS = 24
LATE = timedelta(minutes=10)
"""After an hour's end until it is written: readings come every half a minute, and a late one may take minutes."""
CLAIM = timedelta(minutes=5)
"""Made again with each hour that is read and each part that is written."""
AT_ONCE = 20
SLICE = 500
FIELDS = [
    "cluster", "verdict", "model", "in_common", "work", "role", "pod_gpus", "hours", "peers", "signal", "gap", "since",
    "signals", "until", "looked_at",
]  # fmt: skip


class ClaimLost(Exception):
    """Another worker looks at this cluster by now."""


def reconcile() -> None:
    """Each cluster whose nodes offer GPUs has a row; one query where they all do."""
    missing = Cluster.objects.filter(pace_look=None, nodes__gone_at=None, nodes__gpu_count__gt=0).distinct()
    if new := [PaceLook(cluster_id=pk) for pk in missing.values_list("pk", flat=True)]:
        PaceLook.objects.bulk_create(new, ignore_conflicts=True)  # another worker may be faster


def due() -> list[UUID]:
    rows = PaceLook.objects.filter(_due(now())).order_by("until", "pk")
    return list(rows.values_list("pk", flat=True)[:AT_ONCE])


def _due(at: datetime) -> Q:
    free = Q(claimed_until=None) | Q(claimed_until__lt=at)
    return free & (Q(until=None) | Q(until__lt=_last_hour(at)))


def _last_hour(at: datetime) -> datetime:
    """The end of the last hour that is over and written."""
    return (at - LATE).astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def compare(pk: UUID) -> bool:
    """Compare one cluster's nodes if that is due and unclaimed. A repeated delivery rewrites the same rows at most."""
    end, claim = _last_hour(now()), _Claim(pk)
    if not claim.take():
        return False
    try:
        day = _day(pk, end, claim)
        columns = ("pk", "name")
        nodes = Node.objects.present().filter(cluster=pk, gpu_count__gt=0).order_by("pk").values_list(*columns)
        _store(pk, [_row(pk, node, day.pace(name), end) for node, name in nodes], claim)
        claim.finish(end)
    except ClaimLost:
        return False
    return True


def _day(pk: UUID, end: datetime, claim: _Claim) -> comparison.Day:
    day = comparison.Day(roles.Roles(pk, end - timedelta(hours=HOURS)).of)
    for back in range(HOURS, 0, -1):
        start = end - timedelta(hours=back)
        by_device = history.hours(pk, start, start + timedelta(hours=1))
        day.add(start, _once(by_device.items()))
        claim.renew()
    return day


def _once(by_device: Iterable[tuple[Device, Sequence[Bucket]]]) -> Iterable[tuple[Device, Bucket]]:
    """Yield each device once an hour: it may appear twice where its cluster's groups were rebuilt within the hour."""
    for device, buckets in by_device:
        yield device, max(buckets, key=lambda bucket: bucket.covered)


def _row(cluster_id: UUID, node_id: int, compared: PeerComparison, end: datetime) -> NodePace:
    verdicts, worst = NodePace.Verdict, compared.worst
    verdict = verdicts.SLOWER if compared.is_slower else verdicts.LEVEL if compared.is_compared else verdicts.FEW
    return NodePace(
        node_id=node_id, cluster_id=cluster_id, verdict=verdict, model=compared.model[:120],
        in_common=compared.in_common, work=compared.work[:253], role=compared.role, pod_gpus=compared.pod_gpus,
        hours=compared.hours, peers=compared.peers,
        signal=worst.signal if worst else "", gap=worst.to_json()["gap"] if worst else None,
        since=worst.since if worst else None,
        signals=[reading.to_json() for reading in compared.readings], until=end, looked_at=now(),
    )  # fmt: skip


def _store(pk: UUID, rows: Sequence[NodePace], claim: _Claim) -> None:
    for first in range(0, len(rows), SLICE):
        part = rows[first : first + SLICE]
        with transaction.atomic():
            claim.renew()
            # a node that was deleted since it was read would end the whole part
            there = set(Node.objects.filter(pk__in=[row.node_id for row in part]).values_list("pk", flat=True))
            NodePace.objects.bulk_create(
                [row for row in part if row.node_id in there],
                update_conflicts=True,
                unique_fields=["node"],
                update_fields=FIELDS,
            )
    if rows:
        end = rows[0].until
        NodePace.objects.filter(cluster=pk, until__lt=end).delete()  # nodes that are gone, or offer no GPU any more
    else:
        NodePace.objects.filter(cluster=pk).delete()


class _Claim:
    """A lease in the cluster's row."""

    def __init__(self, pk: UUID) -> None:
        self.pk = pk
        self.until: datetime | None = None

    def take(self) -> bool:
        return self._set(PaceLook.objects.filter(_due(now()), pk=self.pk), claimed_until=now() + CLAIM)

    def renew(self) -> None:
        """Raises ClaimLost."""
        if not self._set(self._mine(), claimed_until=now() + CLAIM):
            raise ClaimLost

    def finish(self, end: datetime) -> None:
        self._set(self._mine(), claimed_until=None, until=end)

    def _mine(self) -> Any:
        return PaceLook.objects.filter(pk=self.pk, claimed_until=self.until)

    def _set(self, rows: Any, **fields: Any) -> bool:
        if not rows.update(**fields):
            return False
        self.until = fields["claimed_until"]
        return True
