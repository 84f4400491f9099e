"""Start by break-glass: without approvals and outside windows, by a permitted person in a browser (law 2's exception).

Every such rollout is marked for ever by its row, and reviewed afterwards (jobs.approvals.glass_reviews).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from accounts.models import User
from common.clock import now
from common.errors import Invalid, WrongState
from jobs.approvals import glass, glass_allowance, verdicts
from jobs.approvals.tickets import obstacles
from jobs.engine import event_log
from jobs.models import BreakGlass, Plan, Rollout
from jobs.rollouts import rollout_actions

REASON_CHARACTERS = 500
"""The column's length."""


def start(plan: Plan, *, by: User, digest: str, reason: str, confirmation: str, proved_at: datetime | None) -> Rollout:
    """Begin exactly what `digest` names, at once. `confirmation`: the plan's name, typed.

    `proved_at`: when the person last proved who they are (accounts.access.freshness).

    Raises NeverOverRest, NotAllowed, FreshLoginNeeded, Invalid, WrongState.
    """
    glass.require_person(plan, by)
    glass.require_recent(proved_at)
    reason = _checked(plan, reason, confirmation)
    with transaction.atomic():
        # In this order everywhere: two starts are judged one after the other, and so is what else starts the plan.
        glass_allowance.lock()
        by = User.objects.select_for_update(no_key=True).get(pk=by.pk)
        rollout_actions.lock_fleet_run(plan)
        plan = Plan.objects.select_for_update().select_related("cluster", "revision", "pool").get(pk=plan.pk)
        obstacles.lock_record(plan)
        glass.require(plan, by)
        if digest != plan.digest:
            raise WrongState(
                f"{plan} is not what you saw: its digest is {plan.digest[:19]}… now. Reload it and try again."
            )
        missing = verdicts.approval_state(plan).missing
        rollout = rollout_actions.create(plan, by=by, at=None)
        row = BreakGlass.objects.create(
            rollout=rollout,
            digest=plan.digest,
            person=by,
            reason=reason,
            worst_class=plan.worst_class,
            until=now() + timedelta(hours=glass.hours()),
            review_by=now() + timedelta(hours=settings.SETPOINT_BREAK_GLASS_REVIEW_HOURS),
        )
        event_log.log(rollout, f"Started by break-glass by {by}: {reason}", "warn")
        about = {"until": row.until.isoformat(), "review_by": row.review_by.isoformat(), "worst_class": row.worst_class}
        about |= {"change_record": plan.change_record} if plan.change_record else {}
        rollout_actions.record(
            rollout, by, "rollout.break-glass", reason, digest=plan.digest, missing_approvals=missing, **about
        )
    return rollout


def _checked(plan: Plan, reason: str, confirmation: str) -> str:
    """Return the reason. Raises Invalid."""
    reason, fields = reason.strip(), {}
    if not reason:
        fields["reason"] = ["Give the reason; everyone who is notified reads it."]
    elif len(reason) > REASON_CHARACTERS:
        fields["reason"] = [f"At most {REASON_CHARACTERS} characters, not {len(reason)}."]
    if confirmation.strip() != str(plan):
        fields["confirmation"] = [f"Type {plan} to confirm."]
    if fields:
        raise Invalid("The rollout was not started.", fields=fields)
    return reason
