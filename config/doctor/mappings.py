"""Checks of the roles that groups of single sign-on give: settings name clusters and teams, which come and go."""

from __future__ import annotations

from collections.abc import Iterator

from accounts.people import identities, scopes
from config.doctor.certificates import SIGN_ON
from config.doctor.findings import Finding, warning


def scopes_there() -> Iterator[Finding]:
    """Warn of each mapped cluster or team that is not there, so that no one is given the role. Two queries."""
    there = scopes.names()
    for provider in identities.providers():
        for row in provider.mapping:
            if row.scope not in there:
                yield warning(
                    SIGN_ON,
                    f"The group {row.group} of {provider.name} gives the role {row.role} in {row.scope}, "
                    "which is not there.",
                    f"Correct the scope in the variable …_{provider.key.upper()}_ROLES, or take the item out.",
                )
