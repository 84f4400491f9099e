"""Versions of the approval policy: one administrator proposes, another activates, and only then it judges plans.

The second administrator's consent is that of `accounts.people.pending`: never the proposer's, with any token or
session, never a service account's, and only while the proposer still is an administrator.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from accounts.models import PendingChange, User
from accounts.people import pending
from accounts.permissions import GLOBAL, may, require_person
from audit import services as audit
from common.clock import now
from common.errors import Invalid, WrongState
from jobs.approvals import reviews
from jobs.models import PolicyVersion
from jobs.models.short_numbers import next_number
from jobs.policy import judgement, policy_text

ACTIVATE = "policy.activate"
MESSAGE_CHARACTERS = 300


def reason_not_to_propose(user: User) -> str:
    """Return why this person may not propose a version; empty when they may."""
    if user.is_service:
        return "A service account cannot write the approval policy: people decide it."
    return "" if may(user, "admin", GLOBAL) else "This needs the role admin for all clusters."


@transaction.atomic
def propose(*, by: User, text: str, message: str) -> tuple[PolicyVersion, PendingChange]:
    """Store a version, which judges nothing until another administrator activates it. Raises NotAllowed, Invalid."""
    require_person(by, "admin", GLOBAL, doing="propose an approval policy")
    text = "\n".join(text.splitlines()) + "\n"
    message = " ".join(message.split())
    if not 1 <= len(message) <= MESSAGE_CHARACTERS:
        hint = f"The second administrator reads it: 1 to {MESSAGE_CHARACTERS} characters."
        raise Invalid("The reason is missing or too long.", fields={"message": [hint]})
    policy_text.read(text)
    active = judgement.active_version()
    if active is not None and active.text == text and judgement.sound_policy(active)[0] is not None:
        raise Invalid("Nothing is changed.", fields={"text": [f"This is {active}, which is active."]})
    row = PolicyVersion.objects.create(number=next_number("policy"), text=text, message=message, proposed_by=by)
    wanted = {"number": row.number, "digest": policy_text.digest(text), "base": active.number if active else 0}
    about = f"Activate {row}: {message}"
    return row, pending.propose(kind=ACTIVATE, by=by, about=about, target=target_of(row), wanted=wanted).change


def waiting_change(row: PolicyVersion) -> PendingChange | None:
    """Return the proposal that waits for a second administrator, if it still does."""
    rows = PendingChange.objects.filter(kind=ACTIVATE, target=target_of(row), status=PendingChange.Status.WAITING)
    return rows.filter(expires_at__gt=now()).select_related("proposed_by").first()


def activate(row: PolicyVersion, *, by: User) -> PolicyVersion:
    """Consent to the version: it judges from now on. Raises Missing, NotAllowed, WrongState."""
    pending.consent(pk=_change_of(row), by=by)
    row.refresh_from_db()
    return row


def withdraw(row: PolicyVersion, *, by: User) -> None:
    """End the proposal: its proposer withdraws it, another administrator refuses it. Raises NotAllowed, WrongState."""
    pending.refuse(pk=_change_of(row), by=by)


def _change_of(row: PolicyVersion) -> UUID:
    change = waiting_change(row)
    if change is None:
        raise WrongState(f"{row} does not wait for a second administrator.".capitalize())
    return change.pk


def _activated(change: PendingChange, by: User) -> None:
    """Make the version active, in the transaction of the consent. Raises WrongState."""
    wanted = change.wanted
    row = PolicyVersion.objects.select_for_update().filter(number=wanted["number"]).first()
    if row is None or not row.is_genuine or policy_text.digest(row.text) != wanted["digest"]:
        raise WrongState("The version was changed outside Setpoint. Propose it again.")
    if by.pk == row.proposed_by_id:
        raise WrongState("Another administrator must activate it.")
    policy_text.read(row.text)  # an upgrade of Setpoint may have changed the facts since
    last = list(PolicyVersion.objects.select_for_update().active())
    current = judgement.active_version()
    if (current.number if current else 0) != wanted["base"]:
        raise WrongState(f"{current} was activated after this was proposed. Compare them and propose it again.")
    for each in last:
        each.put_marked(is_active=False, retired_at=now())
    try:
        with transaction.atomic():  # savepoint: of two first activations at once, one is the first
            row.put_marked(is_active=True, activated_by=by, activated_at=now())
    except IntegrityError as error:
        raise WrongState("Another version was activated a moment ago. Reload and try again.") from error
    audit.record(by=by, action="policy.activate", target=target_of(row), target_name=str(row), message=row.message,
                 before={"version": wanted["base"]}, after=_as_json(row))  # fmt: skip
    reviews.rejudge(by=by)


def _as_json(row: PolicyVersion) -> dict[str, Any]:
    return {
        "version": row.number, "digest": policy_text.digest(row.text), "text": row.text,
        "proposed_by": str(row.proposed_by),
    }  # fmt: skip


def target_of(row: PolicyVersion) -> str:
    return f"policy:{row.number}"


pending.KINDS[ACTIVATE] = _activated
