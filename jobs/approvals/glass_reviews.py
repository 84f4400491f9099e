"""Reviews after break-glass: two people who could have approved the plan say whether it was justified, in time.

A review counts for good if its row is as it was stored, also once its person left or lost the role: it says what was
checked then, and an old start does not become overdue because a reviewer left.
"""

from __future__ import annotations

from datetime import datetime

from django.db import IntegrityError, transaction

from accounts.models import User
from audit import services as audit
from common.clock import now
from common.errors import Invalid, NotAllowed, WrongState
from jobs.approvals import rules, step_up, verdicts
from jobs.models import BreakGlass, GlassReview, Rollout

TEXT_CHARACTERS = 2000
"""The column's length."""


def reason_not_to_review(glass: BreakGlass, user: User) -> str:
    """Return why this person may not review it; empty when they may. As for approvals, and never its starter."""
    plan = glass.rollout.plan
    if user.pk == glass.person_id:
        return "The person who started it cannot review it."
    if reason := verdicts.reason_not_to_judge(plan, user):
        return reason
    if not rules.held_role_at(user, "approver", plan.cluster.scopes, glass.at):
        return f"The role approver was given after {glass.rollout} was started: it counts for later ones."
    if any(row.person_id == user.pk for row in glass.reviews.all()):
        return f"You reviewed {glass.rollout} already."
    return ""


def review(rollout: Rollout, *, by: User, verdict: str, text: str, proved_at: datetime | None) -> GlassReview:
    """Store one review. Raises NotAllowed, FreshLoginNeeded where approving would, Invalid, WrongState."""
    glass = rollout.broken_glass
    if reason := reason_not_to_review(glass, by) if glass else verdicts.reason_not_to_judge(rollout.plan, by):
        raise NotAllowed(reason)
    if glass is None:
        raise WrongState(f"{rollout} was not started by break-glass: there is nothing to review.")
    step_up.require_recent(rollout.plan, proved_at)
    text = text.strip()
    fields = {}
    if verdict not in GlassReview.Verdict.values:
        fields["verdict"] = [f"Choose one of {', '.join(GlassReview.Verdict.values)}."]
    if not text or len(text) > TEXT_CHARACTERS:
        fields["text"] = [f"Write what you checked, in at most {TEXT_CHARACTERS} characters."]
    if fields:
        raise Invalid("The review was not stored.", fields=fields)
    try:
        with transaction.atomic():
            row = GlassReview.objects.create(glass=glass, person=by, verdict=verdict, text=text)
            _record(glass, by, "rollout.break-glass-review", text, verdict=verdict)
    except IntegrityError as error:  # one_review_a_person
        raise WrongState(f"You reviewed {glass.rollout} already.") from error
    return row


def report_overdue() -> int:
    """Record, once each, that a review is overdue; notices read it there. Returns how many."""
    count = 0
    for glass in BreakGlass.objects.filter(told_at=None).select_related("rollout__cluster", "person").overdue():
        with transaction.atomic():
            if not BreakGlass.objects.filter(pk=glass.pk, told_at=None).update(told_at=now()):
                continue
            text = f"{glass.missing} of its reviews {'is' if glass.missing == 1 else 'are'} missing since the deadline."
            _record(glass, None, "rollout.break-glass-overdue", text, starter=str(glass.person))
            count += 1
    return count


def _record(glass: BreakGlass, by: User | None, action: str, message: str, **after: object) -> None:
    audit.record(
        by=by,
        action=action,
        target=f"rollout:{glass.rollout_id}",
        target_name=str(glass.rollout),
        cluster_id=glass.rollout.cluster_id,
        message=message,
        after=after,
    )
