"""A reading into rows: one for each device, rewritten only where it changed enough to matter.

In slices, each a transaction of its own that first makes sure that this reading is still the one: a worker whose claim
was lost writes nothing over what the next one reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from clusters.models import Node
from gpus.models import GpuDevice
from gpus.samples import Metric, Reading, Sample

T = TypeVar("T")
Claimed = Callable[[], AbstractContextManager[None]]
"""Opens a transaction that holds the claim. Raises ClaimLost."""

SLICE = 1000
"""Rows a transaction: a second of SQLite's only writer."""
REFRESH_AFTER = timedelta(minutes=5)
"""Also what changes too little is written so often."""
FORGET_AFTER = timedelta(days=30)
"""A GPU that was not seen for so long was taken out."""
_RATIO, _BYTES = 0.01, 64 * 1024.0 * 1024.0
PASSES: Mapping[Metric, float] = {
    **dict.fromkeys((Metric.BUSY, Metric.ENGINE, Metric.SM, Metric.OCCUPANCY, Metric.TENSOR), _RATIO),
    **dict.fromkeys((Metric.MEMORY_BANDWIDTH, Metric.MEMORY_COPY), _RATIO),
    **dict.fromkeys((Metric.MEMORY_USED, Metric.MEMORY_FREE, Metric.MEMORY_RESERVED), _BYTES),
    Metric.POWER: 5.0,
    Metric.ENERGY: 10_000.0,
    Metric.TEMPERATURE: 1.0,
    Metric.MEMORY_TEMPERATURE: 1.0,
    Metric.SM_CLOCK: 30e6,
    Metric.MEMORY_CLOCK: 30e6,
    Metric.POWER_THROTTLED: 0.1,
    Metric.THERMAL_THROTTLED: 0.1,
}
"""A change of no more than this, in the metric's unit, makes no row worth writing. Of the others, any change does."""
_SAID = (
    "is_board", "node_name", "node_id", "index", "model", "profile", "driver", "holders", "xids", "clock_events",
    "is_suspect",
)  # fmt: skip
_FIELDS = (*_SAID, "values", "held_since", "seen_at", "missing_since")


class Before(NamedTuple):
    """A stored row, as far as it decides whether to write."""

    pk: int
    fields: dict[str, Any]
    values: dict[str, float]
    held_since: datetime | None
    seen_at: datetime
    missing_since: datetime | None


def store(cluster_id: UUID, reading: Reading, *, claimed: Claimed) -> int:
    """Returns how many devices were written. Raises what `claimed` raises."""
    nodes = dict(Node.objects.present().filter(cluster=cluster_id).values_list("name", "pk"))
    have = _stored(cluster_id)
    rows: list[GpuDevice] = []
    for sample, is_board in _devices(reading):
        key = (sample.device.uuid, sample.device.instance)
        row = _row(cluster_id, sample, is_board, nodes, reading.when)
        if _is_worth_writing(row, have.pop(key, None)):
            rows.append(row)
    for part in _slices(rows):
        with claimed():
            GpuDevice.objects.bulk_create(
                part,
                update_conflicts=True,
                unique_fields=["cluster", "uuid", "instance"],
                update_fields=[name.removesuffix("_id") for name in _FIELDS],
            )
    _miss(have.values(), reading.when, claimed)
    return len(rows)


def _devices(reading: Reading) -> Iterator[tuple[Sample, bool]]:
    yield from ((sample, False) for sample in reading.samples)
    yield from ((board, True) for board in reading.boards)


def _stored(cluster_id: UUID) -> dict[tuple[str, str], Before]:
    columns = ("uuid", "instance", "pk", "values", "held_since", "seen_at", "missing_since", *_SAID)
    found = {}
    for uuid, instance, pk, values, held, seen, missing, *rest in (
        GpuDevice.objects.filter(cluster=cluster_id).order_by().values_list(*columns).iterator(SLICE)
    ):
        found[uuid, instance] = Before(pk, dict(zip(_SAID, rest, strict=True)), values, held, seen, missing)
    return found


def _row(cluster_id: UUID, sample: Sample, is_board: bool, nodes: Mapping[str, int], when: datetime) -> GpuDevice:
    return GpuDevice(
        cluster_id=cluster_id,
        uuid=sample.device.uuid,
        instance=sample.device.instance,
        is_board=is_board,
        node_name=plain(sample.node, 253),
        node_id=nodes.get(sample.node),
        index=plain(sample.index, 20),
        model=plain(sample.model, 120),
        profile=plain(sample.profile, 40),
        driver=plain(sample.driver, 40),
        values={str(metric): _short(value) for metric, value in sample.values.items()},
        holders=[[plain(text) for text in (one.namespace, one.pod, one.container)] for one in sample.holders],
        held_since=when if sample.holders else None,
        xids=[[one.code, one.count, str(one.evidence)] for one in sample.xids],
        clock_events=None if sample.clock_events is None else {plain(k): n for k, n in sample.clock_events.items()},
        is_suspect=sample.suspect,
        first_seen_at=when,
        seen_at=when,
    )


def plain(text: str, most: int | None = None) -> str:
    """Without what a label may hold and no database stores: NUL, halves of UTF-16 pairs."""
    return (text if text.isprintable() else "".join(c if c.isprintable() else "·" for c in text))[:most]


def _short(value: float) -> float | int:
    """As many digits as an exporter prints; whole numbers without a fraction, for counters of any size."""
    return int(value) if value.is_integer() else round(value, 6)


def _is_worth_writing(row: GpuDevice, before: Before | None) -> bool:
    """Also carries over into the row what a new sample does not say: since when the same pods hold it."""
    if before is None:
        return True
    if row.holders and row.holders == before.fields["holders"] and before.held_since:
        row.held_since = before.held_since
    if before.missing_since or row.seen_at - before.seen_at >= REFRESH_AFTER:
        return True
    if any(getattr(row, name) != before.fields[name] for name in _SAID) or row.values.keys() != before.values.keys():
        return True
    return any(abs(value - before.values[name]) > PASSES.get(Metric(name), 0.0) for name, value in row.values.items())


def _miss(lacking: Iterable[Before], when: datetime, claimed: Claimed) -> None:
    """What the reading lacks says so from now on, and keeps its sample; what is lacking for long is forgotten."""
    fresh, old = [], []
    for one in lacking:
        if one.missing_since is None:
            fresh.append(one.pk)
        elif when - one.missing_since > FORGET_AFTER:
            old.append(one.pk)
    for part in _slices(fresh):
        with claimed():
            GpuDevice.objects.filter(pk__in=part).update(missing_since=when)
    for part in _slices(old):
        with claimed():
            GpuDevice.objects.filter(pk__in=part).delete()


def _slices(found: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(found)
    while part := list(islice(rest, SLICE)):
        yield part
