"""API tokens: making, checking, revoking. `sp_<id>.<secret>`; the secret is shown once and stored only as a hash.

The secret has 256 random bits, so a fast hash is enough; the pepper keeps a stolen table useless even so.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from accounts.access import account_ranges
from accounts.access.networks import admits, canonical
from accounts.models import ApiToken, ApiTokenQuerySet, User, WorkloadRule
from accounts.permissions import GLOBAL, Role, may_audit, require_person
from audit.services import record
from common.clock import now
from common.errors import Invalid, Missing, NotAllowed

APPROVE_DAYS = 30
"""A token that may approve is a person's signature: it lives no longer than this."""
MOST_DAYS = 365
MOST_MINUTES = 60
"""Of a token that a workload exchanged its own for."""
WORKLOADS_KEPT = timedelta(days=7)
USED_EVERY = timedelta(minutes=1)
"""`last_used_at` is written at most this often, so that a busy client costs no write a request."""

_FORM = re.compile(r"sp_([a-z0-9]{12,16})\.([A-Za-z0-9_-]{32,64})")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


@transaction.atomic
def issue(
    *, user: User, name: str, scopes: Sequence[str], days: int, by: User, networks: Sequence[str] = ()
) -> tuple[ApiToken, str]:
    """A token that acts as `user`, and its text, which exists only in this answer.

    One makes one's own, administrators make those of service accounts. Raises Invalid, NotAllowed.
    """
    kind = ApiToken.Kind.SERVICE if user.is_service else ApiToken.Kind.PERSONAL
    _check_wishes(name, scopes, days, kind)
    ranges, wrong = canonical(networks)
    if wrong:
        raise Invalid("The token was not made.", fields={"networks": wrong})
    if kind == ApiToken.Kind.SERVICE:
        require_person(by, Role.ADMIN, GLOBAL, "make a token for a service account")
    elif user.pk != by.pk:
        raise NotAllowed("A personal token acts as its owner: only they can make it.")
    if by.acting_token and (more := set(scopes) - set(by.acting_token.scopes)):
        raise NotAllowed(f"A token cannot make a stronger one: yours has no scope {', '.join(sorted(more))}.")
    token, text = _make(
        kind=kind, name=name.strip(), user=user, scopes=scopes, networks=ranges, lasts=timedelta(days=days)
    )
    record(
        by=by,
        action="token.create",
        target=f"token:{token.pk}",
        target_name=token.name,
        after={
            "user": user.email,
            "kind": kind,
            "scopes": token.scopes,
            "expires_at": token.expires_at,
            "networks": ranges,
        },
    )
    return token, text


def issue_by_rule(rule: WorkloadRule, *, subject: str, scopes: Sequence[str]) -> tuple[ApiToken, str]:
    """A token that acts as the rule's service account, and its text; the caller has checked all, and records it."""
    lasts = timedelta(minutes=min(rule.minutes, MOST_MINUTES))
    allowed = [scope for scope in scopes if scope in rule.scopes and scope != ApiToken.Scope.APPROVE]
    name = f"{rule.name}: {subject}"[:80]
    kind = ApiToken.Kind.WORKLOAD
    return _make(
        kind=kind, name=name, user=rule.account, scopes=allowed, networks=rule.networks, lasts=lasts, rule=rule,
        subject=subject,
    )  # fmt: skip


def _make(*, scopes: Sequence[str], networks: str, lasts: timedelta, **fields: Any) -> tuple[ApiToken, str]:
    secret = secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        id="".join(secrets.choice(_ALPHABET) for _ in range(12)),
        secret_hash=hash_of(secret, networks),
        scopes=[scope for scope in ApiToken.Scope.values if scope in scopes],
        networks=networks,
        expires_at=now() + lasts,
        **fields,
    )
    return token, f"sp_{token.pk}.{secret}"


@transaction.atomic
def revoke(*, token: ApiToken, by: User) -> ApiToken:
    """Ends a token at once; again is no error. Raises NotAllowed for another person's, unless by an administrator."""
    if token.user_id != by.pk:
        require_person(by, Role.ADMIN, GLOBAL, "revoke another person's token")
    if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now()):
        record(by=by, action="token.revoke", target=f"token:{token.pk}", target_name=token.name)
    token.refresh_from_db()
    return token


def authenticate(text: str, *, address: str) -> ApiToken | None:
    """The live token this text is, with its user; None for anything else, at the same cost.

    Raises NotAllowed where it is not accepted from this address.
    """
    match = _FORM.fullmatch(text)
    if not match:
        return None
    identifier, secret = match.groups()
    # Without an order, which the primary key needs none of, and which costs more to compile than the rest of the query.
    token = next(iter(ApiToken.objects.select_related("user").order_by().filter(pk=identifier)[:1]), None)
    expected, networks = (token.secret_hash, token.networks) if token else ("0" * 64, "")
    right = hmac.compare_digest(hash_of(secret, networks), expected)
    if token is None or not right or not token.is_live or not token.user.is_active:
        return None
    if not token.is_genuine:  # another owner, or more scopes, than it was made with
        return None
    if not token.user.is_genuine:  # its ranges may have been taken away in the table
        return None
    if not admits(token.networks, address):
        _note_refusal(token, address)
        raise NotAllowed(f"This token is not accepted from {address or 'an unknown address'}: it has address ranges.")
    if not account_ranges.admits(token.user, address):
        _note_refusal(token, address)
        place = address or "an unknown address"
        raise NotAllowed(f"This token is not accepted from {place}: its owner's account has address ranges.")
    token.user.acting_token = token
    note_use(token)
    return token


@transaction.atomic
def _note_refusal(token: ApiToken, address: str) -> None:
    """Record it, at most once a minute: a stolen token must not flood the record."""
    at = now()
    stale = Q(refused_at=None) | Q(refused_at__lte=at - USED_EVERY)
    if ApiToken.objects.filter(stale, pk=token.pk).update(refused_at=at):
        target = f"token:{token.pk}"
        record(by="anonymous", action="token.refuse", target=target, target_name=token.name, message=address)


def note_use(token: ApiToken) -> None:
    at = now()
    if token.last_used_at is None or token.last_used_at <= at - USED_EVERY:
        stale = Q(last_used_at=None) | Q(last_used_at__lte=at - USED_EVERY)
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=at)
        token.last_used_at = at


def visible_to(user: User) -> ApiTokenQuerySet:
    """One's own; administrators and auditors see all."""
    everything = ApiToken.objects.select_related("user", "rule")
    return everything if may_audit(user) else everything.filter(user=user)


def get(user: User, pk: str) -> ApiToken:
    """Raises Missing, also for tokens `user` may not see."""
    token = visible_to(user).filter(pk=pk).first()
    if token is None:
        raise Missing("There is no such token.")
    return token


def hash_of(secret: str, networks: str = "") -> str:
    """The address ranges are hashed with the secret: a token whose ranges were changed in the table is none."""
    text = f"{secret} {networks}" if networks else secret
    return hmac.new(settings.SETPOINT_TOKEN_PEPPER.encode(), text.encode(), hashlib.sha256).hexdigest()


def forget_old() -> int:
    """Delete the short-lived tokens of workloads that expired long ago, and return how many. The record has each."""
    old = ApiToken.objects.filter(kind=ApiToken.Kind.WORKLOAD, expires_at__lt=now() - WORKLOADS_KEPT)
    return old.delete()[0]


def longest(scopes: Sequence[str]) -> int:
    """Days a token with these scopes may live."""
    return APPROVE_DAYS if ApiToken.Scope.APPROVE in scopes else MOST_DAYS


def _check_wishes(name: str, scopes: Sequence[str], days: int, kind: str) -> None:
    fields: dict[str, list[str]] = {}
    if not 1 <= len(name.strip()) <= 80:
        fields["name"] = ["Give it a name of 1 to 80 characters."]
    if unknown := [scope for scope in scopes if scope not in ApiToken.Scope.values]:
        fields["scopes"] = [f"{unknown[0]!r} is not a scope; there are {', '.join(ApiToken.Scope.values)}."]
    elif not scopes:
        fields["scopes"] = ["Choose at least one scope."]
    elif kind == ApiToken.Kind.SERVICE and ApiToken.Scope.APPROVE in scopes:
        fields["scopes"] = ["A service token never approves: an approval is a person's."]
    elif not 1 <= days <= longest(scopes):
        because = " because it may approve" if ApiToken.Scope.APPROVE in scopes else ""
        fields["days"] = [f"Its lifetime can be 1 to {longest(scopes)} days{because}, not {days}."]
    if fields:
        raise Invalid("The token was not made.", fields=fields)
