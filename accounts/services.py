"""People and their roles. Only administrators change them, and an installation never loses its last one."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from accounts import sessions
from accounts.models import RoleBinding, User
from accounts.permissions import GLOBAL, Role, check_scope, require
from audit.services import record
from common.clock import now
from common.errors import Invalid, WrongState

CHANGEABLE = ("first_name", "last_name", "is_active")


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
    """A person, or a machine's account without a password. `by` is text only on the command line. Raises Invalid."""
    _require_admin(by, GLOBAL, "add people")
    email = email.strip().lower()
    fields = _check_email(email)
    if is_service and password:
        fields["password"] = ["A service account has no password: it uses tokens."]
    user = User(username=email, email=email, first_name=first_name, last_name=last_name, is_service=is_service)
    if password and "password" not in fields:
        fields |= _check_password(password, user)
    if fields:
        raise Invalid("The account was not made.", fields=fields)
    user.set_password(password or None)  # None makes it unusable; an empty one would let anybody in
    try:
        with transaction.atomic():
            user.save()
    except IntegrityError as error:
        raise Invalid("The account was not made.", fields={"email": ["Somebody has this address."]}) from error
    record(by=by, action="user.create", target=f"user:{user.pk}", target_name=email, after=_as_recorded(user))
    return user


@transaction.atomic
def change_user(*, user: User, by: User, **changes: Any) -> User:
    """Change names or `is_active`. Deactivating ends sessions and tokens. Raises WrongState for the last admin."""
    require(by, Role.ADMIN, GLOBAL, "change people")
    before = _as_recorded(user)
    changes = {name: value for name, value in changes.items() if name in CHANGEABLE and getattr(user, name) != value}
    if not changes:
        return user
    User.objects.filter(pk=user.pk).update(**changes)
    if changes.get("is_active") is False:
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
    """One's own, or anybody's by an administrator. Ends all sessions but the one with the key `keep`.

    Raises Invalid with the password rules that it breaks.
    """
    if not isinstance(by, User) or by.pk != user.pk:
        _require_admin(by, GLOBAL, "set somebody's password")
    if user.is_service:
        raise Invalid("A service account has no password.", fields={"password": ["It uses tokens."]})
    if fields := _check_password(password, user):
        raise Invalid("The password was not set.", fields=fields)
    user.set_password(password)
    user.save(update_fields=["password"])
    sessions.end_all(user, keep=keep)
    record(by=by, action="user.set-password", target=f"user:{user.pk}", target_name=user.email)


@transaction.atomic
def bind(*, user: User, role: str, scope: str, by: User | str) -> RoleBinding:
    """Give a role in a scope. Given twice it is there once. Raises Invalid, NotAllowed."""
    if role not in Role.values:
        raise Invalid(f"{role!r} is not a role.", fields={"role": [f"There are {', '.join(Role.values)}."]})
    scope = check_scope(scope)
    _require_admin(by, (*GLOBAL, scope), f"give roles in {scope}")
    if user.is_service and role == Role.APPROVER:
        raise Invalid("A service account never approves.", fields={"role": ["Give it to a person."]})
    binding, is_new = RoleBinding.objects.get_or_create(user=user, role=role, scope=scope)
    user.__dict__.pop("grants", None)
    if is_new:
        record(
            by=by,
            action="role.grant",
            target=f"user:{user.pk}",
            target_name=user.email,
            after={"role": role, "scope": scope},
        )
    return binding


@transaction.atomic
def unbind(*, binding: RoleBinding, by: User) -> None:
    """Take a role away. Raises NotAllowed, WrongState for the last administrator."""
    require(by, Role.ADMIN, (*GLOBAL, binding.scope), f"take roles in {binding.scope}")
    binding.delete()
    binding.user.__dict__.pop("grants", None)
    _keep_an_admin(f"{binding.user.email} is the last active administrator.")
    record(
        by=by,
        action="role.revoke",
        target=f"user:{binding.user_id}",
        target_name=binding.user.email,
        before={"role": binding.role, "scope": binding.scope},
    )


def administrators() -> int:
    """Active people who administer everything."""
    active = User.objects.filter(is_active=True, is_service=False)
    bound = active.filter(bindings__role=Role.ADMIN, bindings__scope="*")
    return (bound | active.filter(is_superuser=True)).distinct().count()


def _require_admin(by: User | str, scopes: tuple[str, ...] | Any, doing: str) -> None:
    if isinstance(by, User):
        require(by, Role.ADMIN, scopes, doing)


def _keep_an_admin(message: str) -> None:
    """Raises WrongState, which undoes the caller's transaction."""
    if administrators() == 0:
        raise WrongState(f"{message} Make another one first.")


def _check_email(email: str) -> dict[str, list[str]]:
    try:
        validate_email(email)
    except ValidationError as error:
        return {"email": list(error.messages)}
    return {} if len(email) <= 150 else {"email": ["At most 150 characters."]}


def _check_password(password: str, user: User) -> dict[str, list[str]]:
    if len(password) > 1024:
        return {"password": ["At most 1,024 characters."]}
    try:
        validate_password(password, user)
    except ValidationError as error:
        return {"password": list(error.messages)}
    return {}


def _as_recorded(user: User) -> dict[str, Any]:
    return {name: getattr(user, name) for name in ("email", *CHANGEABLE, "is_service")}
