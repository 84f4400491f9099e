"""The demo's GPUs of the day before it starts: the simulation's own truth, through the code that keeps real readings.

A reading every quarter of an hour speaks for all of it, which of a simulation is known; a real one speaks for three
minutes at most. No exporter is asked: a day of text for every node would take minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db import transaction

from clusters.models import Cluster
from common.clock import now
from gpus.metrics.samples import SHARED_OUT, DeviceKey, Holder, Metric, Reading, Sample, Xid, XidEvidence
from gpus.storage import devices, rollups
from simfleet.core import SimCluster
from simfleet.machines.boards import GpuState

REMEMBERED = timedelta(hours=24)
EVERY = timedelta(minutes=15)


def record(cluster: Cluster, sim: SimCluster) -> None:
    """One reading, now; of a cluster that does not answer, that there is none."""
    reach = EVERY.total_seconds() + 60
    if cluster.reach == Cluster.Reach.UNREACHABLE:
        rollups.lost(cluster.pk, now(), claimed=transaction.atomic, reach=reach)
        return
    rollups.store(cluster.pk, _reading(sim), claimed=transaction.atomic, reach=reach)


def remember(cluster: Cluster, sim: SimCluster) -> None:
    """Store each device as it is now. The last reading before the start, so that the first page already shows GPUs."""
    devices.store(cluster.pk, _reading(sim), claimed=transaction.atomic)


def _reading(sim: SimCluster) -> Reading:
    told = [one for stored in sim.store.all("nodes") for one in _truths(sim, stored.key[1])]
    samples = sorted((_sample(one, sim) for one in told), key=lambda sample: sample.device)
    split = {one.uuid: one for one in told if one.instance}
    boards = tuple(_board(split[uuid], sim) for uuid in sorted(split))
    return Reading(now(), tuple(samples), boards)


def _truths(sim: SimCluster, node: str) -> list[GpuState]:
    return sim.gpus.truth(node) if sim.exporters.answers_on(node) else []


def _sample(one: GpuState, sim: SimCluster) -> Sample:
    """Sample one device. An instance has some values of its own; the others, and XIDs, are its board's."""
    xids = (Xid(one.xid, 1, XidEvidence.LAST),) if one.xid and not one.instance else ()
    holders = (Holder(*one.pod),) if one.pod else ()
    found = {} if one.is_lost else dict(_values(one, is_whole=sim.exporters.whole_list))
    values = {name: value for name, value in found.items() if name in SHARED_OUT} if one.instance else found
    device = DeviceKey(one.uuid, one.instance)
    return Sample(device, one.node, str(one.index), one.board.name, one.profile, "", holders, values, xids)


def _board(one: GpuState, sim: SimCluster) -> Sample:
    """A GPU that MIG splits, by any of its instances."""
    xids = (Xid(one.xid, 1, XidEvidence.LAST),) if one.xid else ()
    found = {} if one.is_lost else dict(_values(one, is_whole=sim.exporters.whole_list))
    values = {name: value for name, value in found.items() if name not in SHARED_OUT | {Metric.BUSY}}
    return Sample(DeviceKey(one.uuid), one.node, str(one.index), one.board.name, "", "", (), values, xids)


def _values(one: GpuState, *, is_whole: bool) -> Iterator[tuple[Metric, float]]:
    """Yield the values of the exporter's list of counters."""
    yield Metric.BUSY, one.busy
    yield Metric.ENGINE, one.engine
    yield Metric.TENSOR, one.tensor
    yield Metric.MEMORY_BANDWIDTH, one.bandwidth
    yield Metric.MEMORY_USED, float(one.memory_used)
    yield Metric.MEMORY_FREE, float(one.memory_free)
    yield Metric.MEMORY_RESERVED, float(one.memory_reserved)
    yield Metric.POWER, one.power
    yield Metric.ENERGY, one.energy
    yield Metric.TEMPERATURE, float(one.temperature)
    yield Metric.MEMORY_TEMPERATURE, float(one.memory_temperature)
    yield Metric.SM_CLOCK, one.sm_clock
    yield Metric.MEMORY_CLOCK, one.board.memory_mhz * 1e6
    yield Metric.ROWS_REMAPPED_UNCORRECTABLE, float(one.rows_remapped)
    if is_whole:
        yield Metric.SM, one.sm
        yield Metric.THERMAL_THROTTLED, one.thermal_throttled
