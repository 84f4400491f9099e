"""Break-glass as pages show it: whether a plan may be started so, and which starts still lack their reviews."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accounts.models import User
from jobs.approvals import glass, glass_reviews
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
    return {"reason_not_to": glass.reason_not_to_break(plan, user), "hours": glass.hours()}


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
    rows = BreakGlass.objects.unreviewed().filter(rollout__in=selectors.visible_rollouts(user).order_by().values("pk"))
    related = ("person", "rollout__plan__revision", "rollout__plan__cluster", "rollout__cluster")
    lacking = rows.select_related(*related).prefetch_related("reviews").order_by("review_by", "pk")
    return [GlassUse(row, not glass_reviews.reason_not_to_review(row, user)) for row in lacking]
