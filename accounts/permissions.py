"""Permission checks by role and scope: the one place, used by pages, API and services.

A role is held in scopes: `*`, `env:<environment>`, `cluster:<uuid>`. An object names the scopes it falls under
(`Cluster.scopes`); holding the role in any of them is enough. Roles do not include one another, except that each
includes viewer. Auditor reads besides what only administrators of everything see, and is held in `*` alone. Superusers
hold every role except break-glass, which is always given by name; rules about persons (no one approves their own plan)
bind them too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.db.models import Q, QuerySet

from accounts.models import ApiToken, RoleBinding, User
from common.errors import Invalid, NotAllowed

Role = RoleBinding.Role
Rows = TypeVar("Rows", bound=QuerySet[Any])

GLOBAL: Sequence[str] = ("*",)
"""For what belongs to the whole installation: people, service tokens, freezes of everything."""

ANYWHERE: Sequence[str] = ("anywhere",)
"""For what is shared by all clusters (profiles, the library): the role in any scope is enough."""

ENVIRONMENTS = ("development", "staging", "production")
"""The words of clusters.models.Cluster.Environment, which this room cannot import; a test keeps them equal."""

TOKEN_SCOPES_FOR: dict[str, frozenset[str]] = {
    Role.VIEWER: frozenset(ApiToken.Scope.values),
    Role.OPERATOR: frozenset({ApiToken.Scope.PLAN, ApiToken.Scope.APPLY}),
    Role.APPROVER: frozenset({ApiToken.Scope.APPROVE}),
    Role.ADMIN: frozenset({ApiToken.Scope.ADMIN}),
    Role.BREAK_GLASS: frozenset(),  # never by token
    Role.AUDITOR: frozenset({ApiToken.Scope.READ}),
}
"""A role counts only if the token in use, where there is one, carries one of these scopes."""

OF_PEOPLE: frozenset[str] = frozenset({Role.APPROVER, Role.BREAK_GLASS})
"""Roles that no service account ever has."""

_ENVIRONMENT = re.compile("env:(" + "|".join(ENVIRONMENTS) + ")")
_CLUSTER = "cluster:"

Person = User | AnonymousUser | None


def may(user: Person, role: str, scopes: Sequence[str]) -> bool:
    """Return whether `user` holds `role` in one of `scopes`. One query a request: `user` remembers the answer."""
    if not isinstance(user, User) or not user.is_active or not scopes or not user.is_genuine:
        return False
    if user.is_service and role in OF_PEOPLE:
        return False
    if user.acting_token and not TOKEN_SCOPES_FOR[role].intersection(user.acting_token.scopes):
        return False
    if user.is_superuser and role != Role.BREAK_GLASS:
        return True
    granted = _held(user, role)
    return bool(granted) if "anywhere" in scopes else not granted.isdisjoint(scopes)


def require(user: Person, role: str, scopes: Sequence[str], doing: str = "do this") -> None:
    """Raises NotAllowed, naming the role and the scopes that would do: "you need the role operator in … to start …"."""
    if may(user, role, scopes):
        return
    where = (
        "any scope"
        if "anywhere" in scopes
        else " or ".join("all clusters (*)" if s == "*" else s for s in dict.fromkeys(scopes))
    )
    article = "an" if role[0] in "aeiou" else "a"
    if isinstance(user, User) and user.is_service and role in OF_PEOPLE:
        raise NotAllowed(f"To {doing} one must be {article} {role}, and a service account never is.")
    if isinstance(user, User) and user.acting_token and _holds(user, role, scopes):
        if role == Role.BREAK_GLASS:
            raise NotAllowed(f"A token may not {doing}: a person does, in a browser.")
        needed = " or ".join(sorted(TOKEN_SCOPES_FOR[role]))
        raise NotAllowed(f"This token may not {doing}: it needs the token scope {needed}.")
    raise NotAllowed(f"To {doing} you need the role {role} in {where}. An administrator can grant it.")


def require_person(user: Person, role: str, scopes: Sequence[str], doing: str) -> None:
    """Require the role as `require` does, and refuse service accounts: people decide who approves and how many must.

    Raises NotAllowed."""
    if isinstance(user, User) and user.is_service:
        raise NotAllowed(f"A service account cannot {doing}: that is decided by people.")
    require(user, role, scopes, doing)


def may_audit(user: Person) -> bool:
    """Return whether `user` may read what is about people and the installation itself: never a right to change it."""
    return may(user, Role.ADMIN, GLOBAL) or may(user, Role.AUDITOR, GLOBAL)


def require_audit(user: Person, doing: str) -> None:
    """Raises NotAllowed where `may_audit` is False."""
    if not may(user, Role.AUDITOR, GLOBAL):
        require(user, Role.ADMIN, GLOBAL, doing)


def visible_scopes(user: Person, role: str = Role.VIEWER) -> frozenset[str]:
    """Every scope in which `user` may look, or acts in `role`; `*` among them means all."""
    if not may(user, role, ANYWHERE):
        return frozenset()
    assert isinstance(user, User)
    return frozenset({"*"}) if user.is_superuser else _held(user, role)


def restrict(queryset: Rows, user: Person, prefix: str = "cluster__", role: str = Role.VIEWER) -> Rows:
    """Return the rows of clusters in which `user` has `role`; by default, of those that they may see. `prefix` leads
    from a row to its cluster; empty for clusters themselves."""
    scopes = visible_scopes(user, role)
    if "*" in scopes:
        return queryset
    if not scopes:
        return queryset.none()
    environments = [scope.removeprefix("env:") for scope in scopes if scope.startswith("env:")]
    clusters = [UUID(scope.removeprefix(_CLUSTER)) for scope in scopes if scope.startswith(_CLUSTER)]
    return queryset.filter(Q(**{f"{prefix}environment__in": environments}) | Q(**{f"{prefix}id__in": clusters}))


def check_scope(scope: str) -> str:
    """The canonical text of a scope. Raises Invalid, naming what is accepted."""
    if scope == "*" or _ENVIRONMENT.fullmatch(scope):
        return scope
    if scope.startswith(_CLUSTER):
        try:
            return f"{_CLUSTER}{UUID(scope.removeprefix(_CLUSTER))}"
        except ValueError:
            pass
    forms = f"* or env:<{'|'.join(ENVIRONMENTS)}> or cluster:<uuid>"
    raise Invalid(f"{scope!r} is not a scope.", fields={"scope": [f"Write {forms}."]})


def _holds(user: User, role: str, scopes: Sequence[str]) -> bool:
    granted = _held(user, role)
    if user.is_superuser and role != Role.BREAK_GLASS:
        return True
    return bool(granted) if "anywhere" in scopes else not granted.isdisjoint(scopes)


def _held(user: User, role: str) -> frozenset[str]:
    """Scopes in which `user` has `role`; every role includes viewer."""
    return frozenset(scope for granted_role, scope in user.grants if role in (granted_role, Role.VIEWER))
