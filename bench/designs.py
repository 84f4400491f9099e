"""Designs of studies compared in simulated fleets: windows, adjustment by the past, pairs, crossovers, whole jobs.

A fleet has a week and more of history, working days, week ends, autocorrelated noise and jobs that end; a rollout
begins at a random hour of the week. The estimator is Setpoint's (`gpus.effects.estimation`) for all but crossovers,
which it has not. A true effect multiplies what the treated do, so it shifts an interval of the logarithm by as much:
every power is computed from the same rollouts without effect.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.measure import Table
from gpus.effects import estimation
from gpus.effects.estimation import Effect, Pair
from gpus.effects.student import t_quantile

SEEDS = 300
NODES = 80
"""Half of them changed first."""
TURNOVERS = (0.0, 0.05, 0.25, 0.5)
EFFECTS = (0.03, 0.05, 0.08)
PAST_DAYS = 7
GAP = 1
"""Hours of the change, and to settle; of a crossover, hours left out after each switch."""
LONGEST = 24
KEPT = 0.8
"""Of the noise of an hour, in the next one."""
NOISE = math.hypot(0.03, 0.03 / math.sqrt(2))
"""New noise of an hour: 3 % of the node, and 3 % of each of two GPUs."""
START = 24 * (PAST_DAYS + 3)
"""The rollout's hour: a week of comparable days before it, also for windows of a day."""
HOURS = START + 2 * LONGEST + GAP
RANKS = 4
"""Nodes of a job, where jobs have several."""


@dataclass(frozen=True, slots=True)
class Job:
    number: int
    level: float
    day: float
    """Height of its working day."""
    week_end: float
    """What it does then, of its level."""


class Fleet:
    """Hourly activity and job of every node: `levels[node][hour]`, `jobs[node][hour]`.

    `ranks` nodes share each job, and half of the noise's variance is the job's.
    """

    def __init__(self, seed: int, turnover: float, *, nodes: int = NODES, ranks: int = 1, noise: float = NOISE) -> None:
        self.rng = random.Random(seed)
        self._ends = 1 - (1 - turnover) ** (1 / 24)
        self._phase = self.rng.randrange(24 * 7)
        self._noise, self._ranks, self._last_job = noise, ranks, 0
        self.levels: list[list[float]] = []
        self.jobs: list[list[int]] = []
        for _ in range(nodes // ranks):
            self._add_job()
        self.lot = self.rng.sample(range(nodes), nodes)

    def _add_job(self) -> None:
        """Add the nodes of one job, and of those that follow it there."""
        rng, ranks = self.rng, range(self._ranks)
        steady = self._noise / math.sqrt(1 - KEPT**2)
        shared = math.sqrt(0.5) if self._ranks > 1 else 0.0
        own = math.sqrt(1 - shared**2)
        of_job, of_node = rng.gauss(0, steady), [rng.gauss(0, steady) for _ in ranks]
        rows: list[list[float]] = [[] for _ in ranks]
        job, jobs = self._job(), []
        for hour in range(HOURS):
            if rng.random() < self._ends:
                job = self._job()
            jobs.append(job.number)
            at = hour + self._phase
            level = job.level * (1 + job.day * math.sin(2 * math.pi * at / 24))
            level *= job.week_end if at % 168 >= 120 else 1
            of_job = KEPT * of_job + rng.gauss(0, self._noise) if shared else 0.0
            for rank in ranks:
                of_node[rank] = KEPT * of_node[rank] + rng.gauss(0, self._noise)
                rows[rank].append(level * math.exp(shared * of_job + own * of_node[rank]))
        self.levels += rows
        self.jobs += [jobs for _ in ranks]

    def _job(self) -> Job:
        self._last_job += 1
        uniform = self.rng.uniform
        return Job(self._last_job, uniform(0.3, 0.6), uniform(0.1, 0.3), 1 - uniform(0, 0.3))

    def mean(self, node: int, start: int, hours: int) -> float:
        return sum(self.levels[node][start : start + hours]) / hours

    def past(self, node: int, hours: int) -> float | None:
        """Return the mean in the hours of the second window on the days on which it had the job of the first one."""
        job, levels = self.jobs[node][START - 1], []
        days = math.ceil((hours + GAP) / 24)
        for day in range(days, days + PAST_DAYS):
            began = START + GAP - 24 * day
            if self.jobs[node][began] == job == self.jobs[node][began + hours - 1]:
                levels.append(self.mean(node, began, hours))
        return sum(levels) / len(levels) if levels else None

    def pair(self, node: int, hours: int, *, is_treated: bool, cluster: str = "", has_past: bool = False) -> Pair:
        before, after = self.mean(node, START - hours, hours), self.mean(node, START + GAP, hours)
        past = self.past(node, hours) if has_past else None
        return Pair(before, after, cluster or str(node), "", is_treated, past=past)


@dataclass(frozen=True, slots=True)
class Result:
    """Interval of the logarithm of the ratio, when nothing was changed."""

    low: float
    high: float


Simulated = Callable[[Fleet], Result | None]


def _result(effect: Effect) -> Result | None:
    interval = effect.ratio_interval
    return Result(math.log1p(interval.low), math.log1p(interval.high)) if interval else None


def parallel(hours: int, *, has_past: bool = False, only_stayed: bool = False) -> Simulated:
    """Two arms by lot, each with one window before and one after. `only_stayed`: nodes whose job ran through both."""

    def simulated(fleet: Fleet) -> Result | None:
        treated = set(fleet.lot[: len(fleet.lot) // 2])
        pairs = [
            fleet.pair(node, hours, is_treated=node in treated, has_past=has_past)
            for node, jobs in enumerate(fleet.jobs)
            if not only_stayed or jobs[START - hours] == jobs[START + GAP + hours - 1]
        ]
        return _result(estimation.difference_in_differences(pairs))

    return simulated


def paired(hours: int) -> Simulated:
    """Pairs of the nodes most alike in how they changed at these hours before; chance treats one node of each."""

    def simulated(fleet: Fleet) -> Result | None:
        def key(node: int) -> float:
            days = [
                fleet.mean(node, START + GAP - 24 * d, hours) / fleet.mean(node, START - hours - 24 * d, hours)
                for d in (1, 2, 3)
            ]
            return sum(days)

        order = sorted(range(len(fleet.levels)), key=key)
        pairs = []
        for first, second in zip(order[::2], order[1::2], strict=True):
            is_first = fleet.rng.random() < 0.5
            pairs.append(fleet.pair(first, hours, is_treated=is_first, cluster=f"pair {first}"))
            pairs.append(fleet.pair(second, hours, is_treated=not is_first, cluster=f"pair {first}"))
        return _result(estimation.difference_in_differences(pairs))

    return simulated


def crossover(periods: int, hours: int) -> Simulated:
    """Two halves by lot take turns with the setting, one with it while the other is without, GAP left out of each.

    The estimate is half of: mean log ratio of the halves where the first has it, less that where the second has it.
    """

    def simulated(fleet: Fleet) -> Result | None:
        half = len(fleet.lot) // 2
        starts = [START + number * (hours + GAP) for number in range(periods)]
        arms = [[[fleet.mean(node, at, hours) for at in starts] for node in arm]
                for arm in (fleet.lot[:half], fleet.lot[half:])]  # fmt: skip
        sums = [[sum(column) for column in zip(*arm, strict=True)] for arm in arms]

        def estimate(first: Sequence[float], second: Sequence[float]) -> float:
            signs = [1 if number % 2 else -1 for number in range(periods)]
            return sum(s * math.log(a / b) for s, a, b in zip(signs, first, second, strict=True)) / periods

        whole, parts = estimate(*sums), []
        for index, arm in enumerate(arms):
            squares = 0.0
            for values in arm:
                left = [total - value for total, value in zip(sums[index], values, strict=True)]
                squares += (estimate(*((left, sums[1]) if index == 0 else (sums[0], left))) - whole) ** 2
            parts.append((len(arm) - 1) / len(arm) * squares)
        freedom = sum(parts) ** 2 / sum(part**2 / (half - 1) for part in parts)
        width = t_quantile(0.5 + estimation.CONFIDENCE / 2, freedom) * math.sqrt(sum(parts))
        return Result(whole - width, whole + width)

    return simulated


@dataclass(frozen=True, slots=True)
class Design:
    title: str
    simulated: Simulated
    span: int
    """Hours from its first reading to its last."""


def _parallel(title: str, hours: int, simulated: Simulated) -> Design:
    return Design(title.format(f"{hours} h"), simulated, 2 * hours + GAP)


DESIGNS = [
    *(_parallel("Two arms, windows of {}", hours, parallel(hours)) for hours in (6, 3, 24)),
    *(
        _parallel("Two arms, windows of {}, adjusted by the past", hours, parallel(hours, has_past=True))
        for hours in (6, 3, 24)
    ),
    _parallel("Pairs of nodes alike, windows of {}", 6, paired(6)),
    _parallel("Jobs that ran through, windows of {}, adjusted", 6, parallel(6, has_past=True, only_stayed=True)),
    *(Design(f"Crossover, {n} periods of 3 h", crossover(n, 3), n * (3 + GAP) - GAP) for n in (4, 8)),
]


@dataclass(slots=True)
class Tally:
    """Results of one design over seeds."""

    seeds: int = 0
    false: int = 0
    """Verdicts where nothing was changed."""
    seen: dict[float, int] = field(default_factory=lambda: dict.fromkeys(EFFECTS, 0))
    """By the true effect: verdicts that it rose."""
    halves: list[float] = field(default_factory=list)
    """Half of each interval's width."""

    def add(self, result: Result | None) -> None:
        self.seeds += 1
        if result is None:
            return
        self.halves.append((result.high - result.low) / 2)
        self.false += result.low > 0 or result.high < 0
        for effect in EFFECTS:
            self.seen[effect] += result.low + math.log1p(effect) > 0

    @property
    def half(self) -> float:
        return median(self.halves)

    @property
    def power(self) -> str:
        return " / ".join(f"{100 * count / self.seeds:.0f}" for count in self.seen.values())


def simulate(designs: Sequence[Design], turnover: float, seeds: int = SEEDS, nodes: int = NODES) -> list[Tally]:
    """Return a tally of each design over the same fleets."""
    tallies = [Tally() for _ in designs]
    for seed in range(seeds):
        fleet = Fleet(seed, turnover, nodes=nodes)
        for design, tally in zip(designs, tallies, strict=True):
            tally.add(design.simulated(fleet))
    return tallies


# ── Jobs on several nodes ─────────────────────────────────────────────────────────────────────────────────────────────


def by_lot(fleet: Fleet) -> set[int]:
    return set(fleet.lot[: len(fleet.lot) // 2])


def within_jobs(fleet: Fleet) -> set[int]:
    """Half of the nodes of each job."""
    ranks = [range(first, first + RANKS) for first in range(0, len(fleet.lot), RANKS)]
    return {node for of_job in ranks for node in fleet.rng.sample(of_job, RANKS // 2)}


def whole_jobs(fleet: Fleet) -> set[int]:
    firsts = range(0, len(fleet.lot), RANKS)
    return {first + rank for first in fleet.rng.sample(firsts, len(firsts) // 2) for rank in range(RANKS)}


DRAWS = {"Nodes by lot": by_lot, "Half of each job's nodes": within_jobs, "Whole jobs": whole_jobs}


def jobs_of_several_nodes(turnover: float = 0.25, effect: float = 0.08, seeds: int = SEEDS) -> Table:
    """Compare who is drawn, where a job's nodes work alone, and where each step waits for its slowest node."""
    columns = [
        "Drawn",
        "Interval",
        f"+{effect:.0%} is measured as".replace("%", " %"),
        "where nodes wait for each other",
    ]
    table = Table(f"Jobs on {RANKS} nodes", columns)
    for title, draw in DRAWS.items():
        halves: list[float] = []
        alone: list[float] = []
        waiting: list[float] = []
        for seed in range(seeds):
            fleet = Fleet(seed, turnover, ranks=RANKS)
            treated = draw(fleet)
            changed = {n for n in treated if all(n // RANKS * RANKS + rank in treated for rank in range(RANKS))}
            for gets_it, estimates in ((treated, alone), (changed, waiting)):
                pairs = []
                for node in range(NODES):
                    pair = fleet.pair(node, 6, is_treated=node in treated, cluster=f"job {node // RANKS}")
                    after = pair.after * (1 + effect) if node in gets_it else pair.after
                    pairs.append(Pair(pair.before, after, pair.cluster, "", pair.is_treated))
                result = estimation.difference_in_differences(pairs)
                estimates.append(result.ratio or 0.0)
                if gets_it is treated and (interval := _result(result)):
                    halves.append((interval.high - interval.low) / 2)
        means = [f"{100 * sum(estimates) / seeds:+.1f} %" for estimates in (alone, waiting)]
        table.add(title, f"±{100 * median(halves):.1f} %", *means)
    return table


def measure(seeds: int = SEEDS) -> list[Table]:
    shares = [f"{turnover:.0%}".replace("%", " %") for turnover in TURNOVERS]
    widths = Table("Designs: half of the interval, and false verdicts", ["Design", "Node-hours", *shares])
    powers = Table("Designs: effects of 3 / 5 / 8 % that are detected, in %", ["Design", *shares])
    columns = [simulate(DESIGNS, turnover, seeds) for turnover in TURNOVERS]
    for index, design in enumerate(DESIGNS):
        row = [column[index] for column in columns]
        widths.add(
            design.title,
            NODES * design.span,
            *(f"±{100 * tally.half:.1f} % ({100 * tally.false / tally.seeds:.0f} %)" for tally in row),
        )
        powers.add(design.title, *(tally.power for tally in row))
    return [widths, powers, jobs_of_several_nodes(seeds=seeds)]
