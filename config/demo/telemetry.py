"""The demo's GPUs of the hours before it starts: the simulation's own truth, through the code that keeps real readings.

A reading every quarter of an hour speaks for all of it, which of a simulation is known; a real one speaks for three
minutes at most. No exporter is asked: a day of text for every node would take minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from django.db import transaction

from clusters.models import Cluster
from common.clock import now
from gpus.metrics.samples import SHARED_OUT, DeviceKey, Holder, Metric, Reading, Sample, Xid, XidEvidence
from gpus.storage import devices, rollups
from simfleet.core import SimCluster
from simfleet.machines.boards import GpuState

REMEMBERED = timedelta(hours=31)
"""A day, and the 30 hours that the forecast of a study needs at least; each day more makes the start a fifth longer."""

EVERY = timedelta(minutes=15)
SILENT_FOR = timedelta(minutes=30)


def record(cluster: Cluster, sim: SimCluster) -> None:
    """One reading, now; of a cluster that does not answer, that there is none."""
    reach = EVERY.total_seconds() + 60
    if cluster.reach == Cluster.Reach.UNREACHABLE:
        rollups.lost(cluster.pk, now(), claimed=transaction.atomic, reach=reach)
        return
    rollups.store(cluster.pk, _reading(sim), claimed=transaction.atomic, reach=reach)


def remember(cluster: Cluster, sim: SimCluster) -> None:
    """Store each device as it is now. The last reading before the start, so that the first page already shows GPUs.

    A silent exporter is one that was read until SILENT_FOR ago.
    """
    at = now()
    silent = [gpu for node in sorted(sim.exporters.silent) for gpu in sim.gpus.truth(node)]
    if silent:
        until, since = replace(_of(silent, sim), when=at - SILENT_FOR - EVERY), Reading(at - SILENT_FOR, ())
        for reading in (until, since):
            devices.store(cluster.pk, reading, claimed=transaction.atomic)
    devices.store(cluster.pk, _reading(sim), claimed=transaction.atomic)


def _reading(sim: SimCluster) -> Reading:
    return _of([gpu for stored in sim.store.all("nodes") for gpu in _truths(sim, stored.key[1])], sim)


def _of(gpus: Sequence[GpuState], sim: SimCluster) -> Reading:
    samples = sorted((_sample(gpu, sim) for gpu in gpus), key=lambda sample: sample.device)
    split = {gpu.uuid: gpu for gpu in gpus if gpu.instance}
    boards = tuple(_board(split[uuid], sim) for uuid in sorted(split))
    return Reading(now(), tuple(samples), boards)


def _truths(sim: SimCluster, node: str) -> list[GpuState]:
    return sim.gpus.truth(node) if sim.exporters.answers_on(node) else []


def _sample(gpu: GpuState, sim: SimCluster) -> Sample:
    """Sample one device. An instance has some values of its own; the others, and XIDs, are its board's."""
    xids = (Xid(gpu.xid, 1, XidEvidence.LAST),) if gpu.xid and not gpu.instance else ()
    holders = (Holder(*gpu.pod),) if gpu.pod else ()
    truths = {} if gpu.is_lost else dict(_values(gpu, is_whole=sim.exporters.whole_list))
    values = {name: value for name, value in truths.items() if name in SHARED_OUT} if gpu.instance else truths
    device = DeviceKey(gpu.uuid, gpu.instance)
    return Sample(device, gpu.node, str(gpu.index), gpu.board.name, gpu.profile, "", holders, values, xids)


def _board(gpu: GpuState, sim: SimCluster) -> Sample:
    """A GPU that MIG splits, by any of its instances."""
    xids = (Xid(gpu.xid, 1, XidEvidence.LAST),) if gpu.xid else ()
    truths = {} if gpu.is_lost else dict(_values(gpu, is_whole=sim.exporters.whole_list))
    values = {name: value for name, value in truths.items() if name not in SHARED_OUT | {Metric.BUSY}}
    return Sample(DeviceKey(gpu.uuid), gpu.node, str(gpu.index), gpu.board.name, "", "", (), values, xids)


def _values(gpu: GpuState, *, is_whole: bool) -> Iterator[tuple[Metric, float]]:
    """Yield the values of the exporter's list of counters."""
    yield Metric.BUSY, gpu.busy
    yield Metric.ENGINE, gpu.engine
    yield Metric.TENSOR, gpu.tensor
    yield Metric.MEMORY_BANDWIDTH, gpu.bandwidth
    yield Metric.MEMORY_USED, float(gpu.memory_used)
    yield Metric.MEMORY_FREE, float(gpu.memory_free)
    yield Metric.MEMORY_RESERVED, float(gpu.memory_reserved)
    yield Metric.POWER, gpu.power
    yield Metric.ENERGY, gpu.energy
    yield Metric.TEMPERATURE, float(gpu.temperature)
    yield Metric.MEMORY_TEMPERATURE, float(gpu.memory_temperature)
    yield Metric.SM_CLOCK, gpu.sm_clock
    yield Metric.MEMORY_CLOCK, gpu.board.memory_mhz * 1e6
    yield Metric.ROWS_REMAPPED_UNCORRECTABLE, float(gpu.rows_remapped)
    if is_whole:
        yield Metric.SM, gpu.sm
        yield Metric.THERMAL_THROTTLED, gpu.thermal_throttled
