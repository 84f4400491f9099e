"""Accounts that log in at a provider of single sign-on: linked by issuer and subject, with roles from groups alone.

An account is either local or of one provider. An existing local account becomes a provider's only on the server, by
`manage.py link_identity`: an e-mail address proves nothing, and a stolen session must not change who logs in.
"""

from __future__ import annotations

from collections.abc import Collection

from django.conf import settings
from django.db import transaction

from accounts.access import sessions
from accounts.models import Identity, Passkey, RoleBinding, ScimUser, SecondFactor, User
from accounts.people import bootstrap, invitations, scopes, services
from accounts.providers import Provider
from audit.services import record
from common.clock import now
from common.errors import Invalid, WrongState


def providers() -> tuple[Provider, ...]:
    """Return the configured providers, of OpenID Connect and of SAML."""
    return (*settings.SETPOINT_OIDC, *settings.SETPOINT_SAML)


@transaction.atomic
def link(*, user: User, provider: Provider, subject: str, by: str) -> Identity:
    """Make a local account the provider's, or one of a provider that is configured no more. Its password, sessions and
    tokens end. Raises Invalid, WrongState."""
    if user.is_service or user.is_superuser:
        kind = "A service account" if user.is_service else "A superuser"
        raise Invalid(f"{kind} does not log in by single sign-on.", fields={"email": ["Name a person's account."]})
    if user.email in settings.SETPOINT_LOCAL_ACCOUNTS:
        reason = "SETPOINT_LOCAL_ACCOUNTS names it, for when single sign-on is down."
        raise Invalid("This account keeps its password.", fields={"email": [reason]})
    if not 0 < len(subject) <= 255 or not subject.isprintable():
        raise Invalid(
            "This is no subject.", fields={"subject": ["The claim sub, or the NameID, of 1 to 255 characters."]}
        )
    configured = {provider.issuer, *(row.issuer for row in providers())}
    if Identity.objects.filter(user=user, issuer__in=configured).exists():
        raise WrongState(f"{user.email} has an identity already.")
    if ScimUser.objects.filter(user=user, issuer__in=configured).exclude(issuer=provider.issuer).exists():
        raise WrongState(f"{user.email} is of another provider's directory.")
    if row := Identity.objects.select_related("user").filter(issuer=provider.issuer, subject=subject).first():
        raise WrongState(f"{row.user.email} has this identity.")
    invitations.lock_out(user)
    SecondFactor.objects.filter(user=user).delete()  # the provider's matter from now on
    Passkey.objects.filter(user=user).delete()
    return add(user, provider, subject, by, _forget(user, configured))


def _forget(user: User, configured: Collection[str]) -> dict[str, str] | None:
    """Delete what the account has of a provider that is configured no more, and return what it was."""
    before = {}
    if old := Identity.objects.filter(user=user).exclude(issuer__in=configured).first():
        before = {"issuer": old.issuer, "subject": old.subject}
        old.delete()
    if row := ScimUser.objects.filter(user=user).exclude(issuer__in=configured).first():
        before |= {"scim_issuer": row.issuer, "external_id": row.external_id, "user_name": row.user_name}
        row.delete()  # a directory of the new provider makes its own
    return before or None


def add(user: User, provider: Provider, subject: str, by: str, before: dict[str, str] | None = None) -> Identity:
    """Store the identity, in the caller's transaction. `before`: the one that it replaces."""
    identity = Identity.objects.create(user=user, issuer=provider.issuer, subject=subject)
    after = {"provider": provider.key, "issuer": provider.issuer, "subject": subject}
    target = f"user:{user.pk}"
    record(by=by, action="user.link-identity", target=target, target_name=user.email, before=before, after=after)
    return identity


@transaction.atomic
def set_roles(user: User, wanted: Collection[tuple[str, str]], by: str) -> None:
    """Give these (role, scope) and take all others. What stays keeps its time: a plan asks since when it was held.

    A role in a team that is not there is not given; the first log-in after the team was made gives it."""
    wanted = scopes.without_missing_teams(wanted)
    bootstrap.note()
    for binding in RoleBinding.objects.filter(user=user):
        if (binding.role, binding.scope) not in wanted:
            binding.delete()
            before = {"role": binding.role, "scope": binding.scope}
            record(by=by, action="role.revoke", target=f"user:{user.pk}", target_name=user.email, before=before)
    user.forget_grants()
    for role, scope in sorted(wanted):
        services.bind(user=user, role=role, scope=scope, by=by)


@transaction.atomic
def take_roles(user: User, wanted: Collection[tuple[str, str]], by: str) -> None:
    """Take all roles but these, and give none."""
    user = User.objects.select_for_update().get(pk=user.pk)
    held = set(RoleBinding.objects.filter(user=user).values_list("role", "scope"))
    set_roles(user, held & set(wanted), by)


@transaction.atomic
def shut_out(user: User, why: str, by: str) -> None:
    """End roles, sessions and tokens of a person whose groups give nothing any more."""
    set_roles(user, (), by)
    ended = sessions.end_all(user)
    revoked = user.tokens.filter(revoked_at=None).update(revoked_at=now())
    after = {"sessions": ended, "tokens_ended": revoked}
    record(by=by, action="user.shut-out", target=f"user:{user.pk}", target_name=user.email, message=why, after=after)
