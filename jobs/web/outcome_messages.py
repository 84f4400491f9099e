"""Messages after an action on a plan, a rollout or a freeze: what happened, and what comes next.

One sentence or two on top of the next page, where the keyboard's focus is put.
"""

from __future__ import annotations

from datetime import UTC

from jobs.approvals import verdicts
from jobs.models import Freeze, Plan, Rollout, Step

Status = Plan.Status


def plan_made(plan: Plan) -> str:
    if plan.is_blocked:
        return f"{plan} was created but is blocked; its findings name the causes. Nothing is written."
    return f"{plan} was created. Nothing is written yet: read it, then request its approval."


def plan_message(plan: Plan, verb: str) -> str:
    """`plan` as it is now, after request, approve, request-changes, reject, retract or withdraw."""
    if verb == "request":
        return f"Approval of {plan} is requested. {_missing_approvals(plan)}"
    if verb == "approve":
        if plan.status == Status.APPROVED:
            return f"You approved {plan}, and no more approvals are needed. An operator starts it."
        return f"You approved {plan}. {_missing_approvals(plan)}"
    if verb == "request-changes":
        return f"You requested changes to {plan}. It is back with {plan.requested_by or 'its author'}."
    if verb == "reject":
        return f"You rejected {plan}: it has ended."
    if verb == "retract":
        rest = _missing_approvals(plan) if plan.status == Status.REVIEW else "The other approvals are sufficient."
        return f"You withdrew your approval of {plan}. {rest}"
    return f"{plan} is withdrawn: it has ended."


def _missing_approvals(plan: Plan) -> str:
    missing = verdicts.approval_state(plan).missing
    if not missing:
        return "Blocked by an open objection."
    return f"{missing} {'approver' if missing == 1 else 'approvers'} must still agree."


def rollout_started(rollout: Rollout) -> str:
    if at := rollout.start_at:
        return f"{rollout} carries {rollout.plan} out from {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC on."
    return f"You started {rollout}, which carries {rollout.plan} out."


def glass_broken(rollout: Rollout) -> str:
    return f"You started {rollout} by break-glass. Every channel is notified; two approvers must review it."


def glass_reviewed(rollout: Rollout) -> str:
    missing = rollout.broken_glass.missing if rollout.broken_glass else 0
    rest = f"{missing} more {'is' if missing == 1 else 'are'} needed." if missing else "No more are needed."
    return f"Your review of {rollout} is stored. {rest}"


def rollout_message(rollout: Rollout, verb: str, step: Step | None, *, in_flight: str = "finish") -> str:
    """Describe a pause, resume, go-on, abort, retry-failed, skip, revert or keep-cordoned; `step` where about one node.
    In the past tense: the page below continues to change, and this stays as it is.
    """
    name = f"{step.name} of {rollout}" if step else ""
    if verb == "pause":
        return f"You paused {rollout}. In-progress nodes finish; no other one starts."
    if verb == "resume":
        return f"You resumed {rollout}."
    if verb == "go-on":
        return f"You continued {rollout} despite the gate or control that held its next batch."
    if verb == "abort":
        return f"You aborted {rollout}. In-progress nodes {'are reverted' if in_flight == 'revert' else 'finish'}."
    if verb == "retry-failed":
        return f"You requested another attempt for {name or f'each failed node of {rollout}'}."
    if verb == "revert":
        return f"You requested the revert of {name or f'each node that {rollout} changed'}."
    if verb == "skip":
        return f"You skipped {name}: it stays as it is."
    return f"You asked to keep {name} cordoned when its step ends."


def freeze_set(row: Freeze) -> str:
    until = f"until {row.until.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if row.until else "until it is lifted"
    where = f"{row.cluster.name} is" if row.cluster else "All clusters are"
    return f"{where} frozen {until}. In-progress nodes finish."


def freeze_lifted(row: Freeze) -> str:
    if row.cluster is None:
        return "The freeze of all clusters is lifted."
    still = "; another one is still active" if Freeze.standing(row.cluster.pk).exists() else ""
    return f"The freeze of {row.cluster.name} is lifted{still}."
