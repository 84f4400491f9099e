"""Sentences about nodes that are not at their pool's target, for pages."""

from __future__ import annotations

from clusters.models import Pool
from common.hooks import WorkRef


def waits_for(nodes: int, pool: Pool, rollout: WorkRef | None, plan: WorkRef | None) -> str:
    """Return what so many pending nodes of a pool wait for; it follows their number."""
    s = "s" if nodes == 1 else ""
    if rollout:
        return f"wait{s} for R-{rollout.number}"
    if plan is None:
        return f"in {pool.name} need{s} a plan"
    if is_not_requested(plan):
        return f"in {pool.name}: approval not requested for P-{plan.number}"
    return f"wait{s} for P-{plan.number}"


def is_not_requested(plan: WorkRef | None) -> bool:
    return plan is not None and plan.status == "draft"


NEXT_OF_PLAN = {
    "draft": "is drafted for it: review its changes and request approval.",
    "approved": "is approved and can be started.",
    "changes": "was sent back for changes.",
}


def next_of_plan(plan: WorkRef) -> str:
    """Return the next step of the plan that a node waits for; it follows the plan's name."""
    return NEXT_OF_PLAN.get(plan.status, "needs review.")
