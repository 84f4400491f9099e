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
from gpus import rollups
from gpus.samples import DeviceKey, Holder, Metric, Reading, Sample, Xid, XidEvidence
from simfleet.core import SimCluster
from simfleet.gpus import Truth

REMEMBERED = timedelta(hours=24)
EVERY = timedelta(minutes=15)


def record(cluster: Cluster, sim: SimCluster) -> None:
    """One reading, now; of a cluster that does not answer, that there is none."""
    reach = EVERY.total_seconds() + 60
    if cluster.reach == Cluster.Reach.UNREACHABLE:
        rollups.lost(cluster.pk, now(), claimed=transaction.atomic, reach=reach)
        return
    samples = tuple(sorted(_samples(sim), key=lambda sample: sample.device))
    rollups.store(cluster.pk, Reading(now(), samples), claimed=transaction.atomic, reach=reach)


def _samples(sim: SimCluster) -> Iterator[Sample]:
    for stored in sim.store.all("nodes"):
        if sim.exporters.answers_on(node := stored.key[1]):
            yield from (_sample(one, is_whole=sim.exporters.whole_list) for one in sim.gpus.truth(node))


def _sample(one: Truth, *, is_whole: bool) -> Sample:
    xids = (Xid(one.xid, 1, XidEvidence.LAST),) if one.xid else ()
    holders = (Holder(*one.pod),) if one.pod else ()
    values = {} if one.is_lost else dict(_values(one, is_whole=is_whole))
    return Sample(DeviceKey(one.uuid), one.node, str(one.index), one.board.name, "", "", holders, values, xids)


def _values(one: Truth, *, is_whole: bool) -> Iterator[tuple[Metric, float]]:
    """What the exporter's list of counters has."""
    yield Metric.BUSY, one.busy
    yield Metric.ENGINE, one.engine
    yield Metric.TENSOR, one.tensor
    yield Metric.MEMORY_BANDWIDTH, one.bandwidth
    yield Metric.MEMORY_USED, float(one.memory_used)
    yield Metric.MEMORY_FREE, float(one.board.memory - one.memory_used - one.memory_reserved)
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
