"""Role scopes in words: where a role can be given, and what a scope is called on pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounts.permissions import ENVIRONMENTS
from common import hooks

EVERYWHERE = "everywhere"


def names() -> dict[str, str]:
    """Every scope in which a role can be given now, and what it is called after "operator …". One query."""
    environments = {f"env:{name}": f"in {name}" for name in ENVIRONMENTS}
    return {"*": EVERYWHERE} | environments | {scope: f"in {name}" for scope, name in hooks.role_scopes()}


def named(scope: str, names: Mapping[str, str]) -> str:
    return names.get(scope, "in a cluster that is gone")


def choices(names: Mapping[str, str]) -> list[Any]:
    """Return the choices of a form: everywhere, each environment, each cluster."""
    known = {"*", *(f"env:{name}" for name in ENVIRONMENTS)}
    clusters = [(scope, name.removeprefix("in ")) for scope, name in names.items() if scope not in known]
    environments = [(f"env:{name}", f"Environment {name}") for name in ENVIRONMENTS]
    groups: list[Any] = [("*", "Everywhere"), ("Environments", environments)]
    return [*groups, ("One cluster", clusters)] if clusters else groups
