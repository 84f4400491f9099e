"""Who may say yes to a plan, and whose word stands; jobs.rules says how many. Approving and starting are separate acts.

A plan is asked for in rounds: whoever requests changes ends a round, and the verdicts given in it count no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from accounts.models import User
from accounts.permissions import may, require
from audit import services as audit
from common.clock import now
from common.errors import Invalid, LostRace, NotAllowed, WrongState
from jobs import authorship, consents, digests, rules
from jobs.models import Approval, Plan
from jobs.rules import Need, Rule

Status = Plan.Status

COMMENT_CHARACTERS = 4000
MESSAGE_CHARACTERS = 500
"""Of what is asked for; the column's length."""


REMIND_BEFORE = timedelta(hours=12)
"""Of the end of a plan's time: whoever can decide is reminded once more."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a plan's approval stands: what the rules ask for, the newest verdict of each person, what is missing."""

    needs: tuple[Need, ...]
    """One a rule that applies, the strictest first."""
    approved_by: tuple[User, ...]
    rejected_by: tuple[User, ...]
    changes_by: tuple[User, ...] = ()

    @property
    def rule(self) -> Rule:
        """The strictest of them."""
        return self.needs[0].rule

    @property
    def missing(self) -> int:
        """At least so many more must approve."""
        return max(need.missing for need in self.needs)

    @property
    def wanted(self) -> tuple[Need, ...]:
        """Rules that still ask for somebody who holds a role."""
        return tuple(need for need in self.needs if need.missing_of_role)

    @property
    def is_approved(self) -> bool:
        return not self.missing and not self.rejected_by and not self.changes_by


def rule_for(plan: Plan) -> Rule:
    """The strictest of the rules that apply."""
    return rules.of_plan(plan)[0]


def given(plan: Plan) -> list[Approval]:
    """Every verdict on this plan, of all digests and rounds, the oldest first: as stored now, whatever was read."""
    return list(plan.approvals.select_related("person").order_by("at", "pk"))


def standing(plan: Plan, verdicts: Iterable[Approval] | None = None) -> Standing:
    """Only verdicts of the plan's present digest and round count, and only the newest of each who may still approve.

    `verdicts`: what given() just said, where a page shows them, too.
    """
    newest: dict[int, Approval] = {}
    for row in given(plan) if verdicts is None else verdicts:
        if (row.digest, row.round) == (plan.digest, plan.round):
            newest[row.person_id] = row
    by_verdict = {verdict: [a.person for a in newest.values() if a.verdict == verdict] for verdict in Approval.Verdict}
    agreed = {row.person_id for row in newest.values() if row.consent == consents.told(plan)}
    agreeing = [person for person in by_verdict[Approval.Verdict.APPROVE] if person.pk in agreed]
    yes = tuple(person for person in agreeing if not reason_not_to(plan, person))
    return Standing(
        needs=rules.needs(rules.of_plan(plan), yes, rules.holder(plan)),
        approved_by=yes,
        rejected_by=tuple(by_verdict[Approval.Verdict.REJECT]),
        changes_by=tuple(by_verdict[Approval.Verdict.CHANGES]),
    )


def has_approved(plan: Plan, user: User) -> bool:
    """Whether this person's newest verdict on the present digest is an approval."""
    rows: Iterable[Approval] = plan.approvals.all()
    own = [a for a in rows if (a.person_id, a.digest, a.round) == (user.pk, plan.digest, plan.round)]
    return bool(own) and max(own, key=lambda a: (a.at, a.pk)).verdict == Approval.Verdict.APPROVE


def reason_not_to(plan: Plan, user: User) -> str:
    """Why this person may not give a verdict on this plan; empty when they may. Superusers are no exception."""
    if user.is_service:
        return "A service account never approves."
    if not user.is_active:
        return f"{user} is deactivated."
    if user.pk in (plan.created_by_id, plan.requested_by_id):
        return "Nobody approves a plan of their own."
    if what := authorship.of(plan).get(user.pk):
        return f"An author does not approve: {what}."
    if not may(user, "approver", plan.cluster.scopes):
        return f"This needs the role approver for {plan.cluster}."
    if plan.requested_at and not rules.held_then(user, "approver", plan.cluster.scopes, plan.requested_at):
        return f"The role approver was given after approval of {plan} was asked for: it counts for later plans."
    return ""


def request(plan: Plan, *, by: User, message: str = "") -> Plan:
    """Ask for review; after requested changes once more, with an answer. Raises NotAllowed, Invalid, WrongState.

    Plans for the same pool that wait for changes by the same people are withdrawn: this one takes their place.
    """
    require(by, "operator", plan.cluster.scopes, doing="request approval")
    check_length(message, MESSAGE_CHARACTERS, "comment")
    if plan.status not in (Status.DRAFT, Status.CHANGES):
        raise WrongState(f"{plan} is {plan.get_status_display().lower()}: approval is asked for once, of a draft.")
    is_again = plan.status == Status.CHANGES
    if is_again and not message.strip():
        raise Invalid(
            "Changes were requested: say what you answer.",
            fields={"comment": ["Say why it can be approved as it is, or plan again with the changes."]},
        )
    _unexpired(plan)
    if plan.is_blocked:
        blocks = "; ".join(f["title"] for f in plan.findings if f["severity"] == "block")
        raise WrongState(f"{plan} is blocked: {blocks}.")
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
        _record(row, by, "plan.supersede", f"{plan} takes its place.", by_plan=str(plan.pk))


def approve(plan: Plan, *, by: User, digest: str, comment: str = "", consent: str = "") -> Plan:
    """Approve exactly what `digest` names; `consent` is what a plan that destroys objects asks to be typed.

    Raises NotAllowed, Invalid, WrongState when the plan is another one now.
    """
    return _judge(plan, by, Approval.Verdict.APPROVE, digest, comment, consent=consent)


def reject(plan: Plan, *, by: User, digest: str, comment: str) -> Plan:
    """End the plan. A comment is required."""
    if not comment.strip():
        raise Invalid(
            "A rejection needs a comment.", fields={"comment": ["Say why, so that the author can do better."]}
        )
    return _judge(plan, by, Approval.Verdict.REJECT, digest, comment)


def request_changes(plan: Plan, *, by: User, digest: str, comment: str) -> Plan:
    """Send it back to its author, who answers or plans again. A comment is required."""
    if not comment.strip():
        raise Invalid(
            "What should change needs a comment.", fields={"comment": ["Say what should change, so that it can."]}
        )
    return _judge(plan, by, Approval.Verdict.CHANGES, digest, comment)


def _judge(plan: Plan, by: User, verdict: str, digest: str, comment: str, *, consent: str = "") -> Plan:
    if reason := reason_not_to(plan, by):
        raise NotAllowed(reason)
    check_length(comment, COMMENT_CHARACTERS, "comment")
    _unexpired(plan)
    if plan.status not in (Status.REVIEW, Status.APPROVED):
        raise WrongState(f"{plan} is {plan.get_status_display().lower()}: a verdict is given while it needs review.")
    if digest != plan.digest or digests.of(plan) != plan.digest:
        raise WrongState(f"{plan} is not what you saw: its digest is {plan.digest[:19]}… now. Read it again.")
    agreed = consents.check(plan, consent) if verdict == Approval.Verdict.APPROVE else ""
    with transaction.atomic():
        # One row lock, so that two verdicts at once count each other.
        plan = Plan.objects.select_for_update().select_related("cluster", "revision__profile", "pool").get(pk=plan.pk)
        if plan.status not in (Status.REVIEW, Status.APPROVED):
            raise WrongState(f"{plan} is {plan.get_status_display().lower()} by now.")
        Approval.objects.create(
            plan=plan,
            digest=digest,
            person=by,
            verdict=verdict,
            comment=comment.strip(),
            consent=agreed,
            round=plan.round,
        )
        now_standing = standing(plan)
        if verdict == Approval.Verdict.REJECT:
            _move(plan, Status.REJECTED)
        elif verdict == Approval.Verdict.CHANGES:
            _move(plan, Status.CHANGES)
        elif plan.status == Status.REVIEW and now_standing.is_approved:
            _move(plan, Status.APPROVED)
        typed = {"consent": agreed} if agreed else {}
        about = {"rule": now_standing.rule.name, "missing": now_standing.missing}
        _record(plan, by, f"plan.{verdict}", comment, **about, **typed)
    return plan


def retract(plan: Plan, *, by: User) -> Plan:
    """Take one's own approval back, as long as the rollout has not started. Raises NotAllowed, WrongState."""
    with transaction.atomic():
        # Judged under the row lock, which a start holds too: of the two, exactly one goes through.
        plan = Plan.objects.select_for_update().select_related("cluster", "revision").get(pk=plan.pk)
        if not has_approved(plan, by):
            raise NotAllowed(f"Only who has approved {plan} can take the approval back.")
        if plan.status not in (Status.REVIEW, Status.APPROVED):
            raise WrongState(
                f"{plan} is {plan.get_status_display().lower()}: an approval can be taken back before the start."
            )
        Approval.objects.create(
            plan=plan, digest=plan.digest, person=by, verdict=Approval.Verdict.RETRACT, round=plan.round
        )
        if plan.status == Status.APPROVED and not standing(plan).is_approved:
            _move(plan, Status.REVIEW)
        _record(plan, by, "plan.retract", "")
    return plan


def withdraw(plan: Plan, *, by: User, comment: str = "") -> Plan:
    """Close one's own plan, or anybody's as admin."""
    if by.pk not in (plan.created_by_id, plan.requested_by_id):
        require(by, "admin", plan.cluster.scopes, doing="withdraw somebody else's plan")
    check_length(comment, COMMENT_CHARACTERS, "comment")
    with transaction.atomic():
        _move(plan, Status.WITHDRAWN)
        _record(plan, by, "plan.withdraw", comment)
    return plan


def expire() -> int:
    """Close what nobody decided in time; expiry means no. Returns how many."""
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


def rejudge(*, by: User) -> list[Plan]:
    """Rules changed: what is approved, and what still waits, is so by the rules of now. In the caller's transaction."""
    waiting = Plan.objects.in_time().filter(status__in=(Status.REVIEW, Status.APPROVED))
    rows = waiting.select_for_update(of=("self",)).select_related("cluster", "revision__profile", "pool__cluster")
    moved = []
    for plan in rows:
        there = standing(plan)
        to = Status.APPROVED if there.is_approved else Status.REVIEW
        if to != plan.status:
            _move(plan, to)
            _record(plan, by, "plan.rejudge", "The rules were changed.", rule=there.rule.name, missing=there.missing)
            moved.append(plan)
    return moved


def remind() -> int:
    """Tell that plans have waited for a day, or will expire before the next one. Returns how many.

    The audit record keeps it; pages tell those who can decide, and whoever asked.
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
        raise Invalid("That is too long.", fields={name: [f"At most {most} characters, not {len(text)}."]})


def _unexpired(plan: Plan) -> None:
    if plan.late:
        raise WrongState(plan.late)


def _move(plan: Plan, to: str, **fields: str | int | datetime | User | Plan | None) -> None:
    if to not in plan.NEXT.get(plan.status, set()):
        raise WrongState(f"Not possible: {plan} is {plan.get_status_display().lower()}.")
    try:
        plan.move(to, **fields)
    except LostRace as error:
        raise WrongState(f"{plan} was changed by somebody else a moment ago; look again.") from error


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
