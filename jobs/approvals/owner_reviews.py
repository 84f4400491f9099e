"""Reviews by the teams that own what a plan touches, for its page and REST: given, and missing."""

from __future__ import annotations

from dataclasses import dataclass

from accounts.models import User
from accounts.people import owners as team_owners
from accounts.permissions import TEAM
from jobs.approvals.verdicts import ApprovalState
from jobs.forecast import owners
from jobs.models import Plan


@dataclass(frozen=True, slots=True)
class OwnerReview:
    """One owner of a plan, and the approvals that count as its."""

    name: str
    is_gone: bool
    is_required: bool
    """The approval policy asks for it."""
    approved_by: tuple[User, ...]

    @property
    def sentence(self) -> str:
        """Return what is missing, or by whom it was reviewed."""
        if self.approved_by:
            return f"Approved by {', '.join(map(str, self.approved_by))} of the team."
        if self.is_gone:
            return "The team was removed: no one can approve for it. Give what it owned another owner, and plan again."
        needed = "The approval policy requires it." if self.is_required else "The approval policy does not require it."
        return f"No member of the team has approved it yet. {needed}"


def reviews_of(plan: Plan, standing: ApprovalState) -> list[OwnerReview]:
    """Return the plan's owners, by name. `standing` is the state of its approval."""
    required = {need.rule.of_scope for need in standing.needs if need.rule.team}
    rows = owners.owners_of([plan])[plan.pk]
    known = owners.team_names() if rows else {}
    return [
        OwnerReview(
            row.name,
            row.is_gone,
            f"{TEAM}{row.team}" in required,
            tuple(
                person
                for person in standing.approved_by
                if team_owners.belonged_at(person, row.team, plan.requested_at, known)
            ),
        )
        for row in rows
    ]
