"""Limit on starts by break-glass in a day, in all clusters together: the glass is for emergencies, and no workflow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from jobs.models import BreakGlass
from jobs.models.break_glass import DAY
from jobs.models.short_numbers import next_number


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
            f"Break-glass was used {self.used} times in the last 24 hours, of {self.limit} "
            f"(SETPOINT_BREAK_GLASS_PER_DAY). It is possible again {self.next_at:%Y-%m-%d %H:%M} UTC; have the plan "
            "approved until then."
        )


def allowance() -> GlassAllowance:
    limit = settings.SETPOINT_BREAK_GLASS_PER_DAY
    times = list(BreakGlass.objects.recent().order_by("-at", "pk").values_list("at", flat=True))
    is_left = len(times) < limit
    return GlassAllowance(len(times), limit, None if is_left else times[limit - 1] + DAY)


def lock() -> None:
    """Let starts by break-glass be judged one after the other until the transaction ends: the last one is used once."""
    next_number("glass")
