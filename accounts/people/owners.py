"""Owner teams: what a team owns, a pool or a profile, is changed by those who hold a role in the team.

Ownership only takes away. A role in a team makes no one an operator: the right to change pools and profiles comes from
roles in clusters as before, and where a team owns one, a role in that team is needed besides. Administrators need none,
and they alone say who owns what, so that no operator can take a pool over, or free one, before planning for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from accounts.models import User
from accounts.permissions import TEAM, Role, may, teams_of
from common import hooks
from common.errors import Invalid, NotAllowed


def team_names() -> dict[int, str]:
    """Return the teams that there are, in order of their names. One query."""
    return {int(scope.removeprefix(TEAM)): name for scope, name in hooks.team_scopes()}


def named(owner: int, names: Mapping[int, str]) -> str:
    return names.get(owner) or f"team {owner}, which is gone"


def shown(owner: int | None, context: Mapping[str, Any] | None = None) -> str | None:
    """Return the name of an owner. `context`: a dictionary, such as a serializer's, that keeps the names for the rows
    of a list; they are read once, and only if needed."""
    if owner is None:
        return None
    kept = cast("dict[str, Any]", {} if context is None else context)
    if "team_names" not in kept:
        kept["team_names"] = team_names()
    return named(owner, kept["team_names"])


def choices(owner: int | None = None) -> list[tuple[str, str]]:
    """Return the choices of a form, with the present owner even if that team is gone."""
    names = team_names()
    gone = [] if owner is None or owner in names else [(named(owner, names),) * 2]
    return [("", "No team"), *((name, name) for name in names.values()), *gone]


def team_id(name: str | None) -> int | None:
    """Return the key of the team of this name; None for no name. Raises Invalid, naming the teams that there are."""
    if not name:
        return None
    by_name = {name: pk for pk, name in team_names().items()}
    if name not in by_name:
        known = ", ".join(sorted(by_name)[:20]) or "none yet"
        reason = f"There is no team {name[:63]!r}; there are {known}. GPUs › Cost by team › Teams adds one."
        raise Invalid("This is no owner.", fields={"owner": [reason]})
    return by_name[name]


def hold(owner: int | None) -> None:
    """Keep the team from being removed until the caller's transaction ends. Raises Invalid where it is gone."""
    if owner is not None and owner not in hooks.team_locks(owner):
        raise Invalid("This is no owner.", fields={"owner": ["This team was removed just now. Choose another."]})


def reason_against(user: User, owner: int | None, scopes: Sequence[str]) -> str:
    """Return why this person may not change what `owner` owns; empty where no team does, or where they may.

    `scopes` are those in which an administrator may change it without a role in the team.
    """
    if owner is None or may(user, Role.ADMIN, scopes):
        return ""
    names = user.__dict__.setdefault("_team_names", {})  # read once a request: lists ask for each row
    if owner not in names:
        names |= team_names()
    if owner in teams_of(user) and owner in names:
        return ""
    if user.acting_token and (user.is_superuser or any((Role.ADMIN, scope) in user.grants for scope in scopes)):
        return f"{named(owner, names)} owns it: this token needs the token scope admin, or you a role in that team."
    return f"{named(owner, names)} owns it: you also need a role in that team, or the role admin."


def require(user: User, owner: int | None, scopes: Sequence[str], doing: str) -> None:
    """Raises NotAllowed."""
    if reason := reason_against(user, owner, scopes):
        raise NotAllowed(f"You may not {doing}. {reason}")


def belonged_at(person: User, owner: int, at: datetime | None, known: Collection[int]) -> bool:
    """Return whether this person holds a role in the team, and held it at that time already. `known`: the teams that
    there are. No superuser belongs to a team by that alone."""
    given = person.granted.get((Role.VIEWER, f"{TEAM}{owner}"))
    return owner in known and owner in teams_of(person) and given is not None and (at is None or given <= at)
