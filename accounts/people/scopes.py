"""Role scopes in words: where a role can be given, and what a scope is called on pages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from accounts.permissions import ENVIRONMENTS, TEAM
from common import hooks
from common.errors import Invalid

EVERYWHERE = "everywhere"


def names() -> dict[str, str]:
    """Every scope in which a role can be given now, and what it is called after "operator …". Two queries."""
    environments = {f"env:{name}": f"in {name}" for name in ENVIRONMENTS}
    clusters = {scope: f"in {name}" for scope, name in hooks.role_scopes()}
    teams = {scope: f"of the team {name}" for scope, name in hooks.team_scopes()}
    return {"*": EVERYWHERE} | environments | clusters | teams


def named(scope: str, names: Mapping[str, str]) -> str:
    gone = "of a team that is gone: it opens nothing" if scope.startswith(TEAM) else "in a cluster that is gone"
    return names.get(scope, gone)


def choices(names: Mapping[str, str]) -> list[Any]:
    """Return the choices of a form: everywhere, each environment, each cluster, each team."""
    known = {"*", *(f"env:{name}" for name in ENVIRONMENTS)}
    others = [(scope, name) for scope, name in names.items() if scope not in known]
    clusters = [(scope, name.removeprefix("in ")) for scope, name in others if not scope.startswith(TEAM)]
    teams = [(scope, name.removeprefix("of the team ")) for scope, name in others if scope.startswith(TEAM)]
    environments = [(f"env:{name}", f"Environment {name}") for name in ENVIRONMENTS]
    groups: list[Any] = [("*", "Everywhere"), ("Environments", environments)]
    return [
        *groups,
        *([("One cluster", clusters)] * bool(clusters)),
        *([("One team, viewer only", teams)] * bool(teams)),
    ]


def without_missing_teams(roles: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return these (role, scope) but those in a team that is not there: a later team may have its id."""
    if not any(scope.startswith(TEAM) for _, scope in roles):
        return frozenset(roles)
    there = dict(hooks.team_scopes())
    return frozenset((role, scope) for role, scope in roles if not scope.startswith(TEAM) or scope in there)


def check_team(scope: str) -> None:
    """Raises Invalid for the scope of a team that is not there."""
    if scope.startswith(TEAM) and scope not in dict(hooks.team_scopes()):
        reason = f"There is no team {scope.removeprefix(TEAM)}: GPUs › Cost by team › Teams has them."
        raise Invalid("The role was not assigned.", fields={"scope": [reason]})
