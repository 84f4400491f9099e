"""One device over two windows of equal length: its figures in each, or why it is left out. Standard library only.

Only five-minute buckets count in which the device was held for more than half of the covered time: a change of nodes
decides what a job gets out of a GPU, not who asks for one. A bucket weighs as much as readings cover of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from gpus.effects.measures import GPU_MEASURES
from gpus.metrics import boards, states
from gpus.metrics.buckets import Bucket
from gpus.metrics.samples import Metric

STEP = timedelta(minutes=5)
HELD = 0.5
"""Of a bucket's covered time: more, and it counts."""
FEWEST = 3.0
"""Buckets' worth of held time that each window needs: 15 minutes. A judgment: fewer are one job's start or end."""
NO_READINGS, NOT_HELD, OTHER_WORK = "no readings", "not held", "other work"
WHY = {
    NO_READINGS: "less than 15 minutes of readings in one of the windows",
    NOT_HELD: "held for less than 15 minutes in one of the windows",
    OTHER_WORK: "held by another namespace afterwards",
}


DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Window:
    """[start, end), both multiples of 5 minutes."""

    start: datetime
    end: datetime

    def of(self, buckets: Iterable[Bucket]) -> list[Bucket]:
        return [bucket for bucket in buckets if self.start <= bucket.start < self.end]

    @property
    def day_before(self) -> Window:
        """The same hours, a day earlier."""
        return Window(self.start - DAY, self.end - DAY)


def down(at: datetime) -> datetime:
    """Round down to a multiple of 5 minutes, where buckets begin."""
    at = at.astimezone(UTC).replace(second=0, microsecond=0)
    return at - timedelta(minutes=at.minute % 5)


def up(at: datetime) -> datetime:
    low = down(at)
    return low if low == at else low + STEP


def matched(
    began: datetime, ended: datetime, *, settle: timedelta, length: timedelta, until: datetime
) -> tuple[Window, Window] | None:
    """The windows before `began` and after `ended` plus `settle`, as long as time up to `until` allows, at most
    `length`; None while not even one bucket of the second is over."""
    start, last = up(ended + settle), down(began)
    long = min(down(until) - start, length)
    return (Window(last - long, last), Window(start, start + long)) if long >= STEP else None


@dataclass(slots=True)
class WindowActivity:
    """Activity of a device in one window."""

    covered: float = 0.0
    """Buckets' worth."""
    held: float = 0.0
    sums: dict[str, list[float]] = field(default_factory=dict)
    """By measure: [weighted sum, weight]"""
    holders: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, buckets: Iterable[Bucket], model: str) -> WindowActivity:
        seen = cls()
        for bucket in buckets:
            seen.covered += bucket.covered
            if bucket.held <= HELD or not bucket.covered:
                continue
            seen.held += bucket.covered
            seen.holders[bucket.holder] += 1
            for name, value in _figures(bucket, model):
                slot = seen.sums.setdefault(name, [0.0, 0.0])
                slot[0] += value * bucket.covered
                slot[1] += bucket.covered
        return seen

    @property
    def holder(self) -> str:
        """Workload that held the device in most buckets; empty where none held it alone."""
        known = [(count, name) for name, count in self.holders.items() if name]
        return max(known)[1] if known else ""

    def levels(self) -> dict[str, float]:
        """Return the mean by measure, to six digits, in the order of GPU_MEASURES; of too few readings none."""
        means = ((measure.name, *self.sums.get(measure.name, (0.0, 0.0))) for measure in GPU_MEASURES)
        return {name: float(f"{total / weight:.6g}") for name, total, weight in means if weight >= FEWEST}


def _figures(bucket: Bucket, model: str) -> Iterable[tuple[str, float]]:
    means = bucket.means
    if Metric.BUSY in means:
        yield "busy", means[Metric.BUSY]
    if Metric.TENSOR in means:
        yield "tensor", means[Metric.TENSOR]
    if (ofu := boards.ofu(means, model)) is not None:
        yield "ofu", ofu
    if Metric.SM_CLOCK in means:
        yield "sm_clock", means[Metric.SM_CLOCK] / boards.MHZ
    throttled = [means[metric] for metric in (Metric.POWER_THROTTLED, Metric.THERMAL_THROTTLED) if metric in means]
    if throttled:
        # Both may hold it back at once, so the share is at most all of the time.
        yield "throttled", min(1.0, sum(throttled) / (STEP.total_seconds() * bucket.covered))
    if Metric.POWER in means and means.get(Metric.BUSY, 0.0) >= states.IDLE_BELOW:
        yield "watts", means[Metric.POWER]


_SUFFIX = re.compile(r"(-[bcdf0-9ghj-np-tv-z]{6,10})?-([bcdfghj-np-tvwxz24-9]{5}|[0-9]{1,5})$")
"""Kubernetes' random letters have no vowels, nor 0, 1, 3 (k8s.io/apimachinery, util/rand): `train-model` is a name."""


def job(holder: str) -> str:
    """`namespace/name` of what a pod belongs to, by its own name: without the number or the hashes that controllers
    append. What is no longer there cannot be asked for its owner."""
    namespace, _, name = holder.partition("/")
    return f"{namespace}/{_SUFFIX.sub('', name) or name}" if name else ""


def compare(buckets: Sequence[Bucket], before: Window, after: Window, model: str) -> dict[str, Any]:
    """Compare a device's windows, in the form a study stores.

    {left_out, job, job_before, figures: {measure: [before, after]}}; figures only if not left out.
    """
    first, second = WindowActivity.of(before.of(buckets), model), WindowActivity.of(after.of(buckets), model)
    jobs = {"job": job(second.holder), "job_before": job(first.holder)}
    compared: dict[str, Any] = {"left_out": _unfit(first, second), **jobs, "figures": {}}
    if not compared["left_out"]:
        figures = first.levels(), second.levels()
        compared["figures"] = {
            name: [level, figures[1][name]] for name, level in figures[0].items() if name in figures[1]
        }
    return compared


def _unfit(first: WindowActivity, second: WindowActivity) -> str:
    if min(first.covered, second.covered) < FEWEST:
        return NO_READINGS
    if min(first.held, second.held) < FEWEST:
        return NOT_HELD
    spaces = [seen.holder.partition("/")[0] for seen in (first, second)]
    return OTHER_WORK if all(spaces) and spaces[0] != spaces[1] else ""


def clusters(devices: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return each device's cluster for the jackknife: its job if that spans several nodes, else its node.

    Order kept.
    """
    rows = list(devices)
    nodes: dict[str, set[str]] = {}
    for row in rows:
        if row["job"]:
            nodes.setdefault(row["job"], set()).add(row["node"])
    return [f"job {row['job']}" if len(nodes.get(row["job"], ())) > 1 else f"node {row['node']}" for row in rows]
