"""Studies of what each rollout did to the GPUs of its nodes: matched windows, stored pairs, and their effects.

Of an ordinary rollout each node has windows of its own: it tells before and after only. Of one by the order `measured`
all nodes share one before it began and one after its last treated node, so that what happened to the whole fleet
happened to both arms alike; the control is what the engine held back. `gpus.effects.arms` has which nodes are in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q

from common.clock import now
from gpus.effects import arms, conclusions, host_readings, pasts, windows
from gpus.effects.arms import Spans
from gpus.effects.windows import STEP, Window, WindowActivity
from gpus.metrics.buckets import Bucket, Device
from gpus.models import GpuDevice, Study, StudyNode
from gpus.storage import history
from jobs.forecast.strategy import MEASURED, Strategy
from jobs.models import Rollout, Step

AGAIN = timedelta(minutes=10)
"""Between two looks at a study: two buckets."""
SOON = timedelta(seconds=30)
NODES_A_SLICE = 64
"""512 devices over two windows of six hours: 74,000 buckets at once, about 80 MB."""
REFRESH = timedelta(minutes=30)
"""A node whose window runs is read again no sooner."""
LATE = 2 * STEP
"""After the last bucket's end until it is written for certain."""
PATIENCE = timedelta(hours=2)
"""After a node's last window, for a Prometheus that does not answer."""
FIRST = windows.FEWEST * STEP + LATE
"""Of the second window, before a node is read at all: sooner it has nothing to say, and then waits for REFRESH."""


def given_up() -> datetime:
    """Return the time before which an ended rollout's study is abandoned, because its buckets are deleted."""
    return now() - timedelta(days=settings.SETPOINT_GPU_BUCKET_DAYS)


def due(limit: int = 10) -> list[UUID]:
    rows = Study.objects.filter(due_at__lte=now()).order_by("due_at", "pk")
    return list(rows.values_list("pk", flat=True)[:limit])


def find(pk: UUID) -> Study | None:
    return Study.objects.select_related("rollout__plan", "rollout__cluster").filter(pk=pk).first()


def adopt() -> int:
    """A study for each rollout that began lately, where there are GPUs. Of two workers the database lets one in."""
    has_gpus = Exists(GpuDevice.objects.filter(cluster=OuterRef("cluster")))
    has_nodes = Exists(Step.objects.of_nodes().filter(rollout=OuterRef("pk")))
    rows = Rollout.objects.filter(has_gpus, has_nodes, started_at__gt=given_up(), study=None)
    new_studies = [_new(rollout) for rollout in rows.select_related("plan").order_by("number")[:100]]
    return len(Study.objects.bulk_create(new_studies, ignore_conflicts=True))


def _new(rollout: Rollout) -> Study:
    strategy = Strategy.from_json(rollout.plan.strategy)
    is_causal = strategy.order == MEASURED
    return Study(
        rollout=rollout,
        is_causal=is_causal,
        primary_measure=strategy.primary_measure,
        hours=strategy.measure_hours if is_causal else settings.SETPOINT_STUDY_HOURS,
        settle_minutes=strategy.settle_minutes if is_causal else settings.SETPOINT_STUDY_SETTLE_MINUTES,
    )


def advance(study: Study) -> bool:
    """One slice of one study. Returns whether this caller had it: another may look at it already."""
    taken = Study.objects.filter(pk=study.pk, due_at=study.due_at).update(due_at=now() + AGAIN)
    if not taken:
        return False
    # Before its nodes are looked for: of one that is over by then, none is still to come.
    study.rollout.refresh_from_db(fields=["status", "finished_at"])
    arms.find_nodes(study)
    behind = _measure(study)
    over = _is_over(study)
    if not behind or over:  # or each slice of a large rollout would read what all others left
        conclusions.conclude(study, is_over=over)
    state = Study.State.DONE if over else Study.State.MEASURING if study.nodes.exists() else Study.State.WAITING
    Study.objects.filter(pk=study.pk).update(
        state=state, due_at=None if over else now() + (SOON if behind else AGAIN), ends_at=_ends_at(study)
    )
    return True


# ── their pairs ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _measure(study: Study) -> bool:
    """Pairs of nodes that are due, the longest unread first. Returns whether more wait."""
    stale = Q(until=None) | Q(until__lte=now() - REFRESH - LATE)
    ready = study.nodes.filter(stale, is_final=False, ended_at__lte=now() - arms.settle(study) - FIRST)
    rows = list(ready.order_by(F("until").asc(nulls_first=True), "began_at", "pk")[: NODES_A_SLICE + 1])
    batch, limits = rows[:NODES_A_SLICE], arms.limit(study)
    spans = {row.pk: _windows(study, row, limits) for row in batch}
    held = _compare(study, batch, spans)
    if study.is_causal:
        pasts.add(study, batch, spans)
    treated = [] if study.is_causal else [row for row in batch if not row.is_context]
    _look_back(study, treated, spans, held)  # read apart, so that both are never in memory
    unread = _compare_hosts(study, batch, spans, held, {row.pk for row in treated}) if study.has_hosts else set()
    arms.judge(study, batch, spans)
    for row in batch:
        span = spans[row.pk]
        row.until = now()
        if span is not None:
            over_at = arms.last(study, row, limits) + LATE
            # Another look reads its GPUs again as well, so their buckets must still be there by then.
            may_wait = row.pk in unread and span[0].start > given_up() + REFRESH + LATE + AGAIN
            row.is_final = over_at + (PATIENCE if may_wait else timedelta()) <= now()
    StudyNode.objects.bulk_update(
        batch, ["devices", "host", "until", "left_out", "deviation", "is_final"], batch_size=100
    )
    return len(rows) > NODES_A_SLICE


Held = dict[int, set[datetime]]
"""Starts of the five minutes in which a device of a node was held that counts, by the study node's key."""


def _compare(study: Study, batch: Sequence[StudyNode], spans: Spans) -> Held:
    """Set the devices of nodes that have windows, with their figures in both; return when they were held."""
    known = [span for row in batch if (span := spans[row.pk])]
    by_node = _buckets(study, batch, [window for span in known for window in span])
    held: Held = {}
    for row in batch:
        if span := spans[row.pk]:
            row.devices = [
                {"uuid": device.uuid, "instance": device.instance, "model": device.model}
                | windows.compare(buckets, *span, device.model)
                for device, buckets in by_node[row.node_name]
            ]
            counted = zip(row.devices, by_node[row.node_name], strict=True)
            held[row.pk] = _held(buckets for device, (_, buckets) in counted if not device["left_out"])
    return held


def _held(buckets_of_devices: Iterable[Iterable[Bucket]]) -> set[datetime]:
    return {
        bucket.start
        for buckets in buckets_of_devices
        for bucket in buckets
        if bucket.held > windows.HELD and bucket.covered
    }


def _look_back(study: Study, batch: Sequence[StudyNode], spans: Spans, held: Held) -> None:
    """Add to each device what it did in the hours of its second window, a day earlier."""
    by_node = _buckets(study, batch, [span[1].day_before for row in batch if (span := spans[row.pk])])
    for row in batch:
        if not (span := spans[row.pk]):
            continue
        buckets_of = {(device.uuid, device.instance): buckets for device, buckets in by_node[row.node_name]}
        for device in row.devices:
            buckets = buckets_of.get((device["uuid"], device["instance"]), ())
            levels = WindowActivity.of(span[1].day_before.of(buckets), device["model"]).levels()
            device["day_before"] = {name: level for name, level in levels.items() if name in device["figures"]}
            if not device["left_out"]:
                held[row.pk] |= _held([buckets])


def _compare_hosts(
    study: Study, batch: Sequence[StudyNode], spans: Spans, held: Held, with_day_before: Collection[int]
) -> set[int]:
    """Set the hosts of nodes with GPUs that count; return the nodes of which another try may read more."""
    span_of = {row.pk: span for row in batch if (span := spans[row.pk])}
    wanted = {row.node_name: row.pk for row in batch if row.pk in span_of and held.get(row.pk)}
    of_nodes = {name: _of_host(span_of[pk], pk in with_day_before) for name, pk in wanted.items()}
    read = host_readings.read(study.rollout.cluster_id, of_nodes)
    for row in batch:
        if row.pk not in span_of:
            continue
        host: dict[str, Any] = {}
        if (steps := read.get(row.node_name)) is not None:
            earlier = span_of[row.pk][1].day_before if row.pk in with_day_before else None
            host = host_readings.compare(steps, held[row.pk], span_of[row.pk], earlier)
        is_failed = steps is None or steps.is_unread
        if not (is_failed and _is_known(row, span_of[row.pk]) and row.host["figures"].keys() - host.get("figures", {})):
            row.host = host
    return {wanted[name] for name, steps in read.items() if steps.is_unread}


def _is_known(row: StudyNode, span: tuple[Window, Window]) -> bool:
    """Return whether its host has figures of both whole windows, which a try that failed must not replace."""
    return bool(row.host.get("figures") and row.until and row.until >= span[1].end + LATE)


def _of_host(span: tuple[Window, Window], has_day_before: bool) -> list[Window]:
    return [*span, span[1].day_before] if has_day_before else [*span]


def _buckets(
    study: Study, batch: Sequence[StudyNode], of: Sequence[Window]
) -> Mapping[str, list[tuple[Device, list[Bucket]]]]:
    """Return by node the buckets of each of its devices, from the first of these windows to the last."""
    by_node: dict[str, list[tuple[Device, list[Bucket]]]] = defaultdict(list)
    if of:
        start, end = min(window.start for window in of), max(window.end for window in of)
        names = {row.node_name for row in batch}
        by_device = history.buckets(study.rollout.cluster_id, start, end, nodes=names)
        for device, buckets in sorted(by_device.items(), key=lambda item: item[0]):
            by_node[device.node_name].append((device, buckets))
    return by_node


def _windows(study: Study, row: StudyNode, limit: datetime | None) -> tuple[Window, Window] | None:
    until = min(now(), limit) if limit else now()
    length = timedelta(hours=study.hours)
    return windows.matched(row.began_at, row.ended_at, settle=arms.settle(study), length=length, until=until)


# ── whether it is over ────────────────────────────────────────────────────────────────────────────────────────────────


def _ends_at(study: Study) -> datetime | None:
    last = study.nodes.order_by("-ended_at", "pk").first()
    return arms.last(study, last, arms.limit(study)) if last else None


def _is_over(study: Study) -> bool:
    rollout = study.rollout
    if rollout.finished_at and rollout.finished_at < given_up():
        return True
    if study.nodes.filter(is_final=False).exists():
        return False
    # A control that is carried out once it was measured keeps the rollout live, not its study.
    return not rollout.is_live or (study.is_causal and study.nodes.exists())
