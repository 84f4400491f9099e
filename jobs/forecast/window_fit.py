"""Time that a step needs in a window of its target: its median, and a margin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from jobs.calendars.open_times import CalendarEntry, open_spans
from jobs.forecast.estimates import PART_SECONDS
from jobs.models import PlanComponent

MARGIN = 1.25
"""How much longer than the median a step may take and still end inside its window. A judgment, not measured; what takes
longer finishes after the window closed."""
HORIZON = timedelta(days=62)
"""How far windows are looked for: what waits longer is a mistake in the calendar."""


def with_margin(seconds: float) -> float:
    """Return the time that must be left in a window for a step of a median of `seconds`."""
    return seconds * MARGIN


def part_seconds(summary: Mapping[str, Any], component: str, kind: str) -> float:
    """Return what a plan reckoned with for a component or a group of policy objects."""
    known: Mapping[str, float] = (summary.get("parts") or {}).get("seconds", {})
    return float(known.get(component) or PART_SECONDS[PlanComponent.Kind(kind)])


def is_ever_long_enough(entries: Sequence[CalendarEntry], needed: timedelta, at: datetime) -> bool:
    """Return whether any open time within HORIZON holds a step of this length."""
    return any(span.end - span.start >= needed for span in open_spans(entries, at, at + HORIZON))
