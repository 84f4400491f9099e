"""Tokens of SCIM clients: making, checking, revoking. `scim_<id>.<secret>`, of one provider; never an API token.

The holder of one can put a person of the provider into a group that approves, so an administrator alone makes none that
works: a second administrator consents.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Q

from accounts.access.networks import admits, canonical
from accounts.access.tokens import USED_EVERY, hash_of
from accounts.models import PendingChange, ScimClient, User
from accounts.people import bootstrap, identities, pending
from accounts.permissions import GLOBAL, Role, require_person
from accounts.providers import Provider
from accounts.scim.refusals import ScimRefused
from audit.services import record
from common.clock import now
from common.errors import Invalid, Missing, NotAllowed, WrongState

MOST_DAYS = 365
ENABLED = "scim-token.enable"
_FORM = re.compile(r"scim_([a-z0-9]{12})\.([A-Za-z0-9_-]{43})")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_UNKNOWN = "This token is unknown, expired or revoked, or no token of a SCIM client."


@dataclass(frozen=True, slots=True)
class Caller:
    """A SCIM client whose token was found right, and the provider that it provisions for."""

    client: ScimClient
    provider: Provider

    @property
    def actor(self) -> str:
        return f"SCIM ({self.provider.key}, scim_{self.client.pk})"

    @property
    def issuer(self) -> str:
        return self.provider.issuer


@transaction.atomic
def issue(
    *, provider: Provider, name: str, days: int, by: User | str, networks: Sequence[str] = ()
) -> tuple[ScimClient, str]:
    """A token and its text, which exists only in this answer. By an administrator it works once another one consents.

    Raises Invalid, NotAllowed."""
    if isinstance(by, User):
        require_person(by, Role.ADMIN, GLOBAL, "make a token for SCIM")
        if by.acting_token:
            raise NotAllowed("A token makes no token for SCIM: an administrator does, in a browser.")
    ranges, wrong = canonical(networks)
    fields = {"networks": wrong} if wrong else {}
    if not 1 <= len(name.strip()) <= 80 or not name.isprintable():
        fields["name"] = ["Give it a name of 1 to 80 characters."]
    if not 1 <= days <= MOST_DAYS:
        fields["days"] = [f"Its lifetime can be 1 to {MOST_DAYS} days, not {days}."]
    if fields:
        raise Invalid("The token was not made.", fields=fields)
    secret = secrets.token_urlsafe(32)
    works_at_once = isinstance(by, str) or bootstrap.needs_no_consent(by)
    client = ScimClient.objects.create(
        id="".join(secrets.choice(_ALPHABET) for _ in range(12)), issuer=provider.issuer, name=name.strip(),
        secret_hash=_hash(secret, ranges), networks=ranges, made_by=str(by), expires_at=now() + timedelta(days=days),
        enabled_at=now() if works_at_once else None,
    )  # fmt: skip
    after = {"provider": provider.key, "issuer": provider.issuer, "networks": ranges, "expires_at": client.expires_at}
    record(by=by, action="scim-token.create", target=_target(client), target_name=client.name, after=after)
    if isinstance(by, User) and not works_at_once:
        about = f"The SCIM client {client.name} provisions people and groups of {provider.name} ({provider.issuer})."
        wanted = {"client": client.pk}
        pending.propose(kind=ENABLED, by=by, about=about, target=_target(client), wanted=wanted)
    return client, f"scim_{client.pk}.{secret}"


@transaction.atomic
def revoke(*, client: ScimClient, by: User) -> None:
    """End it at once; again is no error. Raises NotAllowed."""
    require_person(by, Role.ADMIN, GLOBAL, "revoke a token for SCIM")
    if ScimClient.objects.filter(pk=client.pk, revoked_at=None).update(revoked_at=now()):
        record(by=by, action="scim-token.revoke", target=_target(client), target_name=client.name)


def authenticate(header: str, *, address: str) -> Caller:
    """Return the client that this Authorization header proves. Raises ScimRefused (401, 403)."""
    scheme, _, text = header.partition(" ")
    match = _FORM.fullmatch(text.strip()) if scheme.lower() == "bearer" else None
    if match is None:
        raise ScimRefused(401, _UNKNOWN)
    identifier, secret = match.groups()
    client = ScimClient.objects.filter(pk=identifier).first()
    expected, networks = (client.secret_hash, client.networks) if client else ("0" * 64, "")
    is_right = hmac.compare_digest(_hash(secret, networks), expected)
    if client is None or not is_right or not client.is_live or not client.is_genuine:
        raise ScimRefused(401, _UNKNOWN)
    if not admits(client.networks, address):
        _note_refusal(client, address)
        raise ScimRefused(403, f"This token is not accepted from {address or 'an unknown address'}.")
    provider = next((row for row in identities.providers() if row.issuer == client.issuer), None)
    if provider is None:
        raise ScimRefused(403, "The provider of this token is not configured any more.")
    at = now()
    stale = Q(last_used_at=None) | Q(last_used_at__lte=at - USED_EVERY)
    if client.last_used_at is None or client.last_used_at <= at - USED_EVERY:
        ScimClient.objects.filter(stale, pk=client.pk).update(last_used_at=at)
    return Caller(client, provider)


def register() -> None:
    pending.KINDS[ENABLED] = _consented


def _consented(row: PendingChange, by: User) -> None:
    client = ScimClient.objects.select_for_update().filter(pk=row.wanted["client"]).first()
    if client is None:
        raise Missing("The token is gone: refuse this.")
    if not client.is_genuine or client.revoked_at:
        raise WrongState("The token was revoked, or changed in the database: refuse this.")
    client.put_marked(enabled_at=now())
    record(by=by, action="scim-token.enable", target=_target(client), target_name=client.name)


@transaction.atomic
def _note_refusal(client: ScimClient, address: str) -> None:
    """Record it, at most once a minute, as for API tokens."""
    at = now()
    stale = Q(refused_at=None) | Q(refused_at__lte=at - USED_EVERY)
    if ScimClient.objects.filter(stale, pk=client.pk).update(refused_at=at):
        record(by="anonymous", action="scim-token.refuse", target=_target(client), target_name=client.name,
               message=address)  # fmt: skip


def _hash(secret: str, networks: str) -> str:
    return hash_of(f"scim {secret}", networks)


def _target(client: ScimClient) -> str:
    return f"scim-token:{client.pk}"
