"""Resets of another person's second factor, for one who lost the app and the recovery codes.

As with passwords: for an account that may approve or administer nothing happens before a second administrator consents,
so that one stolen administrator does not take the factor of another person away.
"""

from __future__ import annotations

from django.db import transaction

from accounts.access import sessions
from accounts.models import PendingChange, SecondFactor, User
from accounts.people import pending, services
from accounts.people.pending import Proposed
from accounts.permissions import GLOBAL, Role, require_person
from audit.services import record
from common.errors import NotAllowed, WrongState

KIND = "second-factor.reset"


@transaction.atomic
def reset(*, user: User, by: User) -> Proposed | None:
    """Take the factor away and end the sessions; None: done. Raises NotAllowed, WrongState."""
    require_person(by, Role.ADMIN, GLOBAL, "reset another person's second factor")
    if user.pk == by.pk:
        raise NotAllowed("Remove your own second factor on your account page, with your password and a code.")
    row = _factor(user)
    if services.has_power(user):
        about = f"{user.email}, {services.powers(user)}, logs in without their second factor; sessions end."
        return pending.propose(
            kind=KIND, by=by, about=about, target=f"user:{user.pk}", wanted={"factor": str(row.pk)}, subject=user
        )
    _reset(user, by)
    return None


@transaction.atomic
def reset_on_the_server(*, user: User, by: str) -> None:
    """Take the factor away without consent: the command line's user owns the machine. Raises WrongState."""
    _factor(user)
    _reset(user, by)


def register() -> None:
    pending.KINDS[KIND] = _consented


def _consented(row: PendingChange, by: User) -> None:
    user = User.objects.get(pk=int(row.subject_id or 0))
    if str(_factor(user).pk) != row.wanted["factor"]:
        raise WrongState(f"{user.email} has set up another second factor since this was proposed: refuse it.")
    _reset(user, by)


def _factor(user: User) -> SecondFactor:
    row = SecondFactor.objects.filter(user=user).first()
    if row is None:
        raise WrongState(f"{user.email} has no second factor.")
    return row


def _reset(user: User, by: User | str) -> None:
    SecondFactor.objects.filter(user=user).delete()
    after = {"sessions_ended": sessions.end_all(user)}
    record(by=by, action=KIND, target=f"user:{user.pk}", target_name=user.email, after=after)
