"""A reading into rows: one for each device, rewritten only where it changed enough to matter.

In slices, each a transaction of its own that first makes sure that this reading is still the one: a worker whose claim
was lost writes nothing over what the next one reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection
from django.db.models import DateTimeField, ForeignKey, JSONField

from clusters.models import Node
from gpus.metrics.samples import Metric, Reading, Sample, XidEvidence
from gpus.models import GpuDevice

T = TypeVar("T")
Claimed = Callable[[], AbstractContextManager[None]]
"""Opens a transaction that holds the claim. Raises ClaimLost."""
Parameters = tuple[Any, ...]

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
    **dict.fromkeys((Metric.NVLINK_PAYLOAD, Metric.NVLINK_TRAFFIC), 1e8),
}
"""A change of no more than this, in the metric's unit, makes no row worth writing. Of the others, any change does."""
_KEY = ("cluster_id", "uuid", "instance")
_SAID = (
    "is_board", "node_name", "node_id", "index", "model", "profile", "driver", "holders", "xids", "clock_events",
    "is_suspect",
)  # fmt: skip
_SHORT = ("values", "seen_at")
_WHOLE = (*_SAID, "held_since", "missing_since", *_SHORT)
_NEW = (*_KEY, "first_seen_at", *_WHOLE)


@dataclass(slots=True)
class StoredDevice:
    """A stored row, as far as it decides whether to write."""

    pk: int
    said: tuple[Any, ...]
    """As _SAID."""
    values: dict[str, float]
    held_since: datetime | None
    seen_at: datetime
    missing_since: datetime | None


@dataclass(slots=True)
class DeviceRow:
    """One device as it is to be stored."""

    uuid: str
    instance: str
    said: tuple[Any, ...]
    """As _SAID."""
    values: dict[str, float]
    held_since: datetime | None


def store(cluster_id: UUID, reading: Reading, *, claimed: Claimed) -> int:
    """Returns how many devices were written. Raises what `claimed` raises."""
    nodes = dict(Node.objects.present().filter(cluster=cluster_id).values_list("name", "pk"))
    have, when = _stored(cluster_id), reading.when
    new: list[Parameters] = []
    whole: list[Parameters] = []
    short: list[Parameters] = []
    for sample, is_board in _devices(reading):
        row = _row(sample, is_board, nodes, when)
        before = have.pop((row.uuid, row.instance), None)
        _date_rises(row.said[_XIDS], before.said[_XIDS] if before else (), when)
        if before is None:
            new.append((cluster_id, row.uuid, row.instance, when, *_whole(row, when)))
        elif row.said != before.said or before.missing_since:
            if row.said[_HOLDERS] == before.said[_HOLDERS] and before.held_since:
                row.held_since = before.held_since
            whole.append((*_whole(row, when), before.pk))
        elif when - before.seen_at >= REFRESH_AFTER or _has_moved(row.values, before.values):
            short.append((row.values, when, before.pk))
    for statement, parameters in ((_inserting(), new), (_updating(_WHOLE), whole), (_updating(_SHORT), short)):
        for part in _slices(parameters):
            with claimed():
                statement.run(part)
    _miss(have.values(), when, claimed)
    return len(new) + len(whole) + len(short)


def _devices(reading: Reading) -> Iterator[tuple[Sample, bool]]:
    yield from ((sample, False) for sample in reading.samples)
    yield from ((board, True) for board in reading.boards)


def _stored(cluster_id: UUID) -> dict[tuple[str, str], StoredDevice]:
    columns = ("uuid", "instance", "pk", "values", "held_since", "seen_at", "missing_since", *_SAID)
    rows = GpuDevice.objects.filter(cluster=cluster_id).order_by().values_list(*columns)
    return {
        (uuid, instance): StoredDevice(pk, tuple(described), values, held, seen, missing)
        for uuid, instance, pk, values, held, seen, missing, *described in rows.iterator(SLICE)
    }


def _row(sample: Sample, is_board: bool, nodes: Mapping[str, int], when: datetime) -> DeviceRow:
    description = (
        is_board,
        plain(sample.node, 253),
        nodes.get(sample.node),
        plain(sample.index, 20),
        plain(sample.model, 120),
        plain(sample.profile, 40),
        plain(sample.driver, 40),
        [[plain(text) for text in (holder.namespace, holder.pod, holder.container)] for holder in sample.holders],
        [[xid.code, xid.count, str(xid.evidence)] for xid in sample.xids],
        None if sample.clock_events is None else {plain(k): n for k, n in sample.clock_events.items()},
        sample.suspect,
    )
    values = {str(metric): _short(value) for metric, value in sample.values.items()}
    return DeviceRow(sample.device.uuid, sample.device.instance, description, values, when if sample.holders else None)


_HOLDERS, _XIDS = _SAID.index("holders"), _SAID.index("xids")


def _date_rises(entries: Iterable[list[Any]], before: Iterable[Sequence[Any]], when: datetime) -> None:
    """Append to each counter of XIDs since the exporter's start when it rose last; less than before is a new start."""
    known = {code: (count, rest) for code, count, kind, *rest in before if kind == XidEvidence.TOTAL}
    for entry in entries:
        code, count, kind = entry
        if kind == XidEvidence.TOTAL:
            old_count, rose_at = known.get(code, (0, []))
            entry.append(rose_at[0] if rose_at and count == old_count else when.isoformat())


def _whole(row: DeviceRow, when: datetime) -> Parameters:
    """Return the values of the columns in _WHOLE."""
    return (*row.said, row.held_since, None, row.values, when)


# ── statements ────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Statement:
    """One text of SQL for many rows: a model's instance for each costs ten times as much."""

    sql: str
    prepare: Sequence[Callable[[Any], Any]]
    """Of each parameter, from Python's value to the database's."""

    def run(self, rows: Iterable[Parameters]) -> None:
        prepared = [[to(value) for to, value in zip(self.prepare, row, strict=True)] for row in rows]
        with connection.cursor() as cursor:
            cursor.executemany(self.sql, prepared)


def _inserting() -> Statement:
    """Return the upsert that also overwrites the row of a faster worker."""
    names, keys = _columns(_NEW), ", ".join(_columns(_KEY))
    places = ", ".join(["%s"] * len(names))
    kept = ", ".join(f"{name} = excluded.{name}" for name in _columns(_WHOLE))
    into = f"INSERT INTO {_table()} ({', '.join(names)}) VALUES ({places})"  # noqa: S608 — our own names
    sql = f"{into} ON CONFLICT ({keys}) DO UPDATE SET {kept}"
    return Statement(sql, _prepare(_NEW))


def _updating(fields: Sequence[str]) -> Statement:
    """The key is the last parameter."""
    changes = ", ".join(f"{name} = %s" for name in _columns(fields))
    sql = f"UPDATE {_table()} SET {changes} WHERE {_columns(['id'])[0]} = %s"  # noqa: S608 — our own names
    return Statement(sql, _prepare([*fields, "id"]))


def _table() -> str:
    return connection.ops.quote_name(GpuDevice._meta.db_table)


def _columns(fields: Sequence[str]) -> list[str]:
    return [connection.ops.quote_name(str(_field(name).column)) for name in fields]


def _prepare(fields: Sequence[str]) -> list[Callable[[Any], Any]]:
    return [_to_database(_field(name)) for name in fields]


def _field(name: str) -> Any:
    return GpuDevice._meta.get_field(name)


def _to_database(field: Any) -> Callable[[Any], Any]:
    if isinstance(field, JSONField):
        return lambda value: None if value is None else json.dumps(value)
    if isinstance(field, DateTimeField | ForeignKey) and field.name != "node":
        return cache(partial(field.get_db_prep_value, connection=connection))  # the same for most rows
    return lambda value: value


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def plain(text: str, most: int | None = None) -> str:
    """Replace characters that a label may hold and no database stores: NUL, halves of UTF-16 pairs."""
    return (text if text.isprintable() else "".join(c if c.isprintable() else "·" for c in text))[:most]


def _short(value: float) -> float | int:
    """Round to the digits that an exporter prints. Whole numbers, as of counters of any size, get no fraction."""
    return int(value) if value.is_integer() else round(value, 6)


def _has_moved(values: Mapping[str, float], before: Mapping[str, float]) -> bool:
    """Return whether a value changed by more than its tolerance, appeared or vanished."""
    if values.keys() != before.keys():
        return True
    return any(abs(value - before[name]) > _PASSES.get(name, 0.0) for name, value in values.items())


_PASSES: Mapping[str, float] = {str(metric): limit for metric, limit in PASSES.items()}


def _miss(lacking: Iterable[StoredDevice], when: datetime, claimed: Claimed) -> None:
    """Mark devices that the reading lacks as missing, keeping their sample; forget those missing for long."""
    fresh, old = [], []
    for device in lacking:
        if device.missing_since is None:
            fresh.append(device.pk)
        elif when - device.missing_since > FORGET_AFTER:
            old.append(device.pk)
    for part in _slices(fresh):
        with claimed():
            GpuDevice.objects.filter(pk__in=part).update(missing_since=when)
    for part in _slices(old):
        with claimed():
            GpuDevice.objects.filter(pk__in=part).delete()


def _slices(objects: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(objects)
    while part := list(islice(rest, SLICE)):
        yield part
