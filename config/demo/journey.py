"""The clock of the demo: it starts days ago, is moved on while the history is made, and arrives at the present.

While it travels, Django's clock, which `common.clock` reads, is this one, so that the product and the simulated fleet
live in the same time: drains, reboots and soaking that would take hours are made in seconds, by the same code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from django.utils import timezone

MOMENT_SECONDS = 0.001


class Journey:
    """A `simfleet.clock.Clock`: moved by hand until `arrive`, the wall's from then on."""

    def __init__(self) -> None:
        self._at: datetime | None = None

    def now(self) -> datetime:
        """Aware, UTC. Asking takes a moment, so that no two records bear the same one and their order is kept."""
        self.advance(MOMENT_SECONDS)
        return self._at or datetime.now(tz=UTC)

    def advance(self, seconds: float) -> None:
        """The wall does not wait to be told, and the past must not overtake it."""
        if self._at is not None:
            self._at = min(self._at + timedelta(seconds=seconds), datetime.now(tz=UTC))

    def present(self) -> datetime:
        """The wall's, wherever the journey is."""
        return datetime.now(tz=UTC)

    def jump_to(self, ago: timedelta) -> None:
        """Be at so long before the present, unless it is later already."""
        self.advance(max(0.0, (datetime.now(tz=UTC) - ago - self.now()).total_seconds()))

    @contextmanager
    def from_long_ago(self, ago: timedelta) -> Iterator[None]:
        """Travel for a block. Nothing else of the process may run meanwhile: all clocks are this one."""
        present = timezone.now
        self._at = datetime.now(tz=UTC) - ago
        timezone.now = self.now
        try:
            yield
        finally:
            self._at = None
            timezone.now = present
