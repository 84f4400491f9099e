"""GPU boards: their capabilities, each kind of work's load on one over time, and the resulting values. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Board:
    """Capabilities of a product."""

    name: str
    """As the driver says it."""
    memory: int
    watts: tuple[float, float]
    """Idle, and at full load."""
    mhz: tuple[int, int]
    """SM clock idle, and at most."""
    memory_mhz: int
    nvlink: float = 0.0
    """Bytes a second of all its links, both directions; 0: it has none."""


BOARDS: Mapping[str, Board] = {
    "NVIDIA-H100-80GB-HBM3": Board("NVIDIA H100 80GB HBM3", 80 * GIB, (72.0, 700.0), (345, 1980), 2619, 900e9),
    "NVIDIA-L40S": Board("NVIDIA L40S", 48 * GIB, (35.0, 350.0), (210, 2520), 9001),
}


@dataclass(frozen=True, slots=True)
class Work:
    """Load of one kind of pod on a GPU it holds, at load 1, on a well-tuned node."""

    busy: float
    engine: float
    sm: float
    tensor: float
    bandwidth: float
    memory: float
    """Share of the memory that it keeps, at any load."""
    swing: float = 0.0
    """How far the load falls below 1, in waves of `WAVE_SECONDS`."""
    load: float = 1.0
    host_bound: float = 0.0
    """How much of what `slowing` takes it feels: 1 all of it."""

    def slowed(self, by: float) -> Work:
        """Return the work on a node that takes this share of its host-bound part.

        Kernels wait for the host or for each other while they run, so what they achieve falls by all of it, and the
        time in which any runs by a third.
        """
        if not (lost := by * self.host_bound):
            return self
        less, hardly = 1 - lost, 1 - lost / 3
        return Work(
            self.busy * hardly,
            self.engine * hardly,
            self.sm * less,
            self.tensor * less,
            self.bandwidth * less,
            self.memory,
            self.swing,
            self.load,
        )

    @property
    def share_of_power(self) -> float:
        """Share of the power between idle and full load."""
        return 0.25 * self.busy + 0.35 * self.sm + 0.6 * self.tensor + 0.15 * self.bandwidth


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU now, or an instance of one, in base units: ratios 0–1, bytes, watts, joules, degrees, hertz, seconds.

    Of an instance, power, energy, temperatures, clock and errors are its board's.
    """

    node: str
    index: int
    uuid: str
    board: Board
    pod: tuple[str, str, str] | None
    busy: float
    """No exporter says it of an instance."""
    engine: float
    sm: float
    tensor: float
    bandwidth: float
    memory: int
    memory_used: int
    memory_reserved: int
    power: float
    energy: float
    temperature: int
    memory_temperature: int
    sm_clock: float
    thermal_throttled: float
    xid: int
    rows_remapped: int
    """After uncorrectable errors."""
    instance: str = ""
    profile: str = ""
    nvlink: float = 0.0
    """Bytes a second over its links."""

    @property
    def is_lost(self) -> bool:
        """Fell off the bus: the driver cannot ask it any more."""
        return self.xid == 79

    @property
    def memory_free(self) -> int:
        return self.memory - self.memory_used - self.memory_reserved


WAVE_SECONDS = 1200.0
FREE = Work(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, load=0.0)
TRAINING = Work(0.98, 0.96, 0.86, 0.44, 0.56, 0.88, host_bound=1.0)
STARVED = Work(0.72, 0.41, 0.27, 0.09, 0.16, 0.71, host_bound=1.0)
"""Waits for its data most of the time."""
SERVING = Work(0.93, 0.84, 0.68, 0.26, 0.61, 0.82, swing=0.9, host_bound=0.25)
ASLEEP = Work(0.0, 0.0, 0.0, 0.0, 0.0, 0.46, load=0.0)
"""Holds the GPU and its memory, and does nothing."""
NOTEBOOK = Work(0.6, 0.5, 0.34, 0.08, 0.22, 0.5, swing=0.8)
"""A person runs a cell, and thinks."""


def load(work: Work, phase: int, at: datetime) -> float:
    """0 to 1: waves between full load and `swing` below it."""
    if not work.swing:
        return work.load
    wave = 0.5 + 0.5 * math.sin(2 * math.pi * at.timestamp() / WAVE_SECONDS + phase / 100)
    return work.load * (1 - work.swing * wave)


def loaded_seconds(work: Work, phase: int, since: datetime, until: datetime) -> float:
    """The integral of `load`."""
    begin, end = since.timestamp(), until.timestamp()
    omega, shift = 2 * math.pi / WAVE_SECONDS, phase / 100
    waves = 0.5 * (end - begin) - 0.5 * (math.cos(omega * end + shift) - math.cos(omega * begin + shift)) / omega
    return work.load * ((end - begin) - work.swing * waves)
