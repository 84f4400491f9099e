"""Clocks of the simulated fleet: a test's, which moves only when advanced, or the wall clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware, UTC."""

    def advance(self, seconds: float) -> None:
        """Move to `seconds` later. A clock that moves by itself does nothing."""


class SimClock:
    """Clock that moves only when advanced."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class FrozenClock:
    """A test's frozen `datetime`: advancing the fleet advances what Django sees, and the other way round.

    `freezer` is what freezegun's `freeze_time` yields: anything with `tick(timedelta)`.
    """

    def __init__(self, freezer: Any) -> None:
        self._freezer = freezer

    def now(self) -> datetime:
        return datetime.now(tz=UTC)

    def advance(self, seconds: float) -> None:
        self._freezer.tick(timedelta(seconds=seconds))


class WallClock:
    """The wall's, or one that runs `speed` times as fast from its making on."""

    def __init__(self, speed: float = 1.0) -> None:
        self._speed, self._from = speed, datetime.now(tz=UTC)

    def now(self) -> datetime:
        return self._from + (datetime.now(tz=UTC) - self._from) * self._speed

    def advance(self, seconds: float) -> None:
        """The wall does not wait to be told."""


def stamp(at: datetime) -> str:
    """Format a time as Kubernetes' `metav1.Time`."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_stamp(at: datetime) -> str:
    """Format a time as Kubernetes' `metav1.MicroTime`, used by Leases."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
