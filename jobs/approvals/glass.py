"""Break-glass: permission to start a plan without its approvals, and what such a start is exempt from.

It replaces missing approvals and passes windows, for SETPOINT_BREAK_GLASS_HOURS. Everything else that holds a start
holds this one too: digest, budget, busy nodes, freezes, and the consent that a plan asks for which destroys objects.
"""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from accounts.access import freshness
from accounts.models import User
from accounts.permissions import Role, may
from common.clock import now
from common.errors import NotAllowed, WrongState
from jobs.approvals import glass_allowance, plan_actions, step_up, verdicts
from jobs.approvals.tickets import obstacles
from jobs.calendars import targets
from jobs.diffs.changes import Disruption
from jobs.models import BreakGlass, Plan, Rollout
from jobs.planning import consents

FROM = (Plan.Status.REVIEW, Plan.Status.APPROVED)
"""Its approval is requested first: then it is blocked by nothing, and approvers know of it. One that was sent back
carries an objection, which no glass passes."""


class NeverOverRest(NotAllowed):
    """The glass is broken by a person on the plan's page, and by no API token and no call of the API."""

    code = "break-glass-in-browser"

    def __init__(self) -> None:
        super().__init__(
            "Break-glass is started on the plan's page by a person with the role: never by token or over REST."
        )


def is_on() -> bool:
    return bool(settings.SETPOINT_BREAK_GLASS_CLASS)


def hours() -> int:
    """Return for how long after the start it counts."""
    return int(settings.SETPOINT_BREAK_GLASS_HOURS)


def is_permitted(plan: Plan, user: User) -> bool:
    """Return whether this person, in a browser, has the permission for the plan's cluster."""
    return is_on() and not _reason_of_person(plan, user)


def reason_not_to_break(plan: Plan, user: User) -> str:
    """Return why this person may not start this plan now by break-glass; empty when they may. Reads all of the plan."""
    of_person = _reason_of_person(plan, user) or _reason_of_reviews(user)
    return of_person or _reason_of_plan(plan) or glass_allowance.allowance().reason


def require(plan: Plan, by: User) -> None:
    """Call it in the start's transaction, under `glass_allowance.lock`.

    Raises NeverOverRest, NotAllowed, WrongState.
    """
    require_person(plan, by)
    if reason := _reason_of_reviews(by):
        raise NotAllowed(reason)
    if reason := _reason_of_plan(plan) or glass_allowance.allowance().reason:
        raise WrongState(reason)


def require_person(plan: Plan, by: User) -> None:
    """Raises NeverOverRest, NotAllowed."""
    if by.acting_token is not None:
        raise NeverOverRest
    if reason := _reason_of_person(plan, by):
        raise NotAllowed(reason)


def require_recent(proved_at: datetime | None) -> None:
    """Require a recent log-in, also where SETPOINT_STEP_UP asks for none. Raises FreshLoginNeeded."""
    if freshness.is_stale(proved_at):
        raise step_up.FreshLoginNeeded(
            f"Break-glass requires a log-in within {step_up.recent_words()} in this browser. Confirm that it is you "
            f"under {step_up.CONFIRM}, then start."
        )


def reason_not_to_begin(rollout: Rollout) -> str:
    """Explain, in a sentence, why a rollout whose plan lacks approvals must not begin; empty: by break-glass it may."""
    glass, plan = rollout.broken_glass, rollout.plan
    if glass is None:
        # Its time came after an approver lost the right to approve. What runs continues: half a plan is worse.
        standing = verdicts.approval_state(plan)
        if missing := sorted({need.rule.team for need in standing.wanted if need.rule.team}):
            return (
                f"{plan} is no longer approved: no approver of {', '.join(missing)} has approved it, and it touches "
                "what they own. A plan that was started cannot be approved any more. "
                "Abort it and plan again."
            )
        return f"{plan} is no longer approved: some approvers may no longer approve. Abort it and plan again."
    if is_in_force(rollout):
        return ""
    if glass.until <= now():
        until = f"{glass.until:%Y-%m-%d %H:%M} UTC"
        return f"{plan} has no approval, and its break-glass expired {until} before it began. Abort it and plan again."
    return f"{plan} has no approval, and {glass.person} may no longer use break-glass for it. Abort it."


def is_in_force(rollout: Rollout) -> bool:
    """Return whether the rollout's break-glass counts now: genuine, in time, of an allowed class, of one permitted."""
    glass = rollout.broken_glass
    if glass is None or not glass.is_genuine or glass.until <= now():
        return False
    if not glass.digest == rollout.digest == rollout.plan.digest or _reason_of_class(rollout.plan):
        return False
    return _has_roles(rollout.plan, glass.person)


# ── of persons ────────────────────────────────────────────────────────────────────────────────────────────────────────
def _reason_of_person(plan: Plan, user: User) -> str:
    if user.acting_token is not None:
        return str(NeverOverRest())
    if not _has_roles(plan, user):
        return f"This needs the roles break-glass and operator for {plan.cluster}. An administrator can grant them."
    return ""


def _has_roles(plan: Plan, user: User) -> bool:
    return all(may(user, role, plan.cluster.scopes) for role in (Role.BREAK_GLASS, Role.OPERATOR))


def _reason_of_reviews(user: User) -> str:
    overdue = BreakGlass.objects.filter(person=user).select_related("rollout").overdue()
    if not overdue:
        return ""
    name = overdue[0].rollout
    return f"The review of {name}, which you started by break-glass, is overdue: two approvers come first."


# ── of the plan ───────────────────────────────────────────────────────────────────────────────────────────────────────
def _reason_of_plan(plan: Plan) -> str:
    if plan.status not in FROM:
        return f"{plan} is {plan.state_in_words}: request its approval first, so that approvers know of it."
    if plan.late:
        return plan.late
    if reason := _reason_of_class(plan):
        return reason
    is_approved = verdicts.approval_state(plan).is_approved
    if not is_approved and consents.stored_phrase(plan):
        return (
            f"{plan} makes changes that a revert cannot undo: its approvers must type their consent, "
            "which break-glass does not replace."
        )
    if frozen := targets.active_freeze(plan.cluster, plan.pool_id):
        return f"{targets.FREEZE_IS_ACTIVE} {frozen.reason} Break-glass does not override a freeze: have it lifted."
    is_open = targets.opening_of(plan.cluster, plan.pool_id).is_open
    if is_approved and is_open and not obstacles.obstacle(plan):
        return f"{plan} is approved and no window holds it: start it as usual."
    return plan_actions.obstacle_beside_approval(plan)


def _reason_of_class(plan: Plan) -> str:
    most = settings.SETPOINT_BREAK_GLASS_CLASS
    if not most:
        return "Break-glass is off here: SETPOINT_BREAK_GLASS_CLASS names no class."
    if plan.is_uncounted:
        return f"The class of {plan} is unknown: a part could not be prepared. Break-glass needs a known class."
    if Disruption(plan.worst_class).rank > Disruption(most).rank:
        return (
            f"{plan} is of class {plan.worst_class}. Break-glass goes up to {most} here (SETPOINT_BREAK_GLASS_CLASS)."
        )
    return ""
