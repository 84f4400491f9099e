"""Studies of what each rollout did to the GPUs of its nodes: matched windows, stored pairs, and their effects.

Of an ordinary rollout each node has windows of its own: it tells before and after only. Of one by the order `measured`
all nodes share one before it began and one after its last treated node, so that what happened to the whole fleet
happened to both arms alike; the control is what the engine held back.
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
from django.db.models import Exists, F, Min, OuterRef, Q

from common.clock import now
from gpus.effects import estimation, windows
from gpus.effects.estimation import Effect, Pair
from gpus.effects.windows import STEP, Window, WindowActivity
from gpus.metrics.buckets import Bucket, Device
from gpus.models import GpuDevice, Study, StudyEffect, StudyNode
from gpus.storage import history
from jobs.forecast.strategy import MEASURED, Strategy
from jobs.models import Rollout, Step, StepEvent

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
Spans = Mapping[int, tuple[Window, Window] | None]
"""Both windows of each node, by the study node's key."""
CHANGED = "changed by {rollout} as well"
PUT_BACK, GONE, UNFINISHED = "put back", "no longer there", "did not succeed"


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
    _find_nodes(study)
    behind = _measure(study)
    over = _is_over(study)
    if not behind or over:  # or each slice of a large rollout would read what all others left
        _conclude(study, is_over=over)
    state = Study.State.DONE if over else Study.State.MEASURING if study.nodes.exists() else Study.State.WAITING
    Study.objects.filter(pk=study.pk).update(
        state=state, due_at=None if over else now() + (SOON if behind else AGAIN), ends_at=_ends_at(study)
    )
    return True


# ── which nodes, and when ─────────────────────────────────────────────────────────────────────────────────────────────


def _find_nodes(study: Study) -> None:
    steps = study.rollout.steps.of_nodes().select_related("node", "plan_node")
    known = study.nodes.exclude(node=None).values_list("node_id")  # a NULL in NOT IN keeps every row out
    if study.is_causal:
        if study.nodes.exists():
            return  # the arms are whole from the beginning; a node that is tried again later is in neither
        if ended := _treated_ended(study.rollout):
            began = study.rollout.started_at or ended
            arms = Q(plan_node__is_control=True) | Q(status=Step.Status.SUCCEEDED)
            steps_of_study = steps.filter(arms, node__is_control_plane=False, plan_node__batch__gt=0)
            rows = [_node(study, step, began, ended) for step in steps_of_study]
            StudyNode.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
        return
    done = steps.filter(status=Step.Status.SUCCEEDED, direction=Step.Direction.FORWARD).exclude(node__in=known)
    first = _first_told(study.rollout)
    rows = [_node(study, step, first.get(step.pk) or first_touch(step), step.entered_at) for step in done]
    StudyNode.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)


def _node(study: Study, step: Step, began: datetime, ended: datetime) -> StudyNode:
    assert step.node is not None
    assert step.plan_node is not None
    return StudyNode(
        study=study, node=step.node, node_name=step.node_name, stratum=step.node.gpu_product,
        is_treated=not step.plan_node.is_control, began_at=began, ended_at=ended,
    )  # fmt: skip


def _treated_ended(rollout: Rollout) -> datetime | None:
    """Return when the last treated node finished; None while one is pending, or without a control or treated nodes."""
    steps = rollout.steps.of_nodes().filter(plan_node__batch__gt=0, node__is_control_plane=False)
    treated = list(steps.filter(plan_node__is_control=False).values_list("status", "entered_at"))
    if any(status not in Step.RESTING for status, _ in treated):
        return None
    ended = [at for status, at in treated if status == Step.Status.SUCCEEDED]
    return max(ended) if ended and steps.filter(plan_node__is_control=True).exists() else None


def first_touch(step: Step) -> datetime:
    """Return when the step's last attempt first touched the node: after queueing. Soaking comes after the change."""
    spent = sum(seconds for status, seconds in step.stages.items() if status != Step.Status.QUEUED)
    return step.entered_at - timedelta(seconds=spent)


def _first_told(rollout: Rollout) -> Mapping[Any, datetime]:
    """Return when the first attempt began to log events, for steps that were tried more than once."""
    again = StepEvent.objects.filter(rollout=rollout, step__attempt__gt=1)
    return dict(again.order_by().values_list("step").annotate(first=Min("at")))


# ── their pairs ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _measure(study: Study) -> bool:
    """Pairs of nodes that are due, the longest unread first. Returns whether more wait."""
    stale = Q(until=None) | Q(until__lte=now() - REFRESH - LATE)
    ready = study.nodes.filter(stale, is_final=False, ended_at__lte=now() - _settle(study) - FIRST)
    rows = list(ready.order_by(F("until").asc(nulls_first=True), "began_at", "pk")[: NODES_A_SLICE + 1])
    batch, limits = rows[:NODES_A_SLICE], _limits(study)
    spans = {row.pk: _windows(study, row, limits) for row in batch}
    _compare(study, batch, spans)
    if not study.is_causal:
        _look_back(study, batch, spans)  # read apart, so that both are never in memory
    whys = _left_out(study, batch, spans)
    for row in batch:
        span = spans[row.pk]
        row.until = now()
        row.left_out = whys.get(row.node_id, "")[:200] if row.node_id else GONE
        if span is not None:
            row.is_final = _last(study, row, limits) + LATE <= now()
    StudyNode.objects.bulk_update(batch, ["devices", "until", "left_out", "is_final"], batch_size=100)
    return len(rows) > NODES_A_SLICE


def _compare(study: Study, batch: Sequence[StudyNode], spans: Spans) -> None:
    """Set the devices of nodes that have windows, with their figures in both."""
    known = [span for span in spans.values() if span]
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
    by_node = _buckets(study, batch, [span[1].day_before for span in spans.values() if span])
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


def _settle(study: Study) -> timedelta:
    return timedelta(minutes=study.settle_minutes)


def _limits(study: Study) -> datetime | None:
    """Return when the control was rolled out after all, the limit of the second window; None if not yet."""
    if not study.is_causal:
        return None
    control = study.rollout.steps.filter(plan_node__is_control=True).exclude(status=Step.Status.QUEUED)
    begun = [first_touch(step) for step in control.only("entered_at", "stages", "status")]
    return windows.down(min(begun)) if begun else None


def _last(study: Study, row: StudyNode, limit: datetime | None) -> datetime:
    """The end of a node's second window, once it is over."""
    end = windows.up(row.ended_at + _settle(study)) + timedelta(hours=study.hours)
    return min(end, limit) if limit else end


def _windows(study: Study, row: StudyNode, limit: datetime | None) -> tuple[Window, Window] | None:
    until = min(now(), limit) if limit else now()
    length = timedelta(hours=study.hours)
    return windows.matched(row.began_at, row.ended_at, settle=_settle(study), length=length, until=until)


def _left_out(study: Study, rows: Sequence[StudyNode], spans: Spans) -> dict[int, str]:
    """Nodes to which something else happened from the first window's start to the second's end, with what."""
    by_node = {row.node_id: row for row in rows if row.node_id}
    out: dict[int, str] = {}
    first = min((span[0].start for span in spans.values() if span), default=now())
    others = Step.objects.filter(node__in=list(by_node), has_applied=True, entered_at__gt=first)
    others = others.exclude(rollout=study.rollout)
    for step in others.select_related("rollout").order_by("entered_at", "pk"):
        span = spans[by_node[step.node_key].pk]
        if span and span[0].start < step.entered_at and first_touch(step) < span[1].end:
            out[step.node_key] = CHANGED.format(rollout=step.rollout)
    own = study.rollout.steps.of_nodes().filter(node__in=list(by_node)).select_related("node", "plan_node")
    for step in own:
        assert step.node is not None
        assert step.plan_node is not None
        row = by_node[step.node_key]
        if step.node.gone_at and (row.until is None or step.node.gone_at < _last(study, row, None)):
            out[step.node_key] = GONE
        elif step.status == Step.Status.REVERTED or step.direction == Step.Direction.REVERT:
            out[step.node_key] = PUT_BACK
        elif row.is_treated and step.status != Step.Status.SUCCEEDED:
            out[step.node_key] = UNFINISHED
    return out


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
    arms: dict[str, set[bool]] = defaultdict(set)
    out: dict[str, list[Pair]] = defaultdict(list)
    names = windows.clusters(figures_by_device)
    for device, cluster in zip(figures_by_device, names, strict=True):
        arms[cluster].add(device["is_treated"])
        for measure, (before, after) in device["figures"].items():
            earlier = device.get("day_before", {}).get(measure)
            out[measure].append(Pair(before, after, cluster, device["stratum"], device["is_treated"], earlier))
    counts.on_both = sum(len(arms[cluster]) == 2 for cluster in names)
    counts.nodes_left_out, counts.devices_left_out = dict(nodes_out), dict(devices_out)
    return out, counts


def _conclude(study: Study, *, is_over: bool) -> None:
    pairs_by_measure, counts = pairs(study.nodes.order_by("node_name", "pk").iterator(500))
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
    return _last(study, last, _limits(study)) if last else None


def _is_over(study: Study) -> bool:
    rollout = study.rollout
    if rollout.finished_at and rollout.finished_at < given_up():
        return True
    if study.nodes.filter(is_final=False).exists():
        return False
    # A control that is carried out once it was measured keeps the rollout live, not its study.
    return not rollout.is_live or (study.is_causal and study.nodes.exists())
