"""Requests, approvals, rejections of a plan; jobs.approvals.rules says how many it needs. Starting it is another act.

A plan is asked for in rounds: a request for changes ends a round, and the verdicts given in it count no more.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from accounts.models import User
from audit import services as audit
from common.clock import now
from common.errors import Invalid, LostRace, WrongState
from jobs.approvals import plan_actions, step_up
from jobs.approvals.verdicts import approval_state
from jobs.forecast import owners
from jobs.models import Approval, Plan
from jobs.planning import consents
from jobs.policy import judgement

Status = Plan.Status

VERBS: dict[str, str] = {
    Approval.Verdict.APPROVE: "approve",
    Approval.Verdict.CHANGES: "request-changes",
    Approval.Verdict.REJECT: "reject",
}
COMMENT_CHARACTERS = 4000
MESSAGE_CHARACTERS = 500
"""Of what is asked for; the column's length."""


REMIND_BEFORE = timedelta(hours=12)
"""Of the end of a plan's time: possible reviewers are reminded once more."""


def request(plan: Plan, *, by: User, message: str = "") -> Plan:
    """Ask for review; after requested changes once more, with an answer. Raises NotAllowed, Invalid, WrongState.

    Plans for the same pool that wait for changes by the same people are withdrawn: this one takes their place.
    """
    plan_actions.require(plan, "request", by)
    check_length(message, MESSAGE_CHARACTERS, "comment")
    is_again = plan.status == Status.CHANGES
    if is_again and not message.strip():
        raise Invalid(
            "Changes were requested: add a reply.",
            fields={"comment": ["Explain why it can be approved as it is, or plan again with the changes."]},
        )
    with transaction.atomic():
        _move(plan, Status.REVIEW, requested_by=by, requested_at=now(), message=message or plan.message,
              round=plan.round + is_again, reminded_at=None)  # fmt: skip
        _record(plan, by, "plan.request", message, round=plan.round)
        _supersede(plan, by)
    return plan


def _supersede(plan: Plan, by: User) -> None:
    """Older plans for the pool that were sent back to the very people who ask now."""
    people = {by.pk, plan.created_by_id}
    older = Plan.objects.filter(pool=plan.pool_id, status=Status.CHANGES, number__lt=plan.number)
    theirs = Q(created_by__in=people) | Q(requested_by__in=people)
    for row in older.filter(theirs).select_related("cluster"):
        _move(row, Status.WITHDRAWN, superseded_by=plan)
        _record(row, by, "plan.supersede", f"{plan} replaces it.", by_plan=str(plan.pk))


def approve(
    plan: Plan, *, by: User, digest: str, comment: str = "", consent: str = "", proved_at: datetime | None = None
) -> Plan:
    """Approve exactly what `digest` names; `consent` is what a plan that destroys objects asks to be typed.

    `proved_at`: when the person last proved who they are (accounts.access.freshness).

    Raises NotAllowed, FreshLoginNeeded, Invalid, WrongState when the plan is another one now.
    """
    step_up.require_recent(plan, proved_at)
    return _judge(plan, by, Approval.Verdict.APPROVE, digest, comment, consent=consent)


def reject(plan: Plan, *, by: User, digest: str, comment: str) -> Plan:
    """End the plan. A comment is required."""
    if not comment.strip():
        raise Invalid(
            "A rejection needs a comment.", fields={"comment": ["Give the reason, so that the author can fix it."]}
        )
    return _judge(plan, by, Approval.Verdict.REJECT, digest, comment)


def request_changes(plan: Plan, *, by: User, digest: str, comment: str) -> Plan:
    """Send it back to its author, to answer or to plan again. A comment is required."""
    if not comment.strip():
        raise Invalid(
            "What should change needs a comment.", fields={"comment": ["Describe the change that is needed."]}
        )
    return _judge(plan, by, Approval.Verdict.CHANGES, digest, comment)


def _judge(plan: Plan, by: User, verdict: str, digest: str, comment: str, *, consent: str = "") -> Plan:
    check_length(comment, COMMENT_CHARACTERS, "comment")
    with transaction.atomic():
        # One row lock, so that two verdicts at once count each other.
        plan = Plan.objects.select_for_update().select_related("cluster", "revision__profile", "pool").get(pk=plan.pk)
        plan_actions.require(plan, VERBS[verdict], by)
        if digest != plan.digest:
            raise WrongState(
                f"{plan} is not what you saw: its digest is {plan.digest[:19]}… now. Reload it and try again."
            )
        policy = judgement.active_version()
        agreed = consents.check_phrase(plan, consent) if verdict == Approval.Verdict.APPROVE else ""
        Approval.objects.create(
            plan=plan,
            digest=digest,
            person=by,
            verdict=verdict,
            comment=comment.strip(),
            consent=agreed,
            round=plan.round,
            policy=policy.number if policy else None,
        )
        now_standing = approval_state(plan)
        if verdict == Approval.Verdict.REJECT:
            _move(plan, Status.REJECTED)
        elif verdict == Approval.Verdict.CHANGES:
            _move(plan, Status.CHANGES)
        elif plan.status == Status.REVIEW and now_standing.is_approved:
            _move(plan, Status.APPROVED)
        typed = {"consent": agreed} if agreed else {}
        about = {"rule": now_standing.rule.name, "missing": now_standing.missing}
        about |= {"policy": policy.number} if policy else {}
        _record(plan, by, f"plan.{verdict}", comment, **about, **typed)
    return plan


def retract(plan: Plan, *, by: User) -> Plan:
    """Take one's own approval back, as long as the rollout has not started. Raises NotAllowed, WrongState."""
    with transaction.atomic():
        # Judged under the row lock, which a start holds too: of the two, exactly one goes through.
        plan = Plan.objects.select_for_update().select_related("cluster", "revision").get(pk=plan.pk)
        plan_actions.require(plan, "retract", by)
        Approval.objects.create(
            plan=plan, digest=plan.digest, person=by, verdict=Approval.Verdict.RETRACT, round=plan.round
        )
        if plan.status == Status.APPROVED and not approval_state(plan).is_approved:
            _move(plan, Status.REVIEW)
        _record(plan, by, "plan.retract", "")
    return plan


def withdraw(plan: Plan, *, by: User, comment: str = "") -> Plan:
    """Close one's own plan, or any plan as admin."""
    plan_actions.require(plan, "withdraw", by)
    check_length(comment, COMMENT_CHARACTERS, "comment")
    return close(plan, by=by, comment=comment)


@transaction.atomic
def close(plan: Plan, *, by: User, comment: str) -> Plan:
    """Withdraw a plan as the consequence of what the caller has judged that this person may do. Raises WrongState."""
    _move(plan, Status.WITHDRAWN)
    _record(plan, by, "plan.withdraw", comment)
    return plan


def expire() -> int:
    """Close plans that got no decision in time; expiry means no. Returns how many."""
    count = 0
    for plan in Plan.objects.expired().select_related("cluster")[:100]:
        try:
            with transaction.atomic():
                plan.move(Status.EXPIRED)
                _record(plan, None, "plan.expire", plan.late)
                count += 1
        except LostRace:
            continue
    return count


def rejudge(*, by: User, why: str = "The rules were changed.") -> list[Plan]:
    """Rules or owners changed: what is approved, and what still waits, is so by those of now. In the caller's
    transaction."""
    waiting = Plan.objects.in_time().filter(status__in=(Status.REVIEW, Status.APPROVED))
    locked = waiting.select_for_update(of=("self",)).select_related("cluster", "revision__profile", "pool__cluster")
    rows = list(locked.order_by("pk"))
    with owners.kept(rows):
        standings = [(plan, approval_state(plan)) for plan in rows]
    moved = []
    for plan, there in standings:
        to = Status.APPROVED if there.is_approved else Status.REVIEW
        if to != plan.status:
            _move(plan, to)
            _record(plan, by, "plan.rejudge", why, rule=there.rule.name, missing=there.missing)
            moved.append(plan)
    return moved


def owners_changed(by: User) -> list[Plan]:
    """Judge the open plans by the owners of now, in the transaction of who changes them (common.hooks)."""
    return rejudge(by=by, why="The owners of what it touches were changed.")


def remind() -> int:
    """Tell that plans have waited for a day, or will expire before the next one. Returns how many.

    The audit record keeps it; pages show it to possible reviewers and to the requester.
    """
    day = timedelta(hours=settings.SETPOINT_REMIND_HOURS)
    since = now() - day
    late = Q(requested_at__lte=since, reminded_at=None) | Q(reminded_at__lte=since)
    ending = Q(expires_at__lte=now() + REMIND_BEFORE) & (
        Q(reminded_at=None) | Q(reminded_at__lt=F("expires_at") - REMIND_BEFORE)
    )
    count = 0
    for plan in Plan.objects.waiting().filter(late | ending).select_related("cluster", "requested_by")[:100]:
        try:
            with transaction.atomic():
                plan.put(reminded_at=now())
                _record(
                    plan, None, "plan.remind", f"{plan} waits for approval until {plan.expires_at:%Y-%m-%d %H:%M} UTC."
                )
        except LostRace:
            continue
        count += 1
    return count


def check_length(text: str, most: int, name: str) -> None:
    """Raises Invalid at the field `name`: one database would cut it off or refuse it, another would not."""
    if len(text) > most:
        raise Invalid("The text is too long.", fields={name: [f"At most {most} characters, not {len(text)}."]})


def _move(plan: Plan, to: str, **fields: str | int | datetime | User | Plan | None) -> None:
    if to not in plan.NEXT.get(plan.status, set()):
        raise WrongState(f"{plan} is {plan.state_in_words}.")
    try:
        plan.move(to, **fields)
    except LostRace as error:
        raise WrongState(f"{plan} was changed by another request a moment ago; reload and try again.") from error


def _record(plan: Plan, by: User | None, action: str, message: str, **after: object) -> None:
    audit.record(
        by=by,
        action=action,
        target=f"plan:{plan.pk}",
        target_name=str(plan),
        cluster_id=plan.cluster_id,
        message=message,
        after={"digest": plan.digest, "status": str(plan.status), **after},
    )
