"""Changes that need a second administrator's consent: all that would let one stolen administrator's session or token
approve.

A new approver or administrator, a new password of one, an account of one that is activated again, a rule that asks for
less, a cluster moved to another environment. One administrator proposes, another consents, and only then it is done.
Higher rooms add their kinds in `AppConfig.ready()`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from accounts.models import ApiToken, PendingChange, User
from accounts.people import invitations
from accounts.people.invitations import Link
from accounts.permissions import GLOBAL, Role, may, may_audit, require_person
from audit.services import record
from common.clock import now
from common.errors import Missing, NotAllowed, WrongState

LASTS = timedelta(hours=72)
Status = PendingChange.Status
Handler = Callable[[PendingChange, User], Link | None]
"""Carries the change out, in the transaction of the consent. Raises Refusal, which undoes the consent."""
KINDS: dict[str, Handler] = {}


@dataclass(frozen=True, slots=True)
class Proposed:
    """A change that waits, and the proposer's half of a link to come, which exists only here; empty: there is none."""

    change: PendingChange
    code: str = ""


def propose(
    *,
    kind: str,
    by: User,
    about: str,
    target: str,
    wanted: dict[str, Any],
    scope: str = "*",
    subject: User | None = None,
    with_link: bool = False,
) -> Proposed:
    """Store a proposal in the caller's transaction; the caller has checked permission. The same proposal twice raises
    WrongState."""
    assert kind in KINDS, kind
    same = PendingChange.objects.filter(status=Status.WAITING, kind=kind, target=target, expires_at__gt=now())
    if row := same.filter(wanted=wanted).select_related("proposed_by").first():
        raise WrongState(f"{row.proposed_by} proposed this already: it waits for another administrator's consent.")
    code, code_hash = invitations.new_code() if with_link and not invitations.is_mail_set_up() else ("", "")
    row = PendingChange.objects.create(
        kind=kind, scope=scope, subject=subject, about=about[:300], target=target, wanted=wanted,
        code_hash=code_hash, proposed_by=by, expires_at=now() + LASTS,
    )  # fmt: skip
    _record(row, by, "change.propose")
    return Proposed(row, code)


def reason_not_to(row: PendingChange, by: User) -> str:
    """Return the reason why this person may not consent; empty when they may."""
    if by.is_service:
        return "A service account never consents: that is an administrator's word."
    if by.pk == row.proposed_by_id:
        return "You proposed it: another administrator must consent."
    if by.pk == row.subject_id:
        return "It is about your own account: another administrator must consent."
    if by.acting_token and ApiToken.Scope.APPROVE not in by.acting_token.scopes:
        return "A consent is a signature: the token needs the scopes admin and approve, or use the page."
    if not may(by, Role.ADMIN, _scopes(row)):
        return "This needs the role admin " + ("for all clusters." if row.scope in GLOBAL else f"in {row.scope}.")
    return ""


def consent(*, pk: UUID, by: User) -> tuple[PendingChange, Link | None]:
    """Carry it out. `deliver` the link after this. Raises Missing, NotAllowed, WrongState, and what the kind raises."""
    with transaction.atomic():
        row = _waiting(pk, by)
        if reason := reason_not_to(row, by):
            raise NotAllowed(reason)
        proposer = User.objects.get(pk=row.proposed_by_id)
        if not may(proposer, Role.ADMIN, (*_scopes(row), str(row.wanted.get("by", "*")))):
            raise WrongState(f"{proposer}, who proposed it, is no longer an administrator: refuse it.")
        _decide(row, Status.DONE, by)
        _record(row, by, "change.consent")
        link = KINDS[row.kind](row, by)
    return row, link


@transaction.atomic
def refuse(*, pk: UUID, by: User) -> PendingChange:
    """Any administrator of its scope; its proposer withdraws it so. Raises Missing, NotAllowed, WrongState."""
    row = _waiting(pk, by)
    require_person(by, Role.ADMIN, _scopes(row), "refuse a proposed change")
    _decide(row, Status.WITHDRAWN if by.pk == row.proposed_by_id else Status.REFUSED, by)
    _record(row, by, "change.refuse")
    return row


def visible_to(user: User) -> QuerySet[PendingChange]:
    """Return the changes visible to an reader: all to administrators of everything and auditors, else those of
    the scopes that they administer."""
    rows = PendingChange.objects.select_related("subject", "proposed_by", "decided_by")
    if may_audit(user):
        return rows
    if not may(user, Role.ADMIN, ("anywhere",)):
        return rows.none()
    return rows.filter(scope__in=[scope for role, scope in user.grants if role == Role.ADMIN])


def waiting(user: User) -> QuerySet[PendingChange]:
    return visible_to(user).filter(status=Status.WAITING, expires_at__gt=now())


def expire() -> int:
    """No consent in time means no. Returns how many."""
    count = 0
    for row in PendingChange.objects.filter(status=Status.WAITING, expires_at__lte=now())[:100]:
        with transaction.atomic():
            late = PendingChange.objects.filter(pk=row.pk, status=Status.WAITING)
            if late.update(status=Status.EXPIRED, decided_at=now()):
                _record(row, None, "change.expire")
                count += 1
    return count


def _waiting(pk: UUID, by: User) -> PendingChange:
    # One row lock: of two decisions at once exactly one counts.
    if not visible_to(by).filter(pk=pk).exists():
        raise Missing("There is no such change.")
    row = PendingChange.objects.select_for_update().get(pk=pk)
    if not row.is_genuine:
        raise WrongState("This was not proposed like this: its row was changed outside Setpoint. Propose it again.")
    if row.status != Status.WAITING:
        raise WrongState(f"This is decided: {row.get_status_display().lower()}.")
    if row.expires_at <= now():
        raise WrongState(f"This expired at {row.expires_at:%Y-%m-%d %H:%M} UTC. Propose it again.")
    return row


def _decide(row: PendingChange, status: str, by: User) -> None:
    row.status, row.decided_by, row.decided_at = status, by, now()
    row.save(update_fields=["status", "decided_by", "decided_at"])


def _scopes(row: PendingChange) -> tuple[str, ...]:
    return (*GLOBAL, row.scope)


def _record(row: PendingChange, by: User | None, action: str) -> None:
    record(
        by=by,
        action=action,
        target=row.target,
        target_name=str(row.subject) if row.subject else row.about[:200],
        message=row.about,
        after={"change": str(row.pk), "kind": row.kind, "proposed_by": str(row.proposed_by), "wanted": row.wanted},
    )
