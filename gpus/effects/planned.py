"""Forecast of a plan's study from its cluster's hourly history, read when a page or a client asks.

Bounded for any fleet: of the plan's nodes at most NODES, taken by whole groups of the packed history (which are groups
by a hash of the name, so a random part), at most PLACEBOS pairs of windows, and at most ROWS packed rows for these.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from common.clock import now
from gpus.effects import arms, estimation, measures, power, windows
from gpus.effects.estimation import Pair
from gpus.effects.jackknife import Interval
from gpus.effects.measures import HOST_MEASURES, Measure
from gpus.effects.power import Detectable, Member
from gpus.effects.windows import Window
from gpus.metrics.buckets import Bucket, Device
from gpus.models import GpuPacked, TelemetrySource
from gpus.storage import history, sharding
from jobs.forecast import schedule
from jobs.forecast.strategy import MEASURED, Strategy
from jobs.models import Plan, Step

NODES = 64
PLACEBOS = 6
ROWS = 600
"""Packed rows of an hour, of up to 256 devices each: about a second."""
HOUR = timedelta(hours=1)
LONGEST_GAP = 24
"""Hours between the two windows of a placebo, however long the rollout takes: noise of a day ago is forgotten."""
FIVES = 12
"""Of an hour. A bucket of an hour weighs as much as twelve of five minutes."""


@dataclass(frozen=True, slots=True)
class MeasureForecast:
    measure: Measure
    is_primary: bool
    confidence: float
    level: float
    """Mean of the newest second window."""
    detectable: Detectable
    """Of a study with a control; of one without, empty."""
    usual: Interval | None
    """Range in which these GPUs change when nothing is done."""

    @property
    def usual_low(self) -> float | None:
        return self.usual.low if self.usual else None

    @property
    def usual_high(self) -> float | None:
        return self.usual.high if self.usual else None


@dataclass(frozen=True, slots=True)
class StudyForecast:
    """Planned design, the history it was computed from, and the result by measure."""

    is_causal: bool
    hours: int
    settle_minutes: int
    nodes: int = 0
    """With GPUs, that are changed first."""
    control_nodes: int = 0
    sampled_nodes: int = 0
    placebos: int = 0
    since: datetime | None = None
    """The oldest placebo's beginning, and the newest one's end."""
    until: datetime | None = None
    why: str = ""
    """Reason why there are no measures."""
    primary_measure: str = ""
    """By the plan; empty: the first of OFU, tensor and busy that is reported."""
    measures: Sequence[MeasureForecast] = field(default_factory=list)

    @property
    def primary(self) -> MeasureForecast | None:
        return next((row for row in self.measures if row.is_primary), None)

    @property
    def why_not_primary(self) -> str:
        """Return why the measure that the plan names is not among them; empty if it is, or none is named."""
        if not self.primary_measure or not self.measures or self.primary is not None:
            return ""
        named = measures.BY_NAME[self.primary_measure]
        reason = "no history of hosts is stored" if named.of_host else "these GPUs did not report it"
        return f"{named.title} is the primary measure of this plan; what it can detect is not known: {reason}."


@dataclass(frozen=True, slots=True)
class _PlannedNode:
    pk: int
    name: str
    is_control: bool
    stratum: str


@dataclass(frozen=True, slots=True)
class _Span:
    """A placebo's windows."""

    before: Window
    after: Window


def of_plan(plan: Plan) -> StudyForecast:
    """Return the forecast, in at most 7 + PLACEBOS queries."""
    strategy = Strategy.from_json(plan.strategy)
    is_causal = strategy.order == MEASURED
    nodes = _planned_nodes(plan)
    control = sum(node.is_control for node in nodes)
    forecast = StudyForecast(
        is_causal=is_causal,
        hours=strategy.measure_hours if is_causal else settings.SETPOINT_STUDY_HOURS,
        settle_minutes=strategy.settle_minutes if is_causal else settings.SETPOINT_STUDY_SETTLE_MINUTES,
        nodes=len(nodes) - control,
        control_nodes=control,
        primary_measure=strategy.primary_measure,
    )
    if not nodes:
        return replace(forecast, why="None of these nodes has GPUs: there is nothing to measure.")
    ends = _history(plan)
    if ends is None:
        return replace(forecast, why="No history: no hour of this cluster's GPUs is stored yet.")
    first, newest, of = ends
    if newest < now() - windows.DAY:
        why = f"No current history: the newest stored hour of this cluster's GPUs is {newest:%Y-%m-%d %H:%M} UTC."
        return replace(forecast, why=why)
    gap = _gap_hours(plan, strategy, forecast)
    possible = _spans(first, newest + HOUR, forecast.hours, gap)
    if not possible:
        needed = forecast.hours + 24 * math.ceil((gap + forecast.hours) / 24)
        why = (
            f"Too little history: {(newest + HOUR - first) // HOUR} h are stored; a comparison of the same hours of an "
            f"earlier day needs {needed} h."
        )
        return replace(forecast, why=why)
    sample, spans = _sample(nodes, possible, of, 2 * forecast.hours + gap)
    placebos = [(span, pairs) for span, pairs in zip(spans, _placebos(plan, sample, spans), strict=True) if pairs]
    if not placebos:
        why = "No history of work: none of these GPUs was held and read in two windows of the past."
        return replace(forecast, sampled_nodes=len(sample), why=why)
    members = _members(plan, nodes, newest) if is_causal else []
    return replace(
        forecast,
        sampled_nodes=len(sample),
        placebos=len(placebos),
        since=placebos[-1][0].before.start,
        until=placebos[0][0].after.end,
        measures=_measures(
            [pairs for _, pairs in placebos],
            members,
            is_causal=is_causal,
            named=strategy.primary_measure,
            of_hosts=HOST_MEASURES if _may_read_hosts(plan) else (),
        ),
    )


def _may_read_hosts(plan: Plan) -> bool:
    """Return whether the study may have hosts as measures, too: then more are judged, each more strictly."""
    sources = TelemetrySource.objects.filter(cluster=plan.cluster_id, is_enabled=True)
    return sources.exclude(kind=TelemetrySource.Kind.EXPORTERS).exists()


def _planned_nodes(plan: Plan) -> list[_PlannedNode]:
    """Return the nodes with GPUs that the study will have, as `gpus.effects.arms` takes them."""
    rows = plan.nodes.filter(batch__gt=0, gpus__gt=0, node__is_control_plane=False, node__gone_at=None)
    columns = ("node_id", "name", "is_control", "node__gpu_product")
    return [_PlannedNode(*row) for row in rows.order_by("name").values_list(*columns)]


def _gap_hours(plan: Plan, strategy: Strategy, forecast: StudyForecast) -> int:
    """Return whole hours from the first window to the second: the change, and the time to settle."""
    seconds = 0.0
    if forecast.is_causal:  # otherwise each node has windows of its own, and its own change takes minutes
        seconds = max(0.0, plan.summary.get("seconds", 0) - schedule.held_back_seconds(strategy))
    return min(LONGEST_GAP, math.ceil((seconds + forecast.settle_minutes * 60) / 3600))


def _history(plan: Plan) -> tuple[datetime, datetime, int] | None:
    """Return the first and the newest hour stored, and into how many groups the newest one's nodes were divided."""
    rows = GpuPacked.objects.filter(cluster=plan.cluster_id, seconds=history.COARSE)
    newest = rows.order_by("-start", "-of", "-shard").values_list("start", "of").first()
    first = rows.order_by("start", "of", "shard").values_list("start", flat=True).first()
    return (first, *newest) if first and newest else None


def _spans(first: datetime, end: datetime, hours: int, gap: int) -> list[_Span]:
    """Return placebos that share no hour, the newest first, each as if the rollout had begun at this time of the day.

    Nodes differ most from each other where one's working day begins and another's does not.
    """
    spans: list[_Span] = []
    began = end - windows.DAY * math.ceil((gap + hours) / 24)
    while len(spans) < PLACEBOS and began - HOUR * hours >= first:
        after = began + HOUR * gap
        spans.append(_Span(Window(began - HOUR * hours, began), Window(after, after + HOUR * hours)))
        began -= windows.DAY * math.ceil((2 * hours + gap) / 24)
    return spans


def _sample(
    nodes: Sequence[_PlannedNode], spans: Sequence[_Span], of: int, span_hours: int
) -> tuple[list[_PlannedNode], Sequence[_Span]]:
    """Return the nodes whose history is read, and the placebos, within ROWS: nodes first, then more placebos."""
    groups: dict[int, list[_PlannedNode]] = {}
    for node in nodes:
        groups.setdefault(sharding.number(node.name, of), []).append(node)
    sample: list[_PlannedNode] = []
    taken = 0
    for _, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        if sample and (len(sample) >= NODES or (taken + 1) * span_hours > ROWS):
            break
        sample += members
        taken += 1
    return sample[:NODES], spans[: max(1, ROWS // (taken * span_hours))]


def _placebos(plan: Plan, sample: Sequence[_PlannedNode], spans: Sequence[_Span]) -> list[dict[str, list[Pair]]]:
    """Return the pairs by measure of each placebo; nodes that a rollout changed meanwhile are left out of it."""
    changes = Step.objects.filter(
        node__in=[node.pk for node in sample], has_applied=True, entered_at__gt=spans[-1].before.start
    )
    changed = [(step.node_key, arms.first_touch(step), step.entered_at) for step in changes.order_by("pk")]
    by_placebo: list[Compared] = []
    strata = {node.name: node.stratum for node in sample}
    for span in spans:
        disturbed = {pk for pk, began, ended in changed if span.before.start < ended and began < span.after.end}
        calm = {node.name for node in sample if node.pk not in disturbed}
        read = history.hours(plan.cluster_id, span.before.start, span.after.end, nodes=calm)
        by_placebo.append(_compared(read, span))
    names = {node.pk: node.name for node in sample}
    changed_at: dict[str, list[datetime]] = {}
    for pk, _, ended in changed:
        changed_at.setdefault(names[pk], []).append(ended)
    return [_pairs(rows, _older(spans, by_placebo, own, changed_at), strata) for own, rows in enumerate(by_placebo)]


Compared = Mapping[Device, Mapping[str, Any]]
"""Devices that count in a placebo, as `windows.compare` has them, and their node."""


def _compared(read: Mapping[Device, Sequence[Bucket]], span: _Span) -> Compared:
    compared = {}
    for device, buckets in sorted(read.items()):
        weighted = [bucket._replace(covered=bucket.covered * FIVES) for bucket in buckets]
        row = windows.compare(weighted, span.before, span.after, device.model)
        if not row["left_out"]:
            compared[device] = row | {"node": device.node_name}
    return compared


def _older(
    spans: Sequence[_Span], by_placebo: Sequence[Compared], own: int, changed_at: Mapping[str, Sequence[datetime]]
) -> list[Compared]:
    """Return the placebos before this one, each without the nodes that were changed in between."""
    out: list[Compared] = []
    for span, rows in zip(spans[own + 1 :], by_placebo[own + 1 :], strict=True):
        first, last = span.after.start, spans[own].before.end
        changed = {name for name, times in changed_at.items() if any(first < at < last for at in times)}
        out.append({device: row for device, row in rows.items() if device.node_name not in changed})
    return out


def _pairs(rows: Compared, older: Sequence[Compared], strata: Mapping[str, str]) -> dict[str, list[Pair]]:
    """Return the pairs of a placebo; the past is what the same job did in the second windows of older ones."""
    out: dict[str, list[Pair]] = {}
    for (device, row), cluster in zip(rows.items(), windows.clusters(rows.values()), strict=True):
        days = [
            of_day[device]["figures"]
            for of_day in older
            if row["job_before"] and device in of_day and of_day[device]["job"] == row["job_before"]
        ]
        for name, (before, after) in row["figures"].items():
            past = [figures[name][1] for figures in days if name in figures]
            mean = sum(past) / len(past) if past else None
            out.setdefault(name, []).append(Pair(before, after, cluster, strata[row["node"]], past=mean))
    return out


def _members(plan: Plan, nodes: Collection[_PlannedNode], newest: datetime) -> list[Member]:
    """Return what varies together among the devices that are held now, by arm. One query, for all nodes."""
    by_name = {node.name: node for node in nodes}
    latest = history.hours(plan.cluster_id, newest, newest + HOUR, nodes=set(by_name))
    rows: list[dict[str, Any]] = [
        {"job": windows.job(buckets[-1].holder), "node": device.node_name}
        for device, buckets in latest.items()
        if buckets[-1].held > 0.5
    ]
    counts: Counter[tuple[str, str, bool]] = Counter()
    for row, cluster in zip(rows, windows.clusters(rows), strict=True):
        node = by_name[row["node"]]
        counts[cluster, node.stratum, not node.is_control] += 1
    return [Member(*key, count) for key, count in sorted(counts.items())]


def _measures(
    placebos: Sequence[Mapping[str, Collection[Pair]]],
    members: Collection[Member],
    *,
    is_causal: bool,
    named: str,
    of_hosts: Collection[Measure],
) -> list[MeasureForecast]:
    reported = [m for m in measures.GPU_MEASURES if any(m.name in pairs for pairs in placebos)]
    main = named or measures.primary({measure.name for measure in reported})
    family = {measure.name for measure in (*reported, *of_hosts)} - {main}
    rows = []
    for measure in reported:
        own = [pairs[measure.name] for pairs in placebos if measure.name in pairs]
        confidence = estimation.confidence_of(measure.name == main, len(family))
        rows.append(
            MeasureForecast(
                measure,
                measure.name == main,
                confidence,
                sum(pair.after for pair in own[0]) / len(own[0]),
                power.detectable(members, own, by_points=measure.by_points, confidence=confidence)
                if is_causal
                else Detectable(),
                power.usual_change(own, by_points=measure.by_points),
            )
        )
    return sorted(rows, key=lambda row: not row.is_primary)
