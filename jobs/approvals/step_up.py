"""Step-up: approving a plan that is disruptive enough takes a recent proof of who is before the browser."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from accounts.access import freshness
from common.errors import NotAllowed
from jobs.diffs.changes import Disruption
from jobs.models import Plan
from jobs.planning import consents
from jobs.policy import judgement
from jobs.policy.judgement import PolicyJudgement

CONFIRM = "/account/confirm/"


class FreshLoginNeeded(NotAllowed):
    """The approver's log-in is too long ago, or there was none: a token has none."""

    code = "fresh-login-needed"


def is_too_old(plan: Plan, proved_at: datetime | None, policy: PolicyJudgement | None = None) -> bool:
    """Return whether approving this plan needs a more recent proof than that.
    `policy`: its judgment by the policy, where it was made already.
    """
    return _is_asked_of(plan, policy) and freshness.is_stale(proved_at)


def _is_asked_of(plan: Plan, policy: PolicyJudgement | None) -> bool:
    """Return whether the plan is disruptive enough, does what no revert undoes, or the approval policy asks for it."""
    least = settings.SETPOINT_STEP_UP
    if least and (Disruption(plan.worst_class).rank >= Disruption(least).rank or consents.stored_phrase(plan)):
        return True
    return bool((policy or judgement.judge_plan(plan)).fresh_login_rules)


def require_recent(plan: Plan, proved_at: datetime | None) -> None:
    """Raises FreshLoginNeeded."""
    if is_too_old(plan, proved_at):
        raise FreshLoginNeeded(
            f"Approving {plan} (class {plan.worst_class}) requires a log-in within {recent_words()} in this browser. "
            f"Confirm that it is you under {CONFIRM}, then approve. An API token cannot."
        )


def recent_words() -> str:
    """Return how recent, in words: `the last 15 minutes`."""
    minutes = settings.SETPOINT_STEP_UP_MINUTES
    return "the last minute" if minutes == 1 else f"the last {minutes} minutes"
