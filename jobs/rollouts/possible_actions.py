"""Actions that a rollout offers, from one table: whether its state permits each, and whether a person may (law 10)."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from accounts.models import User
from accounts.permissions import may
from common.clock import now
from jobs.approvals import plan_actions
from jobs.engine import batch_gates
from jobs.forecast.strategy import Strategy
from jobs.models import Rollout, Step

RS = Rollout.Status
Status = Step.Status

CAN_BE_PUT_BACK = (Status.SUCCEEDED, Status.FAILED, Status.HELD, Status.SKIPPED)


@dataclass(frozen=True, slots=True)
class RolloutAction:
    """One verb as a button or an API action: whether the state permits it, and why not."""

    verb: str
    why_not: str
    """As it follows “Not possible: ”, without a full stop; empty where it is possible."""
    follows: str

    @property
    def is_possible(self) -> bool:
        return not self.why_not

    @property
    def reason(self) -> str:
        """The reason against it, or what follows."""
        return f"Not possible: {self.why_not}." if self.why_not else self.follows


POSSIBLE: dict[str, tuple[set[str], str, str]] = {
    "pause": ({RS.QUEUED, RS.RUNNING}, "it is not running", "Starts nothing new; in-progress nodes finish."),
    "resume": ({RS.PAUSED}, "it is not paused", "Continues with the next node."),
    "go-on": ({RS.RUNNING}, "no gate and no control holds it", "Starts the next batch despite the gate or control."),
    "abort": (
        {RS.QUEUED, RS.RUNNING, RS.PAUSED, RS.STOPPED},
        "it has ended or is already ending",
        "Skips what has not begun; in-progress nodes finish or are reverted.",
    ),
    "retry-failed": (
        {RS.RUNNING, RS.PAUSED, RS.STOPPED, RS.FAILED, RS.REVERTING},
        "nothing failed or is held",
        "Runs failed and held nodes again, from the beginning.",
    ),
    "skip": (
        {
            RS.QUEUED,
            RS.RUNNING,
            RS.PAUSED,
            RS.STOPPED,
            RS.ABORTING,
            RS.REVERTING,
            RS.FAILED,
            RS.CANCELLED,
        },
        "no node waits, failed or is held",
        "Leaves one node as it is.",
    ),
    "revert": (
        {RS.PAUSED, RS.STOPPED, RS.SUCCEEDED, RS.FAILED, RS.CANCELLED},
        "it is running: pause or abort it first",
        "Restores the recorded originals. Part of the approved plan.",
    ),
}

StepSummary = tuple[str, str, bool]
"""Of steps: status, direction, and whether anything was written."""


def all_actions(rollout: Rollout, kinds: Set[StepSummary] | None = None) -> list[RolloutAction]:
    """Every verb, with whether the state permits it. `kinds` of its steps where they were read already."""
    if kinds is None:
        kinds = set(rollout.steps.values_list("status", "direction", "has_applied").distinct().order_by())
    statuses = {status for status, *_ in kinds}
    tried = {s for s, way, _ in kinds if rollout.status != RS.REVERTING or way == Step.Direction.REVERT}
    applied = any(has_applied and status in CAN_BE_PUT_BACK for status, _, has_applied in kinds)
    out = []
    for verb, (states, otherwise, follows) in POSSIBLE.items():
        reason = "" if rollout.status in states else otherwise
        if verb == "revert" and rollout.status in (RS.REVERTING, RS.REVERTED):
            reason = "it is being reverted" if rollout.status == RS.REVERTING else "it is already reverted"
        if (
            not reason
            and verb == "go-on"
            and not batch_gates.overridable_obstacle(rollout, Strategy.from_json(rollout.plan.strategy))
        ):
            reason = otherwise
        if not reason and verb == "retry-failed" and not tried & {Status.FAILED, Status.HELD}:
            reason = otherwise
        if not reason and verb == "skip" and not statuses & {Status.QUEUED, Status.FAILED, Status.HELD}:
            reason = otherwise
        if verb == "revert" and not reason:
            if statuses & set(Step.ACTIVE):
                reason = "nodes are in progress: wait until they finish"
            elif not applied:
                reason = "it has changed no node that is not reverted"
            elif rollout.finished_at and now() - rollout.finished_at > timedelta(days=settings.SETPOINT_REVERT_DAYS):
                reason = f"it ended more than {settings.SETPOINT_REVERT_DAYS} days ago"
        out.append(RolloutAction(verb, reason, follows))
    return out


def permissions(rollout: Rollout, user: User) -> dict[str, bool]:
    """Return what this person may do, with the token in use where there is one, in any state."""
    return dict.fromkeys(POSSIBLE, may_operate(rollout, user))


def may_operate(rollout: Rollout, user: User) -> bool:
    return may(user, "operator", rollout.cluster.scopes) and plan_actions.token_allows(user, "apply")
