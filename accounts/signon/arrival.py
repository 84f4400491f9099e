"""The step from verified claims to a session: the account, its roles from groups, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from shlex import quote
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.http import HttpRequest

from accounts.access import account_ranges, freshness, login
from accounts.access.addresses import client_address
from accounts.models import Identity, User
from accounts.people import identities, services
from accounts.providers import Provider
from accounts.scim import directory
from accounts.signon import groups
from accounts.signon.refusals import AccountExists, BadClaims, Closed, NoRole, Outside, SignOnRefused
from audit.services import record
from common.errors import Invalid

LONGEST_NAME = 150


def admit(request: HttpRequest, provider: Provider, claims: Mapping[str, Any]) -> User:
    """Begin the session of the person with these verified claims; new people get an account. Raises SignOnRefused.

    A known person whose groups give no role any more is turned away, and what they still had ends. From outside of the
    account's address ranges nothing is given, but what the groups give no more ends.
    """
    try:
        return _admit(request, provider, claims)
    except SignOnRefused as refusal:
        _record_refusal(request, provider, claims, refusal)
        raise


def _admit(request: HttpRequest, provider: Provider, claims: Mapping[str, Any]) -> User:
    roles = _roles(provider, claims)
    if isinstance(roles, SignOnRefused):
        if identity := _identity(provider, claims):
            identities.shut_out(identity.user, str(roles), provider.actor)
        raise roles
    try:
        return _enter(request, provider, claims, roles)
    except Outside:
        if identity := _identity(provider, claims):  # none of an account that this log-in would have made
            identities.take_roles(identity.user, roles, provider.actor)
        raise


@transaction.atomic
def _enter(
    request: HttpRequest, provider: Provider, claims: Mapping[str, Any], roles: frozenset[tuple[str, str]]
) -> User:
    user = _account(provider, claims)
    # Of two log-ins of one person at once, the later one judges the roles that the earlier one left.
    user = User.objects.select_for_update().get(pk=user.pk)
    if not user.is_active:
        raise Closed(f"The account {user.email} is deactivated in this installation.")
    if not user.is_genuine:
        raise Closed(f"The account {user.email} was changed in the database.")
    if provider.scim_groups:
        roles = directory.roles_of(user, provider)  # changed since it was read
        if not roles:
            raise _without_role(provider)
    _follow_email(user, provider, claims)
    identities.set_roles(user, roles, provider.actor)
    user.forget_grants()
    if not account_ranges.admits(user, address := client_address(request)):
        raise Outside(f"The account {user.email} is not accepted from {address or 'an unknown address'}.")
    proved_at = freshness.at_provider(claims)
    login.enter(request, user, proved_at=proved_at, way=f"by {provider.name}", is_complete=True)
    return user


def _roles(provider: Provider, claims: Mapping[str, Any]) -> frozenset[tuple[str, str]] | SignOnRefused:
    """Return the roles of the person's groups: those of the claim, or those that the directory sent. Raises Closed."""
    if not provider.scim_groups:
        return groups.roles(provider, claims)
    identity = _identity(provider, claims)
    known = identity or directory.awaited(provider, claims.get(provider.scim_subject))
    return (directory.roles_of(known.user, provider) if known else frozenset()) or _without_role(provider)


def _without_role(provider: Provider) -> NoRole:
    return NoRole(f"The directory of {provider.name} has put you into no group that gives a role in this installation.")


def _identity(provider: Provider, claims: Mapping[str, Any]) -> Identity | None:
    """Return the person's row. Raises Closed for one that was not written by Setpoint."""
    rows = Identity.objects.select_related("user").filter(issuer=provider.issuer, subject=claims["sub"])
    identity = rows.first()
    if identity and not identity.is_genuine:
        raise Closed("The link between this account and the provider was changed in the database.")
    return identity


def _account(provider: Provider, claims: Mapping[str, Any]) -> User:
    if identity := _identity(provider, claims):
        return identity.user
    if user := _awaited(provider, claims):
        return user
    email = _email(provider, claims)
    try:
        with transaction.atomic():
            return _new_account(provider, claims, email)
    except (IntegrityError, Invalid):  # the address, or the identity, is taken
        if identity := _identity(provider, claims):  # by another log-in of the same person, which was faster
            return identity.user
        raise _taken(provider, claims, email) from None


def _awaited(provider: Provider, claims: Mapping[str, Any]) -> User | None:
    """Link the account that the directory made for this person: by the externalId, never by an address."""
    row = directory.awaited(provider, claims.get(provider.scim_subject))
    if row is None:
        return None
    user = User.objects.select_for_update().get(pk=row.user_id)
    identity = Identity.objects.filter(user=user).first()  # by another log-in at the same time
    if identity is None:
        identities.add(user, provider, claims["sub"], provider.actor)
    elif identity.subject != claims["sub"]:
        raise Closed(f"The account {user.email} is linked to another person of {provider.name}.")
    return user


def _new_account(provider: Provider, claims: Mapping[str, Any], email: str) -> User:
    user = services.create_user(
        email=email,
        by=provider.actor,
        first_name=_name(claims.get("given_name")),
        last_name=_name(claims.get("family_name")),
    )
    identities.add(user, provider, claims["sub"], provider.actor)
    return user


def _taken(provider: Provider, claims: Mapping[str, Any], email: str) -> AccountExists:
    message = f"An account with the address {email} exists, and it is not linked to {provider.name}."
    options = f"--provider={provider.key} --email={quote(email)} --subject={quote(claims['sub'])}"
    advice = "An address alone proves nothing. If it is yours, have an operator link it on the server"
    return AccountExists(message, f"{advice}: manage.py link_identity {options}")


def _email(provider: Provider, claims: Mapping[str, Any]) -> str:
    """Return the address that names the account. Raises BadClaims for one that the person may have invented."""
    email, name = claims.get("email"), f"{provider.source} {provider.email_claim}"
    if isinstance(email, list):
        raise BadClaims(f"{provider.name} sent {len(email)} e-mail addresses ({name}), of which one is needed.")
    if not isinstance(email, str) or not email:
        raise BadClaims(f"{provider.name} sent no e-mail address ({name}), which names the account.")
    email = email.strip().lower()
    try:
        validate_email(email)
    except ValidationError:
        raise BadClaims(f"{provider.name} sent, as {name}, what is no address.") from None
    if len(email) > LONGEST_NAME:
        raise BadClaims(f"{provider.name} sent an e-mail address of more than {LONGEST_NAME} characters.")
    if not provider.trusts_email and claims.get("email_verified") is not True:
        advice = (
            "Verify the address there. Where people cannot write their own addresses, the operator sets "
            f"SETPOINT_OIDC_{provider.key.upper()}_TRUST_EMAIL."
        )
        raise BadClaims(f"{provider.name} does not say that your e-mail address is verified (email_verified).", advice)
    return email


def _follow_email(user: User, provider: Provider, claims: Mapping[str, Any]) -> None:
    """Rename the account after its verified address, unless another account has it."""
    try:
        email = _email(provider, claims)
    except BadClaims:
        return  # the account has a name, and its identity is the subject
    taken = User.objects.exclude(pk=user.pk)
    if email == user.email or taken.filter(email=email).exists() or taken.filter(username=email).exists():
        return
    before, after = {"email": user.email}, {"email": email}
    target = f"user:{user.pk}"
    with suppress(IntegrityError), transaction.atomic():  # another account took it meanwhile
        user.put_marked(email=email, username=email)
        record(by=provider.actor, action="user.change", target=target, target_name=email, before=before, after=after)


def _record_refusal(
    request: HttpRequest, provider: Provider, claims: Mapping[str, Any], refusal: SignOnRefused
) -> None:
    record(
        by=provider.actor,
        action="session.refuse",
        target=f"identity:{provider.key}",
        target_name=str(claims["sub"]),
        message=f"{client_address(request)}: {refusal}",
    )


def _name(value: object) -> str:
    return value.strip()[:LONGEST_NAME] if isinstance(value, str) and value.isprintable() else ""
