"""Who may say yes to a plan, and how many must. Approving and starting are separate acts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from accounts.models import User
from accounts.permissions import may, require
from audit import services as audit
from clusters.models import Cluster
from common.clock import now
from common.errors import Invalid, LostRace, NotAllowed, WrongState
from jobs import planning
from jobs.changes import Disruption
from jobs.models import Approval, Plan

Status = Plan.Status

COMMENT_CHARACTERS = 4000
MESSAGE_CHARACTERS = 500
"""Of what is asked for; the column's length."""


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    approvers: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a plan's approval stands: the rule, the newest verdict of each person, and what is missing."""

    rule: Rule
    approved_by: tuple[User, ...]
    rejected_by: tuple[User, ...]

    @property
    def missing(self) -> int:
        return max(0, self.rule.approvers - len(self.approved_by))

    @property
    def is_approved(self) -> bool:
        return not self.missing and not self.rejected_by


def rule_for(plan: Plan) -> Rule:
    """Approvers needed, by environment and the plan's worst class."""
    if plan.cluster.environment == Cluster.Environment.PRODUCTION and Disruption(plan.worst_class).drains:
        return Rule("production with drain or reboot", 2)
    return Rule("default", 1)


def standing(plan: Plan) -> Standing:
    """Only verdicts on the plan's present digest count, and only the newest of each person who may still approve."""
    newest: dict[int, Approval] = {}
    for row in plan.approvals.filter(digest=plan.digest).select_related("person").order_by("at", "pk"):  # type: ignore[attr-defined]
        newest[row.person_id] = row
    valid = [a for a in newest.values() if not reason_not_to(plan, a.person)]
    yes = tuple(a.person for a in valid if a.verdict == Approval.Verdict.APPROVE)
    no = tuple(a.person for a in newest.values() if a.verdict == Approval.Verdict.REJECT)
    return Standing(rule_for(plan), yes, no)


def has_approved(plan: Plan, user: User) -> bool:
    """Whether this person's newest verdict on the present digest is an approval."""
    own = [a for a in plan.approvals.all() if a.person_id == user.pk and a.digest == plan.digest]  # type: ignore[attr-defined]
    return bool(own) and max(own, key=lambda a: (a.at, a.pk)).verdict == Approval.Verdict.APPROVE


def reason_not_to(plan: Plan, user: User) -> str:
    """Why this person may not give a verdict on this plan; empty when they may. Superusers are no exception."""
    if user.is_service:
        return "A service account never approves."
    if not user.is_active:
        return f"{user} is deactivated."
    if user.pk in (plan.created_by_id, plan.requested_by_id):
        return "Nobody approves a plan of their own."
    if user.pk in {author.pk for author in plan.revision.authors.all()}:
        return f"An author of {plan.revision} cannot approve a plan for it."
    if not may(user, "approver", plan.cluster.scopes):
        return f"This needs the role approver for {plan.cluster}."
    return ""


def request(plan: Plan, *, by: User, message: str = "") -> Plan:
    """Ask for review. Raises NotAllowed, Invalid, WrongState."""
    require(by, "operator", plan.cluster.scopes, doing="request approval")
    check_length(message, MESSAGE_CHARACTERS, "comment")
    if plan.status != Status.DRAFT:
        raise WrongState(f"{plan} is {plan.get_status_display().lower()}: approval is asked for once, of a draft.")
    _unexpired(plan)
    if plan.is_blocked:
        blocks = "; ".join(f["title"] for f in plan.findings if f["severity"] == "block")
        raise WrongState(f"{plan} is blocked: {blocks}.")
    with transaction.atomic():
        _move(plan, Status.REVIEW, requested_by=by, requested_at=now(), message=message or plan.message)
        _record(plan, by, "plan.request", message)
    return plan


def approve(plan: Plan, *, by: User, digest: str, comment: str = "") -> Plan:
    """Approve exactly what `digest` names. Raises NotAllowed, WrongState when the plan is another one now."""
    return _judge(plan, by, Approval.Verdict.APPROVE, digest, comment)


def reject(plan: Plan, *, by: User, digest: str, comment: str) -> Plan:
    """End the plan. A comment is required."""
    if not comment.strip():
        raise Invalid(
            "A rejection needs a comment.", fields={"comment": ["Say why, so that the author can do better."]}
        )
    return _judge(plan, by, Approval.Verdict.REJECT, digest, comment)


def _judge(plan: Plan, by: User, verdict: str, digest: str, comment: str) -> Plan:
    if reason := reason_not_to(plan, by):
        raise NotAllowed(reason)
    check_length(comment, COMMENT_CHARACTERS, "comment")
    _unexpired(plan)
    if plan.status not in (Status.REVIEW, Status.APPROVED):
        raise WrongState(f"{plan} is {plan.get_status_display().lower()}: a verdict is given while it needs review.")
    if digest != plan.digest or planning.compute_digest(plan) != plan.digest:
        raise WrongState(f"{plan} is not what you saw: its digest is {plan.digest[:19]}… now. Read it again.")
    with transaction.atomic():
        # One row lock, so that two verdicts at once count each other.
        plan = Plan.objects.select_for_update().select_related("cluster", "revision__profile", "pool").get(pk=plan.pk)
        if plan.status not in (Status.REVIEW, Status.APPROVED):
            raise WrongState(f"{plan} is {plan.get_status_display().lower()} by now.")
        Approval.objects.create(plan=plan, digest=digest, person=by, verdict=verdict, comment=comment.strip())
        now_standing = standing(plan)
        if verdict == Approval.Verdict.REJECT:
            _move(plan, Status.REJECTED)
        elif plan.status == Status.REVIEW and now_standing.is_approved:
            _move(plan, Status.APPROVED)
        _record(plan, by, f"plan.{verdict}", comment, rule=now_standing.rule.name, missing=now_standing.missing)
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
        Approval.objects.create(plan=plan, digest=plan.digest, person=by, verdict=Approval.Verdict.RETRACT)
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
                _record(plan, None, "plan.expire", "")
                count += 1
        except LostRace:
            continue
    return count


def check_length(text: str, most: int, name: str) -> None:
    """Raises Invalid at the field `name`: one database would cut it off or refuse it, another would not."""
    if len(text) > most:
        raise Invalid("That is too long.", fields={name: [f"At most {most} characters, not {len(text)}."]})


def _unexpired(plan: Plan) -> None:
    if plan.expires_at <= now():
        raise WrongState(f"{plan} expired at {plan.expires_at:%Y-%m-%d %H:%M} UTC. Plan again.")


def _move(plan: Plan, to: str, **fields: str | datetime | User) -> None:
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
