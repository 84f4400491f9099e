"""Smallest effect that a planned comparison can detect, from how much the same GPUs changed when nothing was done.

Pure arithmetic. A *placebo* is a pair of windows of the past, as long and as far apart as those of the study will be.
What the clusters (nodes, or jobs on several nodes) of a placebo did is the noise in which an effect has to be seen:

    unit variance of a stratum = variance of its estimate in a placebo × effective clusters of the placebo
    standard error² = Σ strata: share² × unit variance × (1 ÷ effective clusters treated + 1 ÷ of the control)
    detectable      = (t of the confidence + t of the power) × standard error

Where the clusters have a past, the estimate will be adjusted by it, and the noise is what is left of a cluster's when
the best multiple of its past's is taken off (`gpus.effects.jackknife`).

Effective clusters are (Σ devices)² ÷ Σ devices²: one job on forty nodes beside four nodes counts for little more than
one. The degrees of freedom are those that `gpus.effects.estimation` will have.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpus.effects.estimation import CONFIDENCE, FEWEST_CLUSTERS, FEWEST_IN_STRATUM, Pair
from gpus.effects.jackknife import MOST_OF_ONE, Interval
from gpus.effects.student import t_quantile

POWER = 0.8
FEWEST_PLACEBOS = 3
"""For the range of what happens anyway; of two, the second could be anything."""


@dataclass(frozen=True, slots=True)
class Member:
    """One cluster of one arm of the planned study."""

    cluster: str
    stratum: str
    is_treated: bool
    devices: int


@dataclass(frozen=True, slots=True)
class Detectable:
    """Ratios less 1, or points where `by_points`. None: cannot be computed, and `why` is the reason."""

    why: str = ""
    rise: float | None = None
    """Detected with POWER, as is a fall by `fall`."""
    fall: float | None = None
    clusters: int = 0
    control_clusters: int = 0
    narrower: float | None = None
    """Share by which the adjustment by the past makes it smaller; None: it will not be adjusted."""


@dataclass(slots=True)
class _Noise:
    """Unit variance, added up over placebos, each weighted by its degrees of freedom."""

    total: float = 0.0
    freedom: int = 0

    @property
    def unit(self) -> float | None:
        return self.total / self.freedom if self.freedom else None


@dataclass(slots=True)
class _Cluster:
    devices: int = 0
    before: float = 0.0
    after: float = 0.0
    past: _Cluster | None = None
    """Of its devices with a past, that in place of `after`."""

    def add(self, before: float, after: float) -> None:
        self.devices += 1
        self.before += before
        self.after += after


@dataclass(frozen=True, slots=True)
class _Residuals:
    """Linearized parts of the estimate, and of its past's, by cluster of a stratum in a placebo."""

    stratum: str
    clusters: list[str]
    own: list[float]
    past: list[float]
    scale: float
    """From a sum of squares to the variance with one effective cluster."""


@dataclass(slots=True)
class _Arm:
    """Clusters of one stratum in one arm."""

    devices: list[int] = field(default_factory=list)

    @property
    def effective(self) -> float:
        return sum(self.devices) ** 2 / sum(count * count for count in self.devices)


Arms = Mapping[tuple[str, bool], _Arm]
MERGED = "\0merged"
"""Stratum of those that are too small, as `estimation` merges them."""


def detectable(
    members: Collection[Member],
    placebos: Sequence[Collection[Pair]],
    *,
    by_points: bool = False,
    confidence: float = CONFIDENCE,
) -> Detectable:
    """Return the smallest rise and fall that the arms will detect with POWER, by the noise of the placebos."""
    merged = _merged(members)
    arms: dict[tuple[str, bool], _Arm] = defaultdict(_Arm)
    for member in members:
        stratum = MERGED if member.stratum in merged else member.stratum
        arms[stratum, member.is_treated].devices.append(member.devices)
    strata = sorted({stratum for stratum, _ in arms if {(stratum, True), (stratum, False)} <= arms.keys()})
    kept = [m for m in members if (MERGED if m.stratum in merged else m.stratum) in strata]
    clusters = [len({m.cluster for m in kept if m.is_treated is arm}) for arm in (True, False)]
    if min(clusters) < FEWEST_CLUSTERS:
        which = "changed first" if clusters[0] <= clusters[1] else "in the control group"
        what = "node or job is" if min(clusters) == 1 else "nodes or jobs are"
        why = f"{min(clusters)} {what} {which}; an interval needs {FEWEST_CLUSTERS}."
        return Detectable(why, clusters=clusters[0], control_clusters=clusters[1])
    residuals = _residuals(placebos, merged, by_points=by_points)
    half = _half_width(arms, strata, _noise(residuals), confidence)
    if half is None:
        return Detectable("Too little history of these GPUs at work.", None, None, *clusters)
    narrower = None
    if half and (with_past := _with_past(residuals, min(clusters))):
        plain = _half_width(arms, strata, _noise(with_past), confidence)
        adjusted = _half_width(arms, strata, _noise(with_past, _weight(with_past)), confidence)
        if plain and adjusted is not None:
            narrower, half = 1 - adjusted / plain, half * adjusted / plain
    rise, fall = (half, -half) if by_points else (math.expm1(half), math.expm1(-half))
    return Detectable("", rise, fall, clusters[0], clusters[1], narrower)


def usual_change(
    placebos: Sequence[Collection[Pair]], *, by_points: bool = False, confidence: float = CONFIDENCE
) -> Interval | None:
    """Return the range in which the next change of all devices together falls when nothing is done: ratios less 1, or
    points. Student's prediction interval over placebos; None with fewer than FEWEST_PLACEBOS."""
    changes = []
    for pairs in placebos:
        before, after, count = sum(p.before for p in pairs), sum(p.after for p in pairs), len(pairs)
        if by_points and count:
            changes.append((after - before) / count)
        elif not by_points and before > 0 and after > 0:
            changes.append(math.log(after / before))
    count = len(changes)
    if count < FEWEST_PLACEBOS:
        return None
    mean = sum(changes) / count
    variance = sum((change - mean) ** 2 for change in changes) / (count - 1)
    half = t_quantile(0.5 + confidence / 2, count - 1) * math.sqrt(variance * (1 + 1 / count))
    low, high = mean - half, mean + half
    return Interval(low, high) if by_points else Interval(math.expm1(low), math.expm1(high))


def _merged(members: Iterable[Member]) -> frozenset[str]:
    """Return the strata that have fewer than FEWEST_IN_STRATUM clusters in an arm."""
    count: dict[str, dict[bool, set[str]]] = defaultdict(lambda: {True: set(), False: set()})
    for member in members:
        count[member.stratum][member.is_treated].add(member.cluster)
    return frozenset(name for name, arms in count.items() if min(map(len, arms.values())) < FEWEST_IN_STRATUM)


def _residuals(
    placebos: Iterable[Collection[Pair]], merged: Collection[str], *, by_points: bool
) -> list[list[_Residuals]]:
    """Return those of each placebo, by stratum."""
    out = []
    for pairs in placebos:
        by_stratum: dict[str, dict[str, _Cluster]] = defaultdict(lambda: defaultdict(_Cluster))
        for pair in pairs:
            own = by_stratum[MERGED if pair.stratum in merged else pair.stratum][pair.cluster]
            own.add(pair.before, pair.after)
            if pair.past is not None:
                own.past = own.past or _Cluster()
                own.past.add(pair.before, pair.past)
        rows = [_of_stratum(name, clusters, by_points=by_points) for name, clusters in by_stratum.items()]
        out.append([row for row in rows if row is not None])
    return out


def _of_stratum(stratum: str, by_name: Mapping[str, _Cluster], *, by_points: bool) -> _Residuals | None:
    clusters = list(by_name.values())
    own = _linearized(clusters, by_points=by_points)
    if own is None:
        return None
    pasts = [cluster.past or _Cluster() for cluster in clusters]
    effective = sum(c.devices for c in clusters) ** 2 / sum(c.devices**2 for c in clusters)
    past = _linearized(pasts, by_points=by_points) or [0.0] * len(clusters)
    return _Residuals(stratum, list(by_name), own, past, len(clusters) / (len(clusters) - 1) * effective)


def _linearized(clusters: Sequence[_Cluster], *, by_points: bool) -> list[float] | None:
    """Return what each cluster adds to the estimate, to the first order; None of fewer than two, or without a ratio."""
    devices, before, after = (sum(getattr(c, name) for c in clusters) for name in ("devices", "before", "after"))
    if sum(c.devices > 0 for c in clusters) < 2 or (not by_points and (before <= 0 or after <= 0)):
        return None
    if by_points:
        mean = (after - before) / devices
        return [(c.after - c.before - c.devices * mean) / devices for c in clusters]
    return [c.after / after - c.before / before for c in clusters]


def _with_past(residuals: Sequence[Sequence[_Residuals]], fewest: int) -> list[list[_Residuals]]:
    """Return the placebos of which the smaller arm, as it is planned, would have enough clusters with a past.

    None where a cluster has more than MOST_OF_ONE of their past's variance: the study would not be adjusted.
    """
    out = []
    for rows in residuals:
        clusters, with_past = (sum(len(row.own) for row in rows), sum(sum(map(bool, row.past)) for row in rows))
        if clusters and fewest * with_past / clusters >= FEWEST_CLUSTERS:
            out.append(list(rows))
    squares: dict[str, float] = defaultdict(float)
    for row in (row for rows in out for row in rows):
        for name, value in zip(row.clusters, row.past, strict=True):
            squares[name] += row.scale * value * value
    return out if max(squares.values(), default=0.0) <= MOST_OF_ONE * sum(squares.values()) else []


def _weight(residuals: Iterable[Iterable[_Residuals]]) -> float:
    rows = [row for of_placebo in residuals for row in of_placebo]
    both = sum(row.scale * a * b for row in rows for a, b in zip(row.own, row.past, strict=True))
    squares = sum(row.scale * b * b for row in rows for b in row.past)
    return both / squares if squares else 0.0


def _noise(residuals: Iterable[Iterable[_Residuals]], weight: float | None = None) -> dict[str | None, _Noise]:
    """Return the noise of each stratum; under None that of all, for a stratum without history of its own.

    `weight`: of the past, which is taken off. A study finds one weight for all its strata, from all their clusters,
    which costs about two of them.
    """
    noise: dict[str | None, _Noise] = defaultdict(_Noise)
    for of_placebo in residuals:
        rows = list(of_placebo)
        free = sum(len(row.own) - 1 for row in rows)
        for row in rows:
            freedom = len(row.own) - 1
            left = [a - (weight or 0.0) * b for a, b in zip(row.own, row.past, strict=True)]
            variance = row.scale * sum(value * value for value in left)
            if weight is not None:
                variance *= (free + 1) / max(1, free - 1)
            for key in (row.stratum, None):
                noise[key].total += variance * freedom
                noise[key].freedom += freedom
    return noise


def _half_width(
    arms: Arms, strata: Sequence[str], noise: Mapping[str | None, _Noise], confidence: float
) -> float | None:
    """Return the detectable effect: of the logarithm of the ratio, or in points. None: no stratum has history."""
    treated = sum(sum(arms[stratum, True].devices) for stratum in strata)
    variance = denominator = 0.0
    for stratum in strata:
        own = noise[stratum] if stratum in noise and noise[stratum].freedom else noise.get(None)
        if own is None or own.unit is None:
            return None
        share = sum(arms[stratum, True].devices) / treated
        for is_treated in (True, False):
            arm = arms[stratum, is_treated]
            part = share * share * own.unit / arm.effective
            variance += part
            denominator += part * part / max(1, len(arm.devices) - 1)
    if not denominator:
        return 0.0
    freedom = variance * variance / denominator
    return (t_quantile(0.5 + confidence / 2, freedom) + t_quantile(POWER, freedom)) * math.sqrt(variance)
