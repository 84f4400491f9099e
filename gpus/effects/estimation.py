"""Effect of a change, from devices before and after it: estimate, interval, and a verdict, perhaps "inconclusive".

Pure arithmetic over pairs; `gpus.effects.studies` decides which window, arm and cluster a device belongs to.

*Before and after*: sums after over sums before. It mixes the change with all else that happened meanwhile, so it gives
no verdict.
*Difference in differences*: what the treated became, over what they would have become if they had changed like the
control of their stratum did. Only where chance chose the control does that say what the change did.

The interval is the cluster jackknife with Student's t (CV3: MacKinnon, Nielsen, Webb, "Cluster-robust inference",
2023): the estimate is made again without each cluster in turn. GPUs of one node, or of one job, rise and fall together;
taken one by one they would look like many proofs of one thing. docs/gpu.md has the coverage found by simulation, and
that of the bootstrap, which is too narrow with few clusters.

*Adjusted by the past* (CUPED: Deng, Xu, Kohavi, Walker, 2013): what the same comparison says of the days before in
place of `after` is 0 but for chance, because chance chose the arms. So a multiple of it may be taken off; the best one
is the covariance of both over its variance, both by the jackknife. It is made again without each cluster as well, or
the interval would be too narrow.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from gpus.effects import jackknife
from gpus.effects.jackknife import NOTHING, Cell, Cells, Estimate, Grouped, Interval, Sums

CONFIDENCE = 0.95
FEWEST_CLUSTERS = 5
"""In each arm. With fewer the t interval still has about its coverage where changes are normal, which so few cannot
show."""
FEWEST_IN_STRATUM = 2
"""Clusters in each arm, or one left out leaves nothing to compare with: smaller strata are taken together."""


class EffectVerdict(StrEnum):
    ROSE = "rose"
    FELL = "fell"
    """Of a change, by a control that chance chose: the interval leaves out no change at all."""
    INCONCLUSIVE = "inconclusive"
    """The interval holds no change at all, too."""
    HIGHER = "higher"
    LOWER = "lower"
    """Than before; no verdict: there is no control, or the window is not over."""
    SAME = "no change"
    """To the digit that is shown, or every figure is shown as 0."""
    NO_INTERVAL = "no interval"
    """Too few clusters to say how sure the estimate is."""
    NO_DATA = "no data"


@dataclass(frozen=True, slots=True)
class Pair:
    """One device over two windows of equal length; both figures in the same unit, finite, and never below 0."""

    before: float
    after: float
    cluster: str
    """What varies together: a node, or a job that spans nodes. It may reach into several strata and both arms."""
    stratum: str = ""
    is_treated: bool = True
    day_before: float | None = None
    """In the hours of `after`, a day earlier, where that is known: no part of any estimate."""
    past: float | None = None
    """Mean in the hours of `after` over earlier days, before anything was changed; None: it has none."""


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Adjustment of an estimate by the past; `weight` and `narrower` are those of the interval that is judged."""

    clusters: int
    control_clusters: int
    """With a past; those without one stay in the comparison."""
    weight: float
    """How much of the past's own difference was taken off."""
    unadjusted: float
    """The estimate without it: a ratio less 1, or points."""
    narrower: float
    """Share by which the interval is narrower than without it; below 0: wider, for a past that tells nothing."""


@dataclass(frozen=True, slots=True)
class Effect:
    """`ratio` 0.08 is +8 %; `points` are in the unit of the pairs. None: cannot be said."""

    verdict: EffectVerdict
    why: str
    """Of a verdict that is no answer: why not, as a sentence; else empty."""
    ratio: float | None = None
    ratio_interval: Interval | None = None
    points: float | None = None
    points_interval: Interval | None = None
    before: float | None = None
    """Mean of the treated, as are the next two."""
    after: float | None = None
    expected: float | None = None
    """What `after` would have been without the change: `before`, or with a control what became of that."""
    devices: int = 0
    clusters: int = 0
    control_devices: int = 0
    control_clusters: int = 0
    left_out: int = 0
    """Devices of strata that only one arm has."""
    confidence: float = CONFIDENCE
    """Of the intervals."""
    adjustment: Adjustment | None = None
    """None: too few clusters have a past, or it says too little of the ratio or of the points."""


def before_and_after(pairs: Iterable[Pair], *, by_points: bool = False, subject: str = "GPUs") -> Effect:
    """Compare the treated with themselves; strata do not matter. It gives no verdict: a day and a night differ, too.

    `by_points`: compared by the difference, for shares near 0, whose ratio is noise. `subject`: what pairs are of.
    """
    treated = [Pair(p.before, p.after, p.cluster) for p in pairs if p.is_treated]
    shape = _Shape(by_points, has_control=False, subject=subject)
    return without_verdict(_judged(treated, shape, left_out=0), by_points=by_points)


def confidence_of(is_primary: bool, others: int) -> float:
    """Return the confidence of a measure's interval, so that all others together are as rarely wrong as the primary
    measure alone (Bonferroni)."""
    return CONFIDENCE if is_primary else 1 - (1 - CONFIDENCE) / max(1, others)


def without_verdict(effect: Effect, *, by_points: bool) -> Effect:
    """Return the effect with the direction of its estimate in place of a verdict."""
    if effect.verdict == EffectVerdict.SAME:
        return effect
    value = effect.points if by_points or effect.ratio is None else effect.ratio
    if value is None:
        return effect
    way = EffectVerdict.HIGHER if value > 0 else EffectVerdict.LOWER
    why = effect.why if effect.verdict == EffectVerdict.NO_INTERVAL else ""
    return replace(effect, verdict=EffectVerdict.SAME if abs(value) < _SHOWN else way, why=why)


def difference_in_differences(
    pairs: Iterable[Pair], *, by_points: bool = False, confidence: float = CONFIDENCE, subject: str = "GPUs"
) -> Effect:
    """Estimate from the treated against the control of their stratum. Strata that are too small are merged into one."""
    all_pairs = list(pairs)
    members: dict[Cell, set[str]] = defaultdict(set)
    for pair in all_pairs:
        members[pair.stratum, pair.is_treated].add(pair.cluster)
    names = {pair.stratum for pair in all_pairs}
    small = {name for name in names if min(len(members[name, arm]) for arm in (True, False)) < FEWEST_IN_STRATUM}
    if small:
        rest = "\0the small ones"
        all_pairs = [p if p.stratum not in small else replace(p, stratum=rest) for p in all_pairs]
    arms = Counter(name for name, _ in {(p.stratum, p.is_treated) for p in all_pairs})
    kept = [pair for pair in all_pairs if arms[pair.stratum] == 2]
    shape = _Shape(by_points, has_control=True, confidence=confidence, subject=subject)
    return _judged(kept, shape, len(all_pairs) - len(kept))


_SHOWN = 0.0005
"""A share or a ratio that is smaller is shown as 0.0 %, and a figure of any other unit as 0."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """Design of one comparison."""

    by_points: bool
    has_control: bool
    confidence: float = CONFIDENCE
    subject: str = "GPUs"


def _judged(pairs: Collection[Pair], shape: _Shape, left_out: int) -> Effect:
    by_cluster, total = _sums(pairs)
    treated, control = _arm(total, is_treated=True), _arm(total, is_treated=False)
    clusters = [sum(any(a is arm for _, a in cells) for cells in by_cluster.values()) for arm in (True, False)]
    subject = f"control {shape.subject}" if treated.count else shape.subject
    effect = Effect(
        EffectVerdict.NO_DATA, f"No {subject} with readings in both windows.",
        devices=treated.count, clusters=clusters[0], control_devices=control.count, control_clusters=clusters[1],
        left_out=left_out, confidence=shape.confidence,
    )  # fmt: skip
    if not treated.count or (shape.has_control and not control.count):
        return effect
    points, ratio, mean = _points(total), _log_ratio(total), treated.after / treated.count
    effect = replace(
        effect, points=points, ratio=None if ratio is None else math.expm1(ratio), after=mean,
        before=treated.before / treated.count, expected=None if points is None else mean - points,
    )  # fmt: skip
    arms = [arm for arm in (treated, control) if arm.count]
    if max(total / arm.count for arm in arms for total in (arm.before, arm.after)) < _SHOWN:
        return replace(effect, verdict=EffectVerdict.SAME, why="")
    fewest = min(clusters) if shape.has_control else clusters[0]
    if fewest < FEWEST_CLUSTERS:
        which = "in the smaller arm" if shape.has_control else "in all"
        what = "node or job" if fewest == 1 else "nodes or jobs"
        why = f"{fewest} {what} {which}; an interval needs {FEWEST_CLUSTERS}: GPUs of one rise and fall together."
        return replace(effect, verdict=EffectVerdict.NO_INTERVAL, why=why)
    past = _past(pairs) if shape.has_control else None
    of_points, of_ratio = _estimates((by_cluster, total), past, shape.confidence)
    judged = of_points if shape.by_points or of_ratio is None else of_ratio
    if judged is None:
        return replace(effect, verdict=EffectVerdict.NO_INTERVAL, why="One node or job carries the whole estimate.")
    if judged.interval.holds_zero:
        verdict, why = EffectVerdict.INCONCLUSIVE, "The interval holds no change at all, too."
    else:
        verdict, why = (EffectVerdict.ROSE if judged.interval.low > 0 else EffectVerdict.FELL), ""
    effect = replace(effect, verdict=verdict, why=why)
    if of_ratio is not None:
        of_ratio = of_ratio.as_ratio()
        effect = replace(effect, ratio=of_ratio.value, ratio_interval=of_ratio.interval)
    if of_points is not None:
        effect = replace(
            effect, points=of_points.value, points_interval=of_points.interval, expected=mean - of_points.value
        )
    judged = of_points if shape.by_points or of_ratio is None else of_ratio
    return replace(effect, adjustment=_adjustment(judged, past))


def _estimates(own: Grouped, past: Grouped | None, confidence: float) -> tuple[Estimate | None, Estimate | None]:
    """Return those of points and of the ratio's logarithm: both adjusted by the past, or neither of them."""
    both = [jackknife.estimate(statistic, own, past, confidence) for statistic in (_points, _log_ratio)]
    if past and any(row is not None and row.weight is None for row in both):
        return _estimates(own, None, confidence)
    return both[0], both[1]


def _sums(pairs: Iterable[Pair]) -> Grouped:
    by_cluster: dict[str, dict[Cell, Sums]] = {}
    total: dict[Cell, Sums] = defaultdict(Sums)
    for pair in pairs:
        cell = (pair.stratum, pair.is_treated)
        own = Sums(1, pair.before, pair.after)
        by_cluster.setdefault(pair.cluster, {}).setdefault(cell, Sums()).add(own)
        total[cell].add(own)
    return by_cluster, dict(total)


def _past(pairs: Iterable[Pair]) -> Grouped | None:
    """Return the same pairs with the past in place of `after`, of those that have one; None where too few have.

    Only strata count in which both arms have enough, so that any cluster may be left out of them.
    """
    rows = [replace(pair, after=pair.past, past=None) for pair in pairs if pair.past is not None]
    members: dict[Cell, set[str]] = defaultdict(set)
    for row in rows:
        members[row.stratum, row.is_treated].add(row.cluster)
    kept = [row for row in rows if min(len(members[row.stratum, arm]) for arm in (True, False)) >= FEWEST_IN_STRATUM]
    arms = [len({row.cluster for row in kept if row.is_treated is arm}) for arm in (True, False)]
    return _sums(kept) if min(arms) >= FEWEST_CLUSTERS else None


def _arm(cells: Cells, *, is_treated: bool) -> Sums:
    total = Sums()
    for (_, arm), sums in cells.items():
        if arm is is_treated:
            total.add(sums)
    return total


def _points(cells: Cells) -> float | None:
    """Mean difference of the treated, less that of the control of their stratum; None where an arm is empty."""
    count, total = 0, 0.0
    for (stratum, is_treated), sums in cells.items():
        if not is_treated or not sums.count:
            continue
        count += sums.count
        total += sums.after - sums.before
        if (stratum, False) in cells:
            other = cells[stratum, False]
            if not other.count:
                return None
            total -= sums.count * (other.after - other.before) / other.count
    return total / count if count else None


def _log_ratio(cells: Cells) -> float | None:
    """Log of: sum after, over what the sum before became in the control. None where one of them is 0: no ratio."""
    after, expected = 0.0, 0.0
    for (stratum, is_treated), sums in cells.items():
        if not is_treated:
            continue
        after += sums.after
        growth = 1.0
        if (stratum, False) in cells:
            other = cells[stratum, False]
            if other.before <= NOTHING or other.after <= NOTHING:
                return None
            growth = other.after / other.before
        expected += sums.before * growth
    return math.log(after / expected) if after > NOTHING and expected > NOTHING else None


def _adjustment(estimate: Estimate | None, past: Grouped | None) -> Adjustment | None:
    if estimate is None or past is None or estimate.weight is None:
        return None
    arms = [sum(any(a is arm for _, a in cells) for cells in past[0].values()) for arm in (True, False)]
    return Adjustment(arms[0], arms[1], estimate.weight, estimate.unadjusted, estimate.narrower)
