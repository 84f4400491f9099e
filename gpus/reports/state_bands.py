"""State bands over a time range, from roll-ups: a fixed number of queries, for any number of GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from statistics import fmean
from typing import Any

from django.db.models import F, QuerySet, Sum

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster
from common import look
from common.clock import now
from gpus.metrics import states
from gpus.models import GpuBand
from gpus.reports.ranges import TimeRange
from gpus.showback import periods, prices
from jobs.reports.selectors import visible_rollouts

Scope = GpuBand.Scope
MOST_MARKS = 40
JOULES_PER_KWH = 3.6e6
SHOWN = (states.EFFECTIVE, states.LOW, states.HELD, states.FREE, states.OUT, states.NONE)
"""The order in which bands are stacked."""
COLUMNS: Mapping[str, tuple[str, ...]] = {
    states.EFFECTIVE: ("effective",),
    states.LOW: ("low",),
    states.HELD: ("held",),
    states.FREE: ("free",),
    states.OUT: ("out",),
    states.NONE: ("held_unknown", "free_unknown"),
}


PARTS = (Scope.CLUSTER, Scope.POOL, Scope.MODEL, Scope.NAMESPACE)


@dataclass(frozen=True, slots=True)
class BandPoint:
    """GPUs on the average of a step, by state."""

    start: datetime
    gpus: Mapping[str, float]
    kwh: float = 0.0

    @property
    def total(self) -> float:
        return sum(self.gpus.values())

    @property
    def listed(self) -> list[tuple[str, float]]:
        return [(state, self.gpus[state]) for state in SHOWN]


@dataclass(frozen=True, slots=True)
class RolloutMark:
    """A rollout that began then."""

    at: datetime
    name: str
    rollout: Any


@dataclass(frozen=True, slots=True)
class UsageRow:
    """GPU-hours of a cluster, pool, model or namespace over the window."""

    cluster: str
    cluster_id: Any
    name: str
    hours: Mapping[str, float]
    """By the columns of GpuBand."""
    kwh: float
    cost: Decimal | None = None
    """Of what was held idle."""

    @property
    def total(self) -> float:
        return sum(self.hours.values())

    @property
    def allocated(self) -> float:
        return self.active + self.hours["held"] + self.hours["held_unknown"]

    @property
    def active(self) -> float:
        return self.effective + self.hours["low"]

    @property
    def effective(self) -> float:
        return self.hours["effective"]

    @property
    def held(self) -> float:
        return self.hours["held"]

    @property
    def unknown(self) -> float:
        return self.hours["held_unknown"] + self.hours["free_unknown"]

    @property
    def bands(self) -> list[tuple[str, int]]:
        return [(state, round(sum(self.hours[name] for name in COLUMNS[state]))) for state in SHOWN]


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """GPUs in a state on the average of the recorded steps, now and in the period before; no verdict."""

    state: str
    gpus: float
    gpus_before: float

    @property
    def word(self) -> str:
        return look.appearance("gpu", self.state).word

    @property
    def difference(self) -> float:
        return round(self.gpus - self.gpus_before, 1)

    @property
    def in_words(self) -> str:
        """Return `3.0 higher than before (+12 %)`; no percentage of less than a GPU."""
        if not self.difference:
            return "the same as before"
        percent = f" ({100 * self.difference / self.gpus_before:+,.0f} %)" if self.gpus_before >= 1 else ""
        percent = percent.replace("-", "\N{MINUS SIGN}")
        return f"{abs(self.difference):,.1f} {'higher' if self.difference > 0 else 'lower'} than before{percent}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The period before, which is as long."""

    window: TimeRange
    points: Sequence[BandPoint]
    recorded: timedelta
    """Of the range itself."""
    recorded_before: timedelta
    lines: Sequence[ComparisonLine]
    """By state; empty where one of both periods is not recorded at all."""

    @property
    def recorded_seconds(self) -> tuple[float, float]:
        """Return those of the range itself, and of the period before."""
        return self.recorded.total_seconds(), self.recorded_before.total_seconds()

    @property
    def is_uneven(self) -> bool:
        """Return whether one of both is recorded for much longer: averages then are of different hours."""
        return abs(self.recorded - self.recorded_before) > 0.1 * max(self.recorded, self.recorded_before)


@dataclass(frozen=True, slots=True)
class Over:
    """A window of the fleet, or of one cluster."""

    window: TimeRange
    points: Sequence[BandPoint]
    rows: Sequence[BandPoint]
    """The table's."""
    marks: Sequence[RolloutMark]
    by: str
    parts: Sequence[UsageRow]
    whole: UsageRow
    since: datetime | None
    """The first step that is recorded."""
    comparison: Comparison | None = None
    """Where the range asks for it."""

    @property
    def scopes(self) -> list[str]:
        return [str(scope) for scope in PARTS]

    @property
    def words(self) -> list[str]:
        return [look.appearance("gpu", state).word for state in SHOWN]

    @property
    def last(self) -> list[tuple[str, int]]:
        """GPUs of the last step, for the legend."""
        return [(state, round(count)) for state, count in self.points[-1].listed]


def over(user: User, window: TimeRange, by: str, cluster: Cluster | None = None) -> Over:
    """Four queries, with a comparison and without."""
    start, end = window.start, window.end
    every = restrict(GpuBand.objects.filter(seconds=window.seconds, start__lt=end), user)
    if cluster is not None:
        every = every.filter(cluster=cluster)
    first = window.before.start if window.compares else start
    points = _points(every.filter(scope=Scope.CLUSTER, start__gte=first))
    fine = [point for point in points if point.start >= start]
    usage = _parts(every.filter(start__gte=start), by, start)
    return Over(
        window=window,
        points=_merged(fine, start, window.step),
        rows=_merged(fine, start, window.row),
        marks=_marks(user, start, end, cluster),
        by=by,
        parts=sorted(usage[by], key=lambda row: (-row.total, row.cluster, row.name)),
        whole=_whole(usage[Scope.MODEL], usage[Scope.CLUSTER]),
        since=fine[0].start if fine else None,
        comparison=_compared(window, points) if window.compares else None,
    )


def _compared(window: TimeRange, points: Sequence[BandPoint]) -> Comparison:
    present = [point for point in points if point.start >= window.start]
    before = [point for point in points if point.start < window.start]
    return Comparison(
        window=window.before,
        points=_merged(before, window.before.start, window.step),
        recorded=timedelta(seconds=window.seconds * len(present)),
        recorded_before=timedelta(seconds=window.seconds * len(before)),
        lines=[
            ComparisonLine(state, _mean(point.gpus[state] for point in present), _mean(p.gpus[state] for p in before))
            for state in SHOWN
        ]
        if present and before
        else [],
    )


def _mean(counts: Iterable[float]) -> float:
    """Rounded as it is shown, so that differences are those of the figures beside them."""
    return round(fmean(counts), 1)


def _points(rows: QuerySet[GpuBand]) -> list[BandPoint]:
    """Return each step's point, clusters added up: average GPUs over the time that Setpoint recorded."""
    shares = {f"gpus_{name}": Sum(F(name) / F("recorded")) for name in GpuBand.STATES}
    grouped = rows.order_by("start").values("start").annotate(**shares, energy=Sum("joules"))
    out = []
    for start, energy, *gpus in grouped.values_list("start", "energy", *shares):
        by_name = dict(zip(GpuBand.STATES, gpus, strict=True))
        by_state = {state: sum(by_name[name] for name in names) for state, names in COLUMNS.items()}
        out.append(BandPoint(start, by_state, energy / JOULES_PER_KWH))
    return out


def _merged(band_points: Iterable[BandPoint], start: datetime, step: timedelta) -> list[BandPoint]:
    """Steps of the drawing, or of the table: the mean of those that are recorded, and their energy together."""
    parts: dict[int, list[BandPoint]] = defaultdict(list)
    for point in band_points:
        parts[(point.start - start) // step].append(point)
    return [
        BandPoint(
            start + number * step,
            {state: sum(point.gpus[state] for point in several) / len(several) for state in SHOWN},
            sum(point.kwh for point in several),
        )
        for number, several in sorted(parts.items())
    ]


def _parts(rows: QuerySet[GpuBand], by: str, start: datetime) -> dict[str, list[UsageRow]]:
    """Rows of each cluster and name, by scope; their time is divided where a price changed."""
    book = prices.book()
    first = start.astimezone(UTC).date()
    rows = rows.annotate(
        priced_since=periods.since("start", first, book.changes(first, now().date() + timedelta(days=1)))
    )
    sums = {f"sum_{name}": Sum(name) for name in (*GpuBand.STATES, "joules")}
    shown = rows.filter(scope__in={by, Scope.MODEL, Scope.CLUSTER}).order_by()
    grouped = shown.values("scope", "name", "cluster", "priced_since").annotate(**sums)
    parts: dict[tuple[str, str, Any], UsageRow] = {}
    for scope, name, cluster_id, cluster, day, *amounts, joules in grouped.values_list(
        "scope", "name", "cluster", "cluster__name", "priced_since", *sums
    ):
        hours = {state: amount / 3600 for state, amount in zip(GpuBand.STATES, amounts, strict=True)}
        price = book.gpu(name, cluster_id, day) if scope == Scope.MODEL else None
        cost = None if price is None else price * Decimal(hours["held"])
        part = UsageRow(cluster, cluster_id, name, hours, joules / JOULES_PER_KWH, cost)
        key = scope, name, cluster_id
        parts[key] = _together(parts[key], part) if key in parts else part
    usage: dict[str, list[UsageRow]] = {scope: [] for scope in (by, Scope.MODEL, Scope.CLUSTER)}
    for (scope, _, _), part in parts.items():
        usage[scope].append(part)
    costs: dict[Any, Decimal] = defaultdict(Decimal)
    for part in usage[Scope.MODEL]:
        if part.cost is not None:
            costs[part.cluster_id] += part.cost
    usage[Scope.CLUSTER] = [
        UsageRow(row.cluster, row.cluster_id, row.name, row.hours, row.kwh, costs.get(row.cluster_id))
        for row in usage[Scope.CLUSTER]
    ]
    return usage


def _together(part: UsageRow, other: UsageRow) -> UsageRow:
    """Add up two times of the same name."""
    costs = [row.cost for row in (part, other) if row.cost is not None]
    hours = {state: part.hours[state] + other.hours[state] for state in GpuBand.STATES}
    cost = sum(costs, Decimal(0)) if costs else None
    return UsageRow(part.cluster, part.cluster_id, part.name, hours, part.kwh + other.kwh, cost)


def _whole(models: Iterable[UsageRow], clusters: Sequence[UsageRow]) -> UsageRow:
    costs = [model.cost for model in models if model.cost is not None]
    hours = {name: sum(cluster.hours[name] for cluster in clusters) for name in GpuBand.STATES}
    cost = sum(costs, Decimal(0)) if costs else None
    return UsageRow("", None, "", hours, sum(cluster.kwh for cluster in clusters), cost)


def _marks(user: User, start: datetime, end: datetime, cluster: Cluster | None) -> list[RolloutMark]:
    rows = visible_rollouts(user).filter(started_at__gte=start, started_at__lt=end)
    if cluster is not None:
        rows = rows.filter(cluster=cluster)
    latest = list(rows.order_by("-started_at", "pk")[:MOST_MARKS])
    return [
        RolloutMark(rollout.started_at, rollout.plan.revision.name, rollout)
        for rollout in reversed(latest)
        if rollout.started_at
    ]
