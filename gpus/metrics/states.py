"""State of one GPU, in a word, and the funnel that the states add up to. docs/gpu.md defines each for readers.

A GPU counts by what the API server offers and hands out; its activity comes from telemetry. Where the two do not match,
the GPU has no telemetry: it is never drawn as idle, as free or as zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpus.metrics.samples import Metric

IDLE_BELOW = 0.05
"""Busy and engine activity both below: the GPU does nothing. One alone proves nothing, engines are silently 0."""
EFFECTIVE_FROM = 0.5
"""SM activity; where it is not exported engine activity, where that is not either, busy."""
EFFECTIVE, LOW, HELD, FREE, OUT, NONE = "effective", "low", "held", "free", "out", "none"
STATES = (EFFECTIVE, LOW, HELD, FREE, OUT, NONE)
Values = Mapping[str, float]


def of_held(values: Values, *, is_suspect: bool, is_instance: bool, idle_below: float = IDLE_BELOW) -> str:
    """Return the state of a GPU that pods hold, by its present sample."""
    busy, engine = values.get(Metric.BUSY), values.get(Metric.ENGINE)
    proof = engine if is_instance else busy
    if proof is None or is_suspect:
        return NONE
    if all(value is None or value < idle_below for value in (busy, engine)):
        return HELD
    judged = next(v for v in (values.get(Metric.SM), engine, busy) if v is not None)
    return EFFECTIVE if judged >= EFFECTIVE_FROM else LOW


@dataclass(slots=True)
class Tally:
    """GPUs of a node, cluster, model or fleet; the states always sum to `total`."""

    counts: Counter[str] = field(default_factory=Counter)
    held_unknown: int = 0
    """Held by pods, without telemetry that says what they do: part of `none`."""

    @classmethod
    def of_node(cls, *, offered: int, allocated: int, is_out: bool, held: Iterable[str], free: int) -> Tally:
        """`held` are the states of GPUs that telemetry sees held, `free` how many it sees free; both only if current.

        A pod that the API server knows and telemetry does not yet, or no more, is believed; so is a GPU that only one
        of the two knows.
        """
        states = Counter(held)
        seen = states.total()
        allocated = max(allocated, seen)
        offered = max(offered, allocated, seen + free)
        unknown = allocated - seen
        rest = offered - allocated
        blind = max(0, rest - free)  # free according to the API server, and no telemetry of them
        states[NONE] += unknown + (0 if is_out else blind)
        states[OUT if is_out else FREE] += rest if is_out else rest - blind
        return cls(states, held_unknown=states[NONE] - (0 if is_out else blind))

    def add(self, other: Tally) -> None:
        self.counts.update(other.counts)
        self.held_unknown += other.held_unknown

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def allocated(self) -> int:
        return self.active + self.counts[HELD] + self.held_unknown

    @property
    def active(self) -> int:
        return self.counts[EFFECTIVE] + self.counts[LOW]

    @property
    def effective(self) -> int:
        return self.counts[EFFECTIVE]

    @property
    def free(self) -> int:
        return self.counts[FREE]

    @property
    def low(self) -> int:
        return self.counts[LOW]

    @property
    def held_idle(self) -> int:
        return self.counts[HELD]

    @property
    def out(self) -> int:
        """Free, on a node that is cordoned or not ready."""
        return self.counts[OUT]

    @property
    def no_telemetry(self) -> int:
        return self.counts[NONE]

    @property
    def free_unknown(self) -> int:
        return self.no_telemetry - self.held_unknown

    @property
    def bands(self) -> list[tuple[str, int]]:
        return [(state, self.counts[state]) for state in STATES]

    @property
    def allocated_bands(self) -> list[tuple[str, int]]:
        held = {NONE: self.held_unknown, FREE: 0, OUT: 0}
        return [(state, held.get(state, self.counts[state])) for state in STATES]

    @property
    def active_bands(self) -> list[tuple[str, int]]:
        return [(EFFECTIVE, self.effective), (LOW, self.low)]

    @property
    def effective_bands(self) -> list[tuple[str, int]]:
        return [(EFFECTIVE, self.effective)]
