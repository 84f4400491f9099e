"""Studies of what each rollout did to the GPUs of its nodes: matched windows, stored pairs, and their effects.

Of an ordinary rollout each node has windows of its own: it tells before and after only. Of one by the order `measured`
all nodes share one before it began and one after its last treated node, so that what happened to the whole fleet
happened to both arms alike; the control is what the engine held back. `gpus.effects.arms` has which nodes are in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q

from common.clock import now
from gpus.effects import arms, attrition, estimation, windows
from gpus.effects.arms import Spans
from gpus.effects.estimation import Effect, Pair
from gpus.effects.windows import STEP, Window, WindowActivity
from gpus.metrics.buckets import Bucket, Device
from gpus.models import GpuDevice, Study, StudyEffect, StudyNode
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
        _conclude(study, is_over=over)
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
    _compare(study, batch, spans)
    if not study.is_causal:
        treated = [row for row in batch if not row.is_context]
        _look_back(study, treated, spans)  # read apart, so that both are never in memory
    arms.judge(study, batch, spans)
    for row in batch:
        span = spans[row.pk]
        row.until = now()
        if span is not None:
            row.is_final = arms.last(study, row, limits) + LATE <= now()
    StudyNode.objects.bulk_update(batch, ["devices", "until", "left_out", "deviation", "is_final"], batch_size=100)
    return len(rows) > NODES_A_SLICE


def _compare(study: Study, batch: Sequence[StudyNode], spans: Spans) -> None:
    """Set the devices of nodes that have windows, with their figures in both."""
    known = [span for row in batch if (span := spans[row.pk])]
    by_node = _buckets(study, batch, [window for span in known for window in span])
    for row in batch:
        if span := spans[row.pk]:
            row.devices = [
                {"uuid": device.uuid, "instance": device.instance, "model": device.model}
                | windows.compare(buckets, *span, device.model)
                for device, buckets in by_node[row.node_name]
            ]


def _look_back(study: Study, batch: Sequence[StudyNode], spans: Spans) -> None:
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


# ── what they add up to ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Counts:
    """Nodes and devices of a study, and why some do not count."""

    nodes: int = 0
    """With pairs that count."""
    control_nodes: int = 0
    nodes_left_out: dict[str, int] | None = None
    devices_left_out: dict[str, int] | None = None
    on_both: int = 0
    """Devices of jobs that ran on treated and control nodes at once: the slower half holds back the other."""
    rest_nodes: int = 0
    """Of the rest of the fleet, with pairs that count."""
    attrition: dict[str, Any] | None = None
    """As `gpus.effects.attrition.Attrition`; of a study with a control."""

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def pairs(rows: Iterable[StudyNode]) -> tuple[dict[str, list[Pair]], Counts]:
    """Return the pairs of all nodes that count, by measure; every figure of a study's effects is computed from them."""
    counts, figures_by_device = Counts(), []
    nodes_out: Counter[str] = Counter()
    devices_out: Counter[str] = Counter()
    for row in rows:
        if row.left_out:
            nodes_out[row.left_out] += 1
            continue
        if row.until is None:
            continue
        counts.nodes += row.is_treated
        counts.control_nodes += not row.is_treated
        if not row.devices:
            nodes_out[windows.NO_READINGS] += 1
        for device in row.devices:
            if device["left_out"]:
                devices_out[device["left_out"]] += 1
            else:
                figures_by_device.append(
                    device | {"node": row.node_name, "stratum": row.stratum, "is_treated": row.is_treated}
                )
    arms_of: dict[str, set[bool]] = defaultdict(set)
    out: dict[str, list[Pair]] = defaultdict(list)
    names = windows.clusters(figures_by_device)
    for device, cluster in zip(figures_by_device, names, strict=True):
        arms_of[cluster].add(device["is_treated"])
        for measure, (before, after) in device["figures"].items():
            earlier = device.get("day_before", {}).get(measure)
            out[measure].append(Pair(before, after, cluster, device["stratum"], device["is_treated"], earlier))
    counts.on_both = sum(len(arms_of[cluster]) == 2 for cluster in names)
    counts.nodes_left_out, counts.devices_left_out = dict(nodes_out), dict(devices_out)
    return out, counts


def _conclude(study: Study, *, is_over: bool) -> None:
    rows_of_study = study.nodes.order_by("node_name", "pk")
    pairs_by_measure, counts = pairs(rows_of_study.filter(is_context=False).iterator(500))
    rest, of_rest = pairs(rows_of_study.filter(is_context=True))
    counts.rest_nodes = of_rest.nodes
    if study.is_causal:
        counts.attrition = attrition.of_rows(rows_of_study.filter(is_context=False).iterator(500)).to_json()
    measures = [measure for measure in windows.MEASURES if measure.name in pairs_by_measure]
    main = windows.primary(pairs_by_measure)
    rows = []
    for measure in measures:
        own = pairs_by_measure[measure.name]
        confidence = estimation.confidence_of(measure.name == main, len(measures) - bool(main))
        if study.is_causal:
            effect = estimation.difference_in_differences(own, by_points=measure.by_points, confidence=confidence)
            if not is_over:  # a verdict at every look would be wrong far more often than one at the end
                effect = estimation.without_verdict(effect, by_points=measure.by_points)
        else:
            effect = estimation.before_and_after(own, by_points=measure.by_points)
        row = _row(study, windows.MEASURES.index(measure), measure.name, effect)
        row.is_primary = measure.name == main
        row.day_before, row.day_before_change = _day_before(own, by_points=measure.by_points)
        _add_rest(row, rest.get(measure.name, ()), by_points=measure.by_points)
        rows.append(row)
    with transaction.atomic():
        StudyEffect.objects.filter(study=study).exclude(measure__in=[row.measure for row in rows]).delete()
        StudyEffect.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["study", "measure"],
            update_fields=[
                f.name for f in StudyEffect._meta.concrete_fields if f.name not in ("id", "study", "measure")
            ],
        )
        Study.objects.filter(pk=study.pk).update(counts=counts.to_json(), measured_at=now() if rows else None)


def _day_before(pairs_of_measure: Iterable[Pair], *, by_points: bool) -> tuple[float | None, float | None]:
    """Return the mean of the same hours of the day before, and the change from it: a ratio less 1, or points."""
    figures = [(p.day_before, p.after) for p in pairs_of_measure if p.day_before is not None]
    if not figures:
        return None, None
    earlier, after = (sum(column) / len(figures) for column in zip(*figures, strict=True))
    if by_points:
        return earlier, after - earlier
    return earlier, after / earlier - 1 if earlier else None


def _add_rest(row: StudyEffect, pairs_of_rest: Iterable[Pair], *, by_points: bool) -> None:
    """Set the change of the rest of the fleet in the same windows: what happened where nothing was done."""
    effect = estimation.before_and_after(pairs_of_rest, by_points=by_points)
    row.rest_change = effect.points if by_points else effect.ratio
    row.rest_devices, row.rest_clusters = effect.devices, effect.clusters


def _row(study: Study, position: int, measure: str, effect: Effect) -> StudyEffect:
    row = StudyEffect(
        study=study, measure=measure, position=position, verdict=effect.verdict, why=effect.why, ratio=effect.ratio,
        points=effect.points, before=effect.before, after=effect.after, expected=effect.expected,
        devices=effect.devices, clusters=effect.clusters, control_devices=effect.control_devices,
        control_clusters=effect.control_clusters, left_out=effect.left_out, confidence=effect.confidence,
    )  # fmt: skip
    if effect.ratio_interval:
        row.ratio_low, row.ratio_high = effect.ratio_interval.low, effect.ratio_interval.high
    if effect.points_interval:
        row.points_low, row.points_high = effect.points_interval.low, effect.points_interval.high
    return row


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
