"""Limit on starts by break-glass in a day, in all clusters together: the glass is for emergencies, and no workflow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from jobs.models import BreakGlass, short_numbers
from jobs.models.break_glass import DAY


@dataclass(frozen=True, slots=True)
class GlassAllowance:
    used: int
    """Starts of the last 24 hours, reviewed or not, by anyone."""
    limit: int
    next_at: datetime | None
    """When the next is possible; None: now."""

    @property
    def reason(self) -> str:
        """Explain why no start is left; empty: one is."""
        if self.next_at is None:
            return ""
        return (
            f"The limit of starts by break-glass in 24 hours is reached: {self.used} of {self.limit} "
            f"(SETPOINT_BREAK_GLASS_PER_DAY). The next is possible at {self.next_at:%Y-%m-%d %H:%M} UTC. Request "
            "approval instead."
        )


def allowance() -> GlassAllowance:
    limit = settings.SETPOINT_BREAK_GLASS_PER_DAY
    times = [use.used_at for use in BreakGlass.objects.recent()]
    is_left = len(times) < limit
    return GlassAllowance(len(times), limit, None if is_left else times[limit - 1] + DAY)


def lock() -> None:
    """Let starts by break-glass be judged one after the other until the transaction ends: the last one is used once."""
    short_numbers.lock("glass")
