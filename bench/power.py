"""Power of studies by job turnover, in simulated rollouts: what is called detectable, and how often it is detected.

Each simulated fleet has six days of history, from which `gpus.effects.power` computes the detectable effect, and then
one rollout, at the same hours of the day. A node's activity is its job's level, times a working day whose height is the
job's as well, times noise that is autocorrelated over the hours (of the node, and of each GPU). The simulator knows
nothing of the estimator.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.measure import Table
from gpus.effects import estimation, power
from gpus.effects.estimation import EffectVerdict, Pair

SEEDS = 300
PLACEBOS = 6
GAP = 1
"""Hours of the change, and to settle."""
KEPT = 0.8
"""Of the noise of an hour, in the next one."""
NODE_NOISE = GPU_NOISE = 0.03
"""New noise of an hour: 5 % in all."""
TURNOVERS = (0.0, 0.1, 0.25, 0.5, 0.9)
DESIGNS = ((20, 5, 6), (40, 10, 6), (40, 20, 6), (80, 20, 6), (80, 20, 24))
"""Nodes, those of them in the control, and hours of a window."""
TRIED = 0.08


@dataclass(frozen=True, slots=True)
class Design:
    nodes: int
    control: int
    hours: int = 6
    gpus: int = 2

    @property
    def span(self) -> int:
        return 2 * self.hours + GAP

    @property
    def apart(self) -> int:
        """Hours from one placebo's beginning to the next one's: whole days."""
        return 24 * math.ceil(self.span / 24)


class SimulatedFleet:
    """Hourly activity of every GPU: `series[node][gpu][hour]`. `turnover`: chance of a node's new job within a day."""

    def __init__(self, seed: int, design: Design, turnover: float) -> None:
        self.design = design
        self.rng = random.Random(seed)
        self._new_job = 1 - (1 - turnover) ** (1 / 24)
        self._phase = self.rng.randrange(24)
        hours = design.apart * PLACEBOS + design.span
        self.series = [self._node(hours) for _ in range(design.nodes)]
        self.control = frozenset(self.rng.sample(range(design.nodes), design.control))

    def _node(self, hours: int) -> list[list[float]]:
        rng, gpus = self.rng, range(self.design.gpus)
        own, of_gpu = 0.0, [0.0 for _ in gpus]
        rows: list[list[float]] = [[] for _ in gpus]
        level, day = self._job()
        for hour in range(hours):
            if rng.random() < self._new_job:
                level, day = self._job()
            own = KEPT * own + rng.gauss(0, NODE_NOISE)
            season = 1 + day * math.sin(2 * math.pi * (hour + self._phase) / 24)
            for gpu in gpus:
                of_gpu[gpu] = KEPT * of_gpu[gpu] + rng.gauss(0, GPU_NOISE)
                rows[gpu].append(level * season * math.exp(own + of_gpu[gpu]))
        return rows

    def _job(self) -> tuple[float, float]:
        return self.rng.uniform(0.3, 0.6), self.rng.uniform(0.1, 0.3)

    def window_means(self, number: int) -> Iterator[tuple[int, float, float]]:
        """Yield node, before and after of each GPU in one span of the time; the last one is the rollout's."""
        hours, start = self.design.hours, number * self.design.apart
        for node, rows in enumerate(self.series):
            for row in rows:
                after = start + hours + GAP
                yield node, sum(row[start : start + hours]) / hours, sum(row[after : after + hours]) / hours

    def pasts(self, number: int) -> list[float | None]:
        """Return the mean of each GPU in the second windows of all earlier spans, in the order of `window_means`."""
        days = [[after for _, _, after in self.window_means(earlier)] for earlier in range(number)]
        return [sum(values) / number for values in zip(*days, strict=True)] if days else [None] * self._gpus

    @property
    def _gpus(self) -> int:
        return self.design.nodes * self.design.gpus

    def rollout(self, effect: float) -> list[tuple[int, float, float, bool]]:
        """Return node, before, after and whether treated; the change multiplies what the treated do."""
        return [
            (node, before, after if node in self.control else after * (1 + effect), node not in self.control)
            for node, before, after in self.window_means(PLACEBOS)
        ]


def placebos_of(fleet: SimulatedFleet, *, has_past: bool = False) -> list[list[Pair]]:
    """Return the pairs of each placebo; `has_past`: with what each GPU did in the placebos before it."""
    out = []
    for number in range(PLACEBOS):
        pasts = fleet.pasts(number if has_past else 0)
        rows = zip(fleet.window_means(number), pasts, strict=True)
        out.append([Pair(before, after, str(node), past=past) for (node, before, after), past in rows])
    return out


def forecast(fleet: SimulatedFleet, *, has_past: bool = False) -> power.Detectable:
    """Return the forecast of Setpoint before the rollout, by the history alone."""
    members = [
        power.Member(str(node), "", node not in fleet.control, fleet.design.gpus) for node in range(fleet.design.nodes)
    ]
    return power.detectable(members, placebos_of(fleet, has_past=has_past))


def verdict(fleet: SimulatedFleet, effect: float, *, has_past: bool = False) -> EffectVerdict:
    """Return the verdict of Setpoint after it."""
    pasts = fleet.pasts(PLACEBOS if has_past else 0)
    pairs = [
        Pair(before, after, str(node), "", is_treated, past=past)
        for (node, before, after, is_treated), past in zip(fleet.rollout(effect), pasts, strict=True)
    ]
    return estimation.difference_in_differences(pairs).verdict


@dataclass(slots=True)
class Tally:
    """Counts over seeds."""

    seeds: int = 0
    detected: int = 0
    """Of effects as large as what was called detectable."""
    tried: int = 0
    """Of effects of TRIED."""
    false: int = 0
    """Verdicts where nothing was changed."""
    rises: float = 0.0

    def share(self, count: int) -> str:
        return f"{100 * count / self.seeds:.0f} %"


def simulate(design: Design, turnover: float, seeds: int = SEEDS) -> Tally:
    tally = Tally()
    for seed in range(seeds):
        fleet = SimulatedFleet(seed, design, turnover)
        expected = forecast(fleet)
        assert expected.rise is not None, expected.why
        tally.seeds += 1
        tally.rises += expected.rise
        tally.detected += verdict(fleet, expected.rise) == EffectVerdict.ROSE
        tally.tried += verdict(fleet, TRIED) == EffectVerdict.ROSE
        tally.false += verdict(fleet, 0.0) in (EffectVerdict.ROSE, EffectVerdict.FELL)
    return tally


def measure(seeds: int = SEEDS) -> list[Table]:
    """Return the detectable effects, and how often an effect of TRIED is detected, by design and turnover."""
    columns = ["Changed first + control", "Windows", *(f"{turnover:.0%}".replace("%", " %") for turnover in TURNOVERS)]
    detectable, seen = Table("Detectable effect by job turnover in a day", columns), Table("", columns)
    tallies = []
    for nodes, control, hours in DESIGNS:
        row = [simulate(Design(nodes, control, hours), turnover, seeds) for turnover in TURNOVERS]
        design = (f"{nodes - control} + {control}", f"{hours} h")
        detectable.add(*design, *(f"+{100 * tally.rises / tally.seeds:.1f} %" for tally in row))
        seen.add(*design, *(tally.share(tally.tried) for tally in row))
        tallies += row
    detected = sorted(tally.detected / seeds for tally in tallies)
    false = sorted(tally.false / seeds for tally in tallies)
    detectable.note = (
        f"Mean of what {seeds} plans each show. Of effects as large, {_range(detected)} were detected; of rollouts "
        f"without effect {_range(false)} got a verdict."
    )
    seen.title = f"Effects of {100 * TRIED:.0f} % that are detected"
    return [detectable, seen]


def _range(shares: Sequence[float]) -> str:
    low, high, mean = (100 * share for share in (shares[0], shares[-1], sum(shares) / len(shares)))
    return f"{low:.0f} to {high:.0f} % ({mean:.1f} % of all)"
