"""Time that a step needs in a window of its target, and whether any window has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from jobs.calendars.open_times import CalendarEntry, Span, open_spans
from jobs.forecast.estimates import MARGIN, PART_SECONDS
from jobs.models import PlanComponent

HORIZON = timedelta(days=62)
"""How far windows are looked for: what waits longer is a mistake in the calendar."""


def part_seconds(summary: Mapping[str, Any], component: str, kind: str) -> float:
    """Return what a plan reckoned with for a component or a group of policy objects. `kind`: of the plan's row or of
    the rollout's step, which name a component's differently.
    """
    known: Mapping[str, float] = (summary.get("parts") or {}).get("seconds", {})
    of_plan = PlanComponent.Kind.POLICIES if kind == PlanComponent.Kind.POLICIES else PlanComponent.Kind.RELEASE
    return float(known.get(component) or PART_SECONDS[of_plan])


def part_needed(summary: Mapping[str, Any], component: str, kind: str) -> float:
    """Return the seconds that must be left in a window for a component or a group of policy objects: one time is
    known of it, the last, so a margin is added.
    """
    return part_seconds(summary, component, kind) * MARGIN


def next_long_enough(entries: Sequence[CalendarEntry], needed: timedelta, at: datetime) -> Span | None:
    """Return the first open time within HORIZON that holds a step of this length; None: there is none."""
    spans = open_spans(entries, at, at + HORIZON)
    return next((span for span in spans if span.end - span.start >= needed), None)
