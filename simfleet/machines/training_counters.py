"""Metrics of a simulated trainer at any time, in the names of prime-rl's src/prime_rl/trainer/metrics_server.py.

Its step follows from the time since the job's start alone: it trains, saves a checkpoint now and then, fails once in a
while, and continues from the last checkpoint, so what every restart took back can be computed by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simfleet.machines.host_counters import Sample


@dataclass(frozen=True, slots=True)
class TrainingLoad:
    step: float = 4.0
    """Seconds."""
    checkpoint: float = 900.0
    """Seconds of training between two checkpoints."""
    loads: float = 240.0
    """Seconds from a start until the first step begins."""
    fails: float = 10_800.0
    """Seconds from one start to the next."""

    @property
    def kept(self) -> float:
        """Seconds of training between two starts that are in the last checkpoint."""
        return (self.fails - self.loads) // self.checkpoint * self.checkpoint

    def steps(self, passed: float) -> int:
        """Return the step so many seconds after the job's start; 0 until a step of this process is done."""
        before, within = divmod(passed, self.fails)
        done = int((within - self.loads) // self.step)
        return round(before * self.kept / self.step) + done if done > 0 else 0


def samples(at: float, start: float, load: TrainingLoad) -> Iterator[Sample]:
    """Yield what the trainer prints at this time; nothing before its start."""
    if at < start:
        return
    step = load.steps(at - start)
    yield "trainer_step", {}, float(step)
    yield "trainer_loss", {}, round(1.6 + 8.0 / (1 + step / 400), 4) if step else 0.0
    yield "trainer_throughput_tokens_per_sec", {}, 410_000.0 if step else 0.0
    yield "trainer_last_step_timestamp_seconds", {}, at - (at - start) % load.step if step else 0.0
