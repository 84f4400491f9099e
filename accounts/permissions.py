"""Permission checks by role and scope: the one place, used by pages, API and services.

A role is held in scopes: `*`, `env:<environment>`, `cluster:<uuid>`. An object names the scopes it falls under
(`Cluster.scopes`); holding the role in any of them is enough. A viewer may be held in `team:<id>` besides: that opens
the pages of that team (`teams_of`), and counts as no role anywhere else. Roles do not include one another, except that
each includes viewer. Auditor reads besides what only administrators of everything see, and is held in `*` alone.
Superusers hold every role except break-glass, which is always given by name; rules about persons (no one approves their
own plan) bind them too.
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
TEAM = "team:"
"""Scope of a team of gpus.models.Team, which this room cannot import: `team:<its id>`, of viewers alone."""
_TEAM = re.compile(TEAM + "[1-9][0-9]{0,17}")

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


def has_role(user: Person) -> bool:
    """Return whether `user` has a role in some part of the installation; a role limited to a team is none."""
    return may(user, Role.VIEWER, ANYWHERE)


def teams_of(user: Person) -> frozenset[int]:
    """Return the ids of the teams to which a role of viewer is limited; teams that were removed may be among them."""
    if not isinstance(user, User) or not user.is_active or not user.is_genuine:
        return frozenset()
    if user.acting_token and not TOKEN_SCOPES_FOR[Role.VIEWER].intersection(user.acting_token.scopes):
        return frozenset()
    limited = (scope for role, scope in user.grants if role == Role.VIEWER and _TEAM.fullmatch(scope))
    return frozenset(int(scope.removeprefix(TEAM)) for scope in limited)


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


def check_role_scope(role: str, scope: str) -> str:
    """Return the canonical text of a scope in which `role` may be held. Raises Invalid, naming the scopes of it."""
    if scope.startswith(TEAM):
        if role != Role.VIEWER:
            raise Invalid(
                f"Only a viewer is limited to a team, and {role} is another role.",
                fields={"scope": ["Assign viewer in it, or this role in *, an environment or a cluster."]},
            )
        if not _TEAM.fullmatch(scope):
            raise Invalid(f"{scope!r} is not a scope.", fields={"scope": ["Write team:<id>, the id of a team."]})
        return scope
    return check_scope(scope, " or team:<id>" if role == Role.VIEWER else "")


def check_scope(scope: str, more_forms: str = "") -> str:
    """Return the canonical text of a scope of clusters. Raises Invalid, naming what is accepted."""
    if scope == "*" or _ENVIRONMENT.fullmatch(scope):
        return scope
    if scope.startswith(_CLUSTER):
        try:
            return f"{_CLUSTER}{UUID(scope.removeprefix(_CLUSTER))}"
        except ValueError:
            pass
    forms = f"* or env:<{'|'.join(ENVIRONMENTS)}> or cluster:<uuid>{more_forms}"
    raise Invalid(f"{scope!r} is not a scope.", fields={"scope": [f"Write {forms}."]})


def _holds(user: User, role: str, scopes: Sequence[str]) -> bool:
    granted = _held(user, role)
    if user.is_superuser and role != Role.BREAK_GLASS:
        return True
    return bool(granted) if "anywhere" in scopes else not granted.isdisjoint(scopes)


def _held(user: User, role: str) -> frozenset[str]:
    """Scopes of clusters in which `user` has `role`; every role includes viewer."""
    held = (scope for granted_role, scope in user.grants if role in (granted_role, Role.VIEWER))
    return frozenset(scope for scope in held if not scope.startswith(TEAM))
