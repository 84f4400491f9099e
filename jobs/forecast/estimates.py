"""Time of one node by class of change: the median of what such steps took, else a constant; and which of the two.
Beside it the spread of these times, and the time that a step needs in a window: an upper quantile.

Only the last few rollouts are looked at: what a cluster did a year ago says little, and the cost does not grow with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any
from uuid import UUID

from common.templatetags.setpoint import duration
from jobs.diffs.changes import Disruption
from jobs.forecast import blast_radius
from jobs.forecast.schedule import SECONDS_EACH
from jobs.models import PlanComponent, Rollout, Step

ENOUGH = 5
"""Steps of a class; fewer are anecdotes."""
SAMPLE = 200
"""Steps of a class whose times are read at most."""
PART_SECONDS = {
    # A judgment: images are pulled and a few workloads get ready; installs of the catalog's charts take 1 to 5 min.
    PlanComponent.Kind.RELEASE: 180.0,
    PlanComponent.Kind.POLICIES: 5.0,
}
MARGIN = 1.25
"""How much longer than a time that is not measured, or by few steps, one may take. A judgment."""
MANY = 20
"""Steps of a class that a quantile of 95 % can be read from; of fewer, the longest counts, or the median and MARGIN."""
RECENT = 10
"""Rollouts looked at: two queries a class at most."""


@dataclass(frozen=True, slots=True)
class DurationEstimate:
    seconds: Mapping[Disruption, float]
    """For each class that was asked for."""
    here: int = 0
    """Steps on this cluster that it rests on."""
    elsewhere: int = 0
    """Steps of all clusters, for classes that were hardly done here."""
    guessed: tuple[Disruption, ...] = ()
    """Classes for which only the constant is known."""
    needed: Mapping[Disruption, float] = field(default_factory=dict)
    """Seconds that must be left in a window: 95 of 100 such steps took no longer."""
    spread: Mapping[Disruption, list[float]] = field(default_factory=dict)
    """Seconds at 5 %, 10 % … 95 % of the steps; of a class that is guessed, none."""

    def basis(self) -> str:
        """Describe the source of the estimate, as a clause."""
        parts = []
        if self.here:
            parts.append(f"from {self.here:,} step{'' if self.here == 1 else 's'} on this cluster")
        if self.elsewhere:
            parts.append(f"from {self.elsewhere:,} step{'' if self.elsewhere == 1 else 's'} on all clusters")
        if not parts:
            return "a guess: no such steps yet" if self.guessed else ""
        if self.guessed:
            parts.append(f"for {' and '.join(c.replace('-', ' ') for c in self.guessed)} a guess")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds": {str(c): s for c, s in self.seconds.items()},
            "needed": {str(c): s for c, s in self.needed.items()},
            "spread": {str(c): list(s) for c, s in self.spread.items()},
            "basis": self.basis(),
        }


def estimate_durations(cluster_id: UUID, classes: Collection[Disruption]) -> DurationEstimate:
    """Estimate these classes on this cluster: by steps there, else on all clusters, else by the constants."""
    seconds: dict[Disruption, float] = {}
    needed: dict[Disruption, float] = {}
    spread: dict[Disruption, list[float]] = {}
    here = elsewhere = 0
    guessed = []
    for worst in sorted(classes, key=lambda c: c.rank):
        times = _times(_recent(cluster_id), worst)
        if len(times) >= ENOUGH:
            here += len(times)
        else:
            times = _times(_recent(None), worst)
            if len(times) >= ENOUGH:
                elsewhere += len(times)
        if len(times) >= ENOUGH:
            seconds[worst] = round(median(times), 1)
            needed[worst], spread[worst] = round(upper_of(times), 1), spread_of(times)
        else:
            seconds[worst] = SECONDS_EACH[worst]
            needed[worst] = SECONDS_EACH[worst] * MARGIN
            guessed.append(worst)
    return DurationEstimate(seconds, here, elsewhere, tuple(guessed), needed, spread)


def spread_of(times: Sequence[float]) -> list[float]:
    """Return the times at 5 %, 10 % … 95 % of measured ones."""
    return [round(at, 1) for at in quantiles(times, n=20, method="inclusive")]


def upper_of(times: Sequence[float]) -> float:
    """Return the time that 95 of 100 such steps do not exceed, as far as these tell."""
    if len(times) >= MANY:
        return quantiles(times, n=20, method="inclusive")[-1]
    return max(*times, median(times) * MARGIN)


def part_durations(cluster_id: UUID, rows: Collection[PlanComponent]) -> tuple[dict[str, float], str]:
    """Seconds of each component and group of policy objects, as it last went here, else anywhere, else a constant.

    And on what that rests, as a clause: how long an install takes is unknown before the first one. Policy objects are
    written within seconds, which needs no word.
    """
    names = {row.component for row in rows}
    seen = {**_parts(names, None), **_parts(names, cluster_id)} if names else {}
    seconds = {row.component: seen.get(row.component) or PART_SECONDS[PlanComponent.Kind(row.kind)] for row in rows}
    # What it took last may have been a first install, and node by node takes as long as the nodes take.
    helm = PART_SECONDS[PlanComponent.Kind.RELEASE]
    walks = {row.component: blast_radius.seconds_of(row) for row in rows if row.hit}
    seconds |= {name: max(seconds[name], helm + walk) for name, walk in walks.items()}
    releases = {row.component for row in rows if row.kind == PlanComponent.Kind.RELEASE}
    new = sorted(releases - set(seen))
    turns = "".join(f", and {duration(walk)} for the nodes of {name}, in turn" for name, walk in walks.items() if walk)
    if not new:
        return seconds, f"components as they last took{turns}" if releases else turns.removeprefix(", and ")
    each = f"{PART_SECONDS[PlanComponent.Kind.RELEASE] / 60:.0f} min assumed{' each' if len(new) > 1 else ''}"
    more = f" and {len(new) - 3} more" if len(new) > 3 else ""
    return seconds, f"{each} for {', '.join(new[:3])}{more}, which no rollout has installed yet{turns}"


def _parts(names: Collection[str], cluster_id: UUID | None) -> dict[str, float]:
    done = Step.objects.of_components().filter(
        component__in=names, status=Step.Status.SUCCEEDED, direction=Step.Direction.FORWARD
    )
    if cluster_id is not None:
        done = done.filter(rollout__cluster=cluster_id)
    rows = done.order_by("entered_at", "pk").values_list("component", "stages")
    newest = list(rows.reverse()[:SAMPLE])
    return {name: round(active_seconds(stages), 1) for name, stages in reversed(newest) if active_seconds(stages)}


def planned_seconds(summary: Mapping[str, Any], worst: str) -> float:
    """Return what a plan reckoned with for a node of this class; the constant for plans older than estimates."""
    known: Mapping[str, float] = (summary.get("estimate") or {}).get("seconds", {})
    return float(known.get(worst, SECONDS_EACH[Disruption(worst)])) or 1.0


def planned_needed(summary: Mapping[str, Any], worst: str) -> float:
    """Return the seconds in a window that a plan reckoned with for a node of this class; of an older plan, what it
    reckoned with at all, and MARGIN.
    """
    known: Mapping[str, float] = (summary.get("estimate") or {}).get("needed", {})
    return float(known.get(worst) or planned_seconds(summary, worst) * MARGIN)


def planned_spread(summary: Mapping[str, Any], worst: str) -> tuple[float, ...]:
    """Return the times that a plan reckoned with, in rising order and equally likely; one where none were measured."""
    known: Mapping[str, list[float]] = (summary.get("estimate") or {}).get("spread", {})
    return tuple(known.get(worst) or ()) or (planned_seconds(summary, worst),)


def active_seconds(stages: Mapping[str, float]) -> float:
    """Seconds at work: waiting for a turn, for a person, or soaking is counted elsewhere."""
    return sum(s for name, s in stages.items() if name in Step.ACTIVE and name != Step.Status.SOAKING)


def _recent(cluster_id: UUID | None) -> list[UUID]:
    rows = Rollout.objects.exclude(started_at=None).order_by("-number")
    if cluster_id is not None:
        rows = rows.filter(cluster=cluster_id)
    return list(rows.values_list("pk", flat=True)[:RECENT])


def _times(rollouts: list[UUID], worst: Disruption) -> list[float]:
    done = Step.objects.of_nodes().filter(
        rollout__in=rollouts, status=Step.Status.SUCCEEDED, direction=Step.Direction.FORWARD, worst_class=worst
    )
    return [active_seconds(stages) for stages in done.order_by().values_list("stages", flat=True)[:SAMPLE] if stages]
