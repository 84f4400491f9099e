"""Roll-ups: five minutes and hours of each device, state bands, and since when pods hold GPUs idle.

An incomplete step is stored too (`GpuOpen`), so a restart loses nothing. A few groups of nodes are one transaction that
first verifies the claim, and each node records up to when its time is accounted for. So after a crash, a delay or a
repeated delivery, the next reading continues each node from its own position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q

from clusters.models import Pool
from clusters.services import pools
from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Reading
from gpus.models import GpuBand, GpuOpen, GpuPacked, NodeTally
from gpus.storage import accumulator, codec, daily, idle_tracking, node_snapshot, node_use, payers, sharding
from gpus.storage.accumulator import (
    COARSE,
    COVERS_SECONDS,
    FINE,
    Closed,
    ClosedFine,
    ClosedHour,
    OpenNode,
    StepTotals,
    instant,
)
from gpus.storage.node_snapshot import NodeSnapshot

Claimed = Callable[[], AbstractContextManager[None]]
"""Opens a transaction that holds the claim. Raises ClaimLost."""
Band = tuple[str, str]
"""Scope and name."""
_Steps = dict[tuple[int, datetime], list[tuple[Device, Bucket]]]
"""By group and start."""
FORM = 2
"""Of what is open. It is soon over, so what has another form is not read."""
AT_ONCE = 16
"""Groups in one transaction: 4,000 devices, and their cluster's bands are written once for all of them."""
OPEN_LEVEL = 1
"""Of compression: it is written with every reading and soon over."""
SLICE = 1000
Scope = GpuBand.Scope


def store(cluster_id: UUID, reading: Reading, *, claimed: Claimed, reach: float = COVERS_SECONDS) -> None:
    """One that is late, or given twice, changes nothing; `reach` is for how many seconds it speaks at most.

    Raises what `claimed` raises.
    """
    snapshots = node_snapshot.snapshots(cluster_id, reading)
    _tally(cluster_id, snapshots.values(), claimed)
    _advance(cluster_id, snapshots, reading.when, is_reading=True, claimed=claimed, reach=reach)


def lost(cluster_id: UUID, at: datetime, *, claimed: Claimed, reach: float = COVERS_SECONDS) -> None:
    """Setpoint asked and was told nothing: after three minutes, time is unknown. Raises what `claimed` raises."""
    _advance(cluster_id, node_snapshot.snapshots(cluster_id, None), at, is_reading=False, claimed=claimed, reach=reach)


def _tally(cluster_id: UUID, snapshots: Iterable[NodeSnapshot], claimed: Claimed) -> None:
    rows = NodeTally.objects.filter(node__cluster=cluster_id).order_by()
    have = {pk: counts for pk, *counts in rows.values_list("pk", *NodeTally.SEEN)}
    wanted = {
        snapshot.offer.pk: [snapshot.counts[name] for name in NodeTally.SEEN]
        for snapshot in snapshots
        if snapshot.offer
    }
    wanted |= {pk: [0] * len(NodeTally.SEEN) for pk in have if pk not in wanted}
    changed = [
        NodeTally(node_id=pk, **dict(zip(NodeTally.SEEN, counts, strict=True)))
        for pk, counts in sorted(wanted.items())
        if have.get(pk) != counts
    ]
    for first in range(0, len(changed), SLICE):
        with claimed():
            NodeTally.objects.bulk_create(
                changed[first : first + SLICE],
                update_conflicts=True,
                unique_fields=["node"],
                update_fields=list(NodeTally.SEEN),
            )


# ── open steps ────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class _Group:
    number: int
    of: int
    nodes: dict[str, OpenNode] = field(default_factory=dict)
    seen: Sequence[str] = ()
    """Of its nodes, those that this look tells of."""
    closed: list[Closed] = field(default_factory=list)


def _advance(
    cluster_id: UUID,
    snapshots: Mapping[str, NodeSnapshot],
    when: datetime,
    *,
    is_reading: bool,
    claimed: Claimed,
    reach: float,
) -> None:
    at, members = when.timestamp(), _Members(cluster_id)
    idle = idle_tracking.stored(cluster_id)
    for groups in _groups(cluster_id, snapshots, claimed):
        holdings = idle_tracking.Changes(cluster_id)
        for group in groups:
            for name in group.seen:
                seen, node = snapshots[name], group.nodes.get(name)
                turn = idle_tracking.NodeUpdate(name, seen, node.until if node else at, when, is_reading, reach)
                if node is None:
                    node = group.nodes[name] = OpenNode(at)
                    accumulator.remember(node, seen.look.samples, at)
                elif is_reading:
                    group.closed += accumulator.advance(node, name, seen.look, at, reach)
                else:
                    group.closed += accumulator.lose(node, name, seen.look.blind, at, reach)
                holdings.judge(turn, idle.get(name, ()))
            for name in [name for name in group.nodes if name not in snapshots]:
                group.closed += accumulator.leave(group.nodes[name], name, at)
                holdings.drop(idle.get(name, ()))
                if not group.nodes[name].has_something:
                    del group.nodes[name]
        with claimed():
            _save(cluster_id, groups)
            _write(cluster_id, groups, members)
            holdings.write()


def _groups(cluster_id: UUID, snapshots: Mapping[str, NodeSnapshot], claimed: Claimed) -> Iterator[list[_Group]]:
    """A few at a time, as stored; all where the cluster has grown or shrunk too much for as many as there were."""
    rows = GpuOpen.objects.filter(cluster=cluster_id)
    counts = sorted(set(rows.order_by().values_list("of", flat=True)))
    devices = sum(len(seen.look.samples) for seen in snapshots.values())
    of = sharding.count_for(devices, counts[0] if len(counts) == 1 else 0)
    if counts and counts != [of]:
        _regroup(cluster_id, of, claimed)
    names: dict[int, list[str]] = defaultdict(list)
    for name in snapshots:
        names[sharding.number(name, of)].append(name)
    for first in range(0, of, AT_ONCE):
        numbers = range(first, min(of, first + AT_ONCE))
        stored = dict(rows.filter(of=of, shard__in=numbers).values_list("shard", "data"))
        groups = [_Group(number, of, _unpacked(stored.get(number)), names.get(number, ())) for number in numbers]
        if groups := [group for group in groups if group.nodes or group.seen]:
            yield groups


def _unpacked(data: Any) -> dict[str, OpenNode]:
    """Return the open nodes; none if written in another form, so that each node's next reading starts over."""
    stored = codec.unzipped(bytes(data)) if data else {}
    return (
        {name: OpenNode.unpacked(node) for name, node in stored["nodes"].items()} if stored.get("form") == FORM else {}
    )


def _regroup(cluster_id: UUID, of: int, claimed: Claimed) -> None:
    """Regroup the open nodes in one transaction: a node is in one group, or in the other."""
    with claimed():
        groups = [_Group(number, of) for number in range(of)]
        rows = GpuOpen.objects.filter(cluster=cluster_id)
        for data in rows.order_by("of", "shard").values_list("data", flat=True):
            for name, node in _unpacked(data).items():
                nodes = groups[sharding.number(name, of)].nodes
                if name not in nodes or nodes[name].until < node.until:
                    nodes[name] = node
        rows.delete()
        _save(cluster_id, groups)


def _save(cluster_id: UUID, groups: Iterable[_Group]) -> None:
    rows = []
    for group in groups:
        nodes = {name: node.packed() for name, node in group.nodes.items()}
        data = codec.zipped({"form": FORM, "nodes": nodes}, OPEN_LEVEL)
        rows.append(GpuOpen(cluster_id=cluster_id, of=group.of, shard=group.number, data=data))
    GpuOpen.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["cluster", "of", "shard"],
        update_fields=["data"],
        batch_size=100,
    )


# ── steps that are over ───────────────────────────────────────────────────────────────────────────────────────────────
class _Members:
    """Bands that each node counts toward, looked up once a reading and only when a step is over."""

    def __init__(self, cluster_id: UUID) -> None:
        self._cluster_id = cluster_id
        self._pools: dict[str, list[str]] | None = None
        self._models: dict[str, str] = {}

    def bands(self, node: str) -> list[Band]:
        self._look_up()
        bands: list[Band] = [(Scope.CLUSTER, "")]
        bands += [(Scope.POOL, name) for name in (self._pools or {}).get(node, ())]
        if node in self._models:
            bands.append((Scope.MODEL, self._models[node]))
        return bands

    def model(self, node: str) -> str:
        """Empty where the node is not there any more."""
        self._look_up()
        return self._models.get(node, "")

    def _look_up(self) -> None:
        if self._pools is not None:
            return
        self._pools = defaultdict(list)
        for pool in Pool.objects.filter(cluster=self._cluster_id).order_by("name"):
            for name in pools.matching(pool).order_by().values_list("name", flat=True):
                self._pools[name].append(pool.name)
        self._models = node_snapshot.models(self._cluster_id)


def _write(cluster_id: UUID, groups: Sequence[_Group], members: _Members) -> None:
    fine = [step for group in groups for step in group.closed if isinstance(step, ClosedFine)]
    hours = [step for group in groups for step in group.closed if isinstance(step, ClosedHour)]
    if fine:
        _pack(cluster_id, groups)
        _bands(cluster_id, fine, members)
        daily.add(cluster_id, fine, members.model)
        node_use.add(cluster_id, fine)
    if hours:
        _node_hours(cluster_id, hours)
    for start in sorted({hour.start for hour in hours}):
        over = [group for group in groups if any(isinstance(c, ClosedHour) and c.start == start for c in group.closed)]
        _fold(cluster_id, over, instant(start))


def _pack(cluster_id: UUID, groups: Sequence[_Group]) -> None:
    """Pack the closed steps; where groups were rebuilt meanwhile, some nodes' step may be stored before others'."""
    steps: _Steps = defaultdict(list)
    for group in groups:
        for step in group.closed:
            if isinstance(step, ClosedFine):
                steps[group.number, instant(step.start)] += step.devices
    of, numbers, starts = groups[0].of, {number for number, _ in steps}, {start for _, start in steps}
    rows = GpuPacked.objects.filter(cluster=cluster_id, seconds=FINE, start__in=starts, of=of, shard__in=numbers)
    for number, start, data in rows.values_list("shard", "start", "data"):
        if (number, start) in steps:
            new = {device for device, _ in steps[number, start]}
            steps[number, start] += [pair for pair in codec.unpack(bytes(data), start) if pair[0] not in new]
    _put(cluster_id, of, FINE, steps)


def _fold(cluster_id: UUID, groups: Sequence[_Group], hour: datetime) -> None:
    """Fold an hour from all its five-minute steps whenever one of its nodes completes it. The last time it is whole.

    Groups are folded one after another: twelve times one group's devices are in memory.
    """
    ends = hour + timedelta(seconds=COARSE)
    rows = GpuPacked.objects.filter(cluster=cluster_id, seconds=FINE, start__gte=hour, start__lt=ends).order_by("start")
    for group in groups:
        fives: dict[Device, list[Bucket]] = defaultdict(list)
        mine = rows.filter(Q(of=group.of, shard=group.number) | ~Q(of=group.of))
        for of, start, data in mine.values_list("of", "start", "data"):
            for device, bucket in codec.unpack(bytes(data), start):
                if of == group.of or sharding.number(device.node_name, group.of) == group.number:
                    fives[device].append(bucket)
        folded = [(device, accumulator.fold(buckets, hour)) for device, buckets in fives.items()]
        _put(cluster_id, group.of, COARSE, {(group.number, hour): folded})


def _put(cluster_id: UUID, of: int, seconds: int, steps: _Steps) -> None:
    rows = [
        GpuPacked(cluster_id=cluster_id, seconds=seconds, start=start, of=of, shard=number, data=codec.pack(devices))
        for (number, start), devices in sorted(steps.items())
        if devices
    ]
    GpuPacked.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["cluster", "seconds", "start", "of", "shard"],
        update_fields=["data"],
        batch_size=100,
    )


def _bands(cluster_id: UUID, fine: Sequence[ClosedFine], members: _Members) -> None:
    """This group's part of the cluster's steps. `recorded` is the longest of any node's, whichever group it is in."""
    new: dict[tuple[Band, float], StepTotals] = {}
    for step in fine:
        parts: list[tuple[Band, StepTotals]] = [(band, step.amounts) for band in members.bands(step.node)]
        parts += [((Scope.NAMESPACE, payers.namespace(key)), amounts) for key, amounts in step.payers.items()]
        for band, amounts in parts:
            into = new.setdefault((band, step.start), StepTotals.none())
            longest = max(into.recorded, step.amounts.recorded)
            into.add(amounts)
            into.recorded = longest
    fives, hours = _stored(cluster_id, FINE, new), _stored(cluster_id, COARSE, new)
    for (band, start), amounts in new.items():
        into = fives.setdefault((band, start), StepTotals.none())
        longest = max(into.recorded, amounts.recorded)
        more, amounts.recorded = longest - into.recorded, 0.0
        into.add(amounts)
        into.recorded = longest
        hour = hours.setdefault((band, start // COARSE * COARSE), StepTotals.none())
        hour.add(amounts)
        hour.recorded += more
    _put_bands(cluster_id, FINE, {key: amounts for key, amounts in fives.items() if key in new})
    _put_bands(cluster_id, COARSE, hours)


def _stored(
    cluster_id: UUID, seconds: int, wanted: Iterable[tuple[Band, float]]
) -> dict[tuple[Band, float], StepTotals]:
    starts = {instant(start // seconds * seconds) for _, start in wanted}
    rows = GpuBand.objects.filter(cluster=cluster_id, seconds=seconds, start__in=starts).exclude(scope=Scope.NODE)
    columns = ("scope", "name", "start", "recorded", "joules", *GpuBand.STATES)
    return {
        ((scope, name), start.timestamp()): StepTotals(states, joules, recorded)
        for scope, name, start, recorded, joules, *states in rows.order_by().values_list(*columns)
    }


def _node_hours(cluster_id: UUID, hours: Sequence[ClosedHour]) -> None:
    _put_bands(cluster_id, COARSE, {((Scope.NODE, hour.node), hour.start): hour.amounts for hour in hours})


def _put_bands(cluster_id: UUID, seconds: int, totals: Mapping[tuple[Band, float], StepTotals]) -> None:
    rows = [
        GpuBand(
            cluster_id=cluster_id,
            scope=scope,
            name=name,
            seconds=seconds,
            start=instant(start),
            recorded=amounts.recorded,
            joules=amounts.joules,
            **dict(zip(GpuBand.STATES, amounts.states, strict=False)),
        )
        for ((scope, name), start), amounts in sorted(totals.items())
        if amounts.recorded
    ]
    GpuBand.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["cluster", "scope", "name", "seconds", "start"],
        update_fields=["recorded", "joules", *GpuBand.STATES],
        batch_size=SLICE,
    )
