"""People and their roles. Only people who administer change them, and an installation never loses its last one.

A password is set by its owner only: `add_user` and `reset_password` make a link for its owner
(accounts.people.invitations). What would let one administrator alone approve waits for a second one's consent
(accounts.people.pending). `by` is text only where its user owns the machine: the command line, the set-up page and the
demo.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from accounts.access import sessions
from accounts.models import Identity, PendingChange, RoleBinding, ScimUser, User
from accounts.people import bootstrap, invitations, pending, scopes
from accounts.people.invitations import Link
from accounts.people.passwords import check_password
from accounts.people.pending import Proposed
from accounts.permissions import GLOBAL, OF_PEOPLE, Role, check_role_scope, require_person
from audit.services import record
from common.clock import now
from common.errors import Invalid, NotAllowed, WrongState

CHANGEABLE = ("first_name", "last_name", "is_active")
POWERS = frozenset({Role.APPROVER, Role.ADMIN, Role.BREAK_GLASS})
"""Roles whose gift takes a second administrator's consent: to approve, to consent, and to start without approval."""


@transaction.atomic
def create_user(
    *,
    email: str,
    by: User | str,
    password: str | None = None,
    first_name: str = "",
    last_name: str = "",
    is_service: bool = False,
) -> User:
    """A person, or a machine's account; with a password only where `by` is text. Raises Invalid, NotAllowed."""
    _require_admin(by, GLOBAL, "add people")
    email = email.strip().lower()
    fields = _check_email(email)
    if password and isinstance(by, User):
        fields["password"] = ["A password is set by its owner only, with the link that is made."]
    elif is_service and password:
        fields["password"] = ["A service account has no password: it uses tokens."]
    user = User(username=email, email=email, first_name=first_name, last_name=last_name, is_service=is_service)
    if password and "password" not in fields:
        fields |= check_password(password, user)
    if fields:
        raise Invalid("The account was not made.", fields=fields)
    user.set_password(password or None)  # None makes it unusable; an empty one would admit anyone
    user.is_vouched = bool(password)
    try:
        with transaction.atomic():
            user.save()
    except IntegrityError as error:
        raise Invalid(
            "The account was not made.", fields={"email": ["An account with this address exists."]}
        ) from error
    record(by=by, action="user.create", target=f"user:{user.pk}", target_name=email, after=_as_recorded(user))
    return user


@transaction.atomic
def add_user(*, by: User, **wishes: Any) -> tuple[User, Link | None]:
    """An account, and for a person the link with which they set their password. Raises as `create_user` does."""
    user = create_user(by=by, **wishes)
    return user, None if user.is_service else invitations.make(user)


@transaction.atomic
def change_user(*, user: User, by: User, **changes: Any) -> User | Proposed:
    """Change names or `is_active`. Deactivating ends sessions and tokens. Raises WrongState for the last admin.

    Activating an account that may approve or administer waits for consent, and nothing else is changed with it.
    """
    require_person(by, Role.ADMIN, GLOBAL, "change people")
    changes = {name: value for name, value in changes.items() if name in CHANGEABLE and getattr(user, name) != value}
    if not changes:
        return user
    if changes.get("is_active"):
        _require_the_directory(user)
    if changes.get("is_active") and has_power(user):
        about = f"{user.email}, {powers(user)}, is activated again."
        return pending.propose(
            kind="user.activate", by=by, about=about, target=f"user:{user.pk}", wanted={}, subject=user
        )
    return _change(user, by, changes)


@transaction.atomic
def change_by_directory(*, user: User, by: str, **changes: Any) -> None:
    """Change an account as its provider's directory says. Deactivating ends sessions and tokens, for the last
    administrator too: the caller judges that."""
    _change(user, by, changes)


def _require_the_directory(user: User) -> None:
    """Raises WrongState for an account that its directory deactivated: its person may have left."""
    if ScimUser.objects.filter(user=user, is_active=False).exists():
        raise WrongState(f"{user.email} is deactivated by its directory (SCIM): activate it there.")


def _change(user: User, by: User | str, changes: dict[str, Any]) -> User:
    before = _as_recorded(user)
    bootstrap.note()
    User.objects.get(pk=user.pk).put_marked(**changes)
    if changes.get("is_active") is False:
        if isinstance(by, User):
            _keep_an_admin(f"{user.email} is the last active administrator.")
        user.tokens.filter(revoked_at=None).update(revoked_at=now())
        sessions.end_all(user)
    for name, value in changes.items():  # only now: refused, the object must not look changed
        setattr(user, name, value)
    record(
        by=by,
        action="user.change",
        target=f"user:{user.pk}",
        target_name=user.email,
        before=before,
        after=_as_recorded(user),
    )
    return user


@transaction.atomic
def set_password(*, user: User, password: str, by: User | str, keep: str | None = None) -> None:
    """One's own. Ends all sessions but the one with the key `keep`; from the command line tokens, too.

    Raises NotAllowed for another person's, Invalid with the password rules that it breaks.
    """
    require_local(user)
    if isinstance(by, User) and by.pk != user.pk:
        raise NotAllowed("A password is set by its owner only: reset it, and they set one with the link.")
    if user.is_service:
        raise Invalid("A service account has no password.", fields={"password": ["It uses tokens."]})
    if fields := check_password(password, user):
        raise Invalid("The password was not set.", fields=fields)
    if isinstance(by, str):
        invitations.lock_out(user)
        user.is_vouched = True
    user.set_password(password)
    user.save(update_fields=["password", "is_vouched"])
    sessions.end_all(user, keep=keep)
    record(by=by, action="user.set-password", target=f"user:{user.pk}", target_name=user.email)


@transaction.atomic
def reset_password(*, user: User, by: User) -> Link | Proposed:
    """End a person's password, sessions and tokens, and make a link for its owner. Raises NotAllowed, Invalid.

    For an account that may approve or administer nothing happens before a second administrator consents.
    """
    require_person(by, Role.ADMIN, GLOBAL, "reset another person's password")
    if user.is_service:
        raise Invalid("A service account has no password.", fields={"user": ["It uses tokens."]})
    require_local(user)
    if not user.is_active:
        raise WrongState(f"{user.email} is deactivated. Activate the account first.")
    if has_power(user):
        about = f"{user.email}, {powers(user)}, gets a new password; sessions and tokens end."
        return pending.propose(
            kind="password.reset", by=by, about=about, target=f"user:{user.pk}", wanted={}, subject=user, with_link=True
        )
    return _reset(user, by)


def _reset(user: User, by: User, code_hash: str = "") -> Link:
    invitations.lock_out(user)
    record(by=by, action="user.reset-password", target=f"user:{user.pk}", target_name=user.email)
    return invitations.make(user, code_hash=code_hash)


@transaction.atomic
def bind(*, user: User, role: str, scope: str, by: User | str) -> RoleBinding | Proposed:
    """Assign a role in a scope. Given twice it is there once. Raises Invalid, NotAllowed, WrongState.

    Approver, admin and break-glass wait for a second administrator's consent; accounts.people.bootstrap has the very
    first.
    """
    if role not in Role.values:
        raise Invalid(f"{role!r} is not a role.", fields={"role": [f"There are {', '.join(Role.values)}."]})
    scope = check_role_scope(role, scope)
    _require_admin(by, (*GLOBAL, scope), f"assign roles in {scope}")
    if role == Role.AUDITOR and scope not in GLOBAL:
        raise Invalid("An auditor reads everything.", fields={"scope": ["Assign auditor in *; viewer in a part."]})
    if user.is_service and role in OF_PEOPLE:
        does = "approves" if role == Role.APPROVER else "breaks the glass"
        raise Invalid(f"A service account never {does}.", fields={"role": ["Assign it to a person."]})
    if isinstance(by, User):
        require_local(user)
        scopes.check_team(scope)
    there = RoleBinding.objects.filter(user=user, role=role, scope=scope).first()
    there = there if there and there.is_genuine else None
    if there is None and isinstance(by, User) and role in POWERS and not bootstrap.lets(user, role, scope, by):
        if user.is_service:
            about = f"{user.email}, a machine's account, becomes {role} in {scope}."
        else:
            about = f"{user.email} becomes {role} in {scope}." + ("" if user.is_vouched else NEW_LINK)
        return pending.propose(
            kind="role.grant",
            by=by,
            about=about,
            target=f"user:{user.pk}",
            wanted={"role": role, "scope": scope},
            scope=scope,
            subject=user,
            with_link=not (user.is_vouched or user.is_service),
        )
    return there or _bind(user, role, scope, by)


NEW_LINK = " They set a new password first: the present one, if any, was set with a link that one administrator saw."


def _bind(user: User, role: str, scope: str, by: User | str) -> RoleBinding:
    there = RoleBinding.objects.filter(user=user, role=role, scope=scope).first()
    if there and not there.is_genuine:
        there.delete()  # inserted without a valid mark: it never counted, and must not block the new row
    binding, is_new = RoleBinding.objects.get_or_create(user=user, role=role, scope=scope)
    user.forget_grants()
    if is_new:
        record(
            by=by,
            action="role.grant",
            target=f"user:{user.pk}",
            target_name=user.email,
            after={"role": role, "scope": scope},
        )
    bootstrap.note()
    return binding


@transaction.atomic
def unbind(*, binding: RoleBinding, by: User) -> None:
    """Take a role away. Raises NotAllowed, WrongState for the last administrator."""
    require_person(by, Role.ADMIN, (*GLOBAL, binding.scope), f"remove roles in {binding.scope}")
    bootstrap.note()
    binding.delete()
    binding.user.forget_grants()
    _keep_an_admin(f"{binding.user.email} is the last active administrator.")
    record(
        by=by,
        action="role.revoke",
        target=f"user:{binding.user_id}",
        target_name=binding.user.email,
        before={"role": binding.role, "scope": binding.scope},
    )


def require_local(user: User) -> None:
    """Raises WrongState for an account of single sign-on: its provider has its password, and its groups give roles."""
    if Identity.objects.filter(user=user).exists() or ScimUser.objects.filter(user=user).exists():
        raise WrongState(f"{user.email} logs in by single sign-on: its roles come from groups, and it has no password.")


def has_power(user: User) -> bool:
    """Return whether this person could approve a plan or consent to a change, were they logged in."""
    return user.is_superuser or user.bindings.filter(role__in=POWERS).exists()


def powers(user: User) -> str:
    """Return the roles of this person that need consent, in words."""
    if user.is_superuser:
        return "superuser"
    return " and ".join(sorted({str(row.role) for row in user.bindings.filter(role__in=POWERS)}))


# ── What a consent carries out ────────────────────────────────────────────────────────────────────────────────────────
def _consented_grant(row: PendingChange, by: User) -> Link | None:
    user = _subject(row)
    _bind(user, row.wanted["role"], row.wanted["scope"], by)
    if user.is_vouched or user.is_service:
        return None
    return _reset_with_both_halves(row, user, by)


def _consented_reset(row: PendingChange, by: User) -> Link | None:
    return _reset_with_both_halves(row, _subject(row), by)


def _reset_with_both_halves(row: PendingChange, user: User, by: User) -> Link:
    """Raises WrongState where the consenting administrator alone would be shown a whole link."""
    if not (row.code_hash or invitations.is_mail_set_up()):
        reason = f"The password of {user.email} was reset by one administrator since this was proposed, or mail is not"
        raise WrongState(f"{reason} set up any more: refuse it, and propose it again.")
    return _reset(user, by, row.code_hash)


def _consented_activation(row: PendingChange, by: User) -> Link | None:
    user = User.objects.get(pk=int(row.subject_id or 0))
    if not user.is_active:
        _require_the_directory(user)
        _change(user, by, {"is_active": True})
    return None


def _subject(row: PendingChange) -> User:
    user = User.objects.get(pk=int(row.subject_id or 0))
    if not user.is_active:
        raise WrongState(f"{user.email} is deactivated.")
    require_local(user)
    return user


pending.KINDS |= {
    "role.grant": _consented_grant,
    "password.reset": _consented_reset,
    "user.activate": _consented_activation,
}


def _require_admin(by: User | str, scopes: tuple[str, ...] | Any, doing: str) -> None:
    if isinstance(by, User):
        require_person(by, Role.ADMIN, scopes, doing)


def _keep_an_admin(message: str) -> None:
    """Raises WrongState, which undoes the caller's transaction."""
    if bootstrap.administrators() == 0:
        raise WrongState(f"{message} Make another one first.")


def _check_email(email: str) -> dict[str, list[str]]:
    try:
        validate_email(email)
    except ValidationError as error:
        return {"email": list(error.messages)}
    return {} if len(email) <= 150 else {"email": ["At most 150 characters."]}


def _as_recorded(user: User) -> dict[str, Any]:
    return {name: getattr(user, name) for name in ("email", *CHANGEABLE, "is_service")}
