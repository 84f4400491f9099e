"""Limits of accounts to address ranges, set by administrators.

Where ranges get wider or are removed, and the account may approve or administer, or is of single sign-on, nothing
happens before a second administrator consents: else one stolen administrator could open the account to the address of
a thief.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from django.db import transaction

from accounts.access import networks as address_ranges
from accounts.models import Identity, PendingChange, ScimUser, User
from accounts.people import bootstrap, pending, services
from accounts.people.pending import Proposed
from accounts.permissions import GLOBAL, Role, require_person
from audit.services import record
from common.errors import Invalid, WrongState

KIND = "user.networks"


@transaction.atomic
def limit(*, user: User, networks: Sequence[str], by: User, address: str) -> User | Proposed:
    """Limit an account to these ranges; none: it is accepted from everywhere. `address`: where `by` comes from.

    Raises NotAllowed, Invalid (also for one's own ranges without `address`), WrongState for what is proposed already.
    """
    require_person(by, Role.ADMIN, GLOBAL, "limit an account to address ranges")
    wanted = _checked(networks)
    if user.pk == by.pk and not address_ranges.admits(wanted, address):
        place = address or "an unknown address"
        raise _invalid(f"You come from {place}: add a range with it, or you lock yourself out.")
    user = User.objects.select_for_update().get(pk=user.pk)
    if user.networks == wanted:
        return user
    widens = not is_within(wanted, user.networks)
    if widens and _may_have_power(user) and not bootstrap.needs_no_consent(by):
        about = f"{user.email}, {services.powers(user) or 'of single sign-on'}, is accepted from other addresses."
        return pending.propose(
            kind=KIND, by=by, about=about, target=f"user:{user.pk}", subject=user,
            wanted={"networks": wanted, "was": user.networks},
        )  # fmt: skip
    return _put(user, wanted, by)


@transaction.atomic
def limit_on_the_server(*, user: User, networks: Sequence[str], by: str) -> User:
    """Limit it without consent: the command line's user owns the machine. Raises Invalid."""
    return _put(User.objects.select_for_update().get(pk=user.pk), _checked(networks), by)


def _may_have_power(user: User) -> bool:
    """Return whether this account has power, or may get it without consent: groups of a provider give roles so."""
    of_provider = Identity.objects.filter(user=user).exists() or ScimUser.objects.filter(user=user).exists()
    return of_provider or services.has_power(user)


def register() -> None:
    pending.KINDS[KIND] = _consented


def is_within(wanted: str, present: str) -> bool:
    """Return whether the wanted ranges hold no address that the present ones do not. An empty text holds all, a
    malformed one none.
    """
    if not present or not wanted:
        return not present
    try:
        of_present = _parsed(present)
    except ValueError:
        return False
    # Of each version apart: ranges of both are not put together. `10.0.0.0/9` and `10.128.0.0/9` hold `10.0.0.0/8`.
    whole_4 = list(ipaddress.collapse_addresses(r for r in of_present if isinstance(r, ipaddress.IPv4Network)))
    whole_6 = list(ipaddress.collapse_addresses(r for r in of_present if isinstance(r, ipaddress.IPv6Network)))
    return all(
        any(map(row.subnet_of, whole_4)) if isinstance(row, ipaddress.IPv4Network) else any(map(row.subnet_of, whole_6))
        for row in _parsed(wanted)
    )


def _parsed(text: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(word) for word in text.split()]


def _checked(networks: Sequence[str]) -> str:
    """Return the ranges as one text. Raises Invalid."""
    text, wrong = address_ranges.canonical(networks)
    if wrong:
        raise _invalid(*wrong)
    return text


def _invalid(*wrong: str) -> Invalid:
    return Invalid("The address ranges were not changed.", fields={"networks": list(wrong)})


def _consented(row: PendingChange, by: User) -> None:
    user = User.objects.select_for_update().get(pk=int(row.subject_id or 0))
    if user.networks != row.wanted["was"]:
        raise WrongState(f"The address ranges of {user.email} changed since this was proposed: refuse it.")
    _put(user, row.wanted["networks"], by)


def _put(user: User, networks: str, by: User | str) -> User:
    before = {"networks": user.networks.split()}
    user.put_marked(networks=networks)
    after = {"networks": networks.split()}
    record(by=by, action=KIND, target=f"user:{user.pk}", target_name=user.email, before=before, after=after)
    return user
