"""Break-glass as pages show it: whether a plan may be started so, and which starts still lack their reviews."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings

from accounts.models import User
from jobs.approvals import glass, glass_allowance, glass_reviews
from jobs.models import BreakGlass, Plan, Rollout
from jobs.reports import selectors


@dataclass(frozen=True, slots=True)
class GlassUse:
    """One start that lacks reviews, as the overview lists it."""

    row: BreakGlass
    is_to_review: bool
    """By the person who looks."""


def offer_of_plan(plan: Plan, user: User) -> dict[str, Any] | None:
    """None for those without the permission, and of a plan that is neither in review nor approved."""
    if plan.status not in glass.FROM or not glass.is_permitted(plan, user):
        return None
    reason, allowance = glass.reason_not_to_break(plan, user), glass_allowance.allowance()
    return {"reason_not_to": reason, "hours": glass.hours(), "allowance": allowance}


def setup() -> dict[str, Any]:
    """Return how break-glass is set up, and how much of a day's starts is used."""
    allowance = glass_allowance.allowance()
    return {
        "is_on": glass.is_on(),
        "worst_class": settings.SETPOINT_BREAK_GLASS_CLASS,
        "hours": glass.hours(),
        "review_hours": settings.SETPOINT_BREAK_GLASS_REVIEW_HOURS,
        "per_day": allowance.limit,
        "used": allowance.used,
        "next_at": allowance.next_at,
    }


def of_rollout(rollout: Rollout, user: User) -> dict[str, Any] | None:
    """Return the part of a rollout's page about its start; None: it was started with its approvals."""
    row = rollout.broken_glass
    if row is None:
        return None
    return {
        "row": row,
        "reviews": list(row.reviews.select_related("person")),
        "reason_not_to": glass_reviews.reason_not_to_review(row, user),
    }


def unreviewed(user: User) -> list[GlassUse]:
    """Uses that lack reviews, the most urgent first. One query where there are none."""
    rows = BreakGlass.objects.filter(rollout__in=selectors.visible_rollouts(user).order_by().values("pk"))
    related = ("person", "rollout__plan__revision", "rollout__plan__cluster", "rollout__cluster")
    lacking = rows.select_related(*related).order_by("review_by", "pk").lacking_reviews()
    lacking.sort(key=lambda row: not row.is_overdue)
    return [GlassUse(row, not glass_reviews.reason_not_to_review(row, user)) for row in lacking]
