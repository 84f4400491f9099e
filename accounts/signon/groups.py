"""Roles from the groups that a provider names, by the operator's mapping (accounts.providers)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounts.providers import Provider
from accounts.signon.refusals import BadClaims, NoRole, SignOnRefused

MOST_GROUPS = 20_000
LONGEST_NAME = 1000


def roles(provider: Provider, claims: Mapping[str, Any]) -> frozenset[tuple[str, str]] | SignOnRefused:
    """Return (role, scope) of each mapped group, or the reason why there is none.

    A claim that is missing or cannot be read gives no role, like no group: many providers leave it out for a person
    without groups, so that a person who was removed from all cannot be told from a claim that is not configured.
    """
    groups = claims.get(provider.groups_claim)
    name = provider.groups_claim
    if groups is None:
        links = claims.get("_claim_names")
        if isinstance(links, dict) and name in links:
            advice = "Have the provider send only groups assigned to this application: too many do not fit the token."
            return BadClaims(f"{provider.name} sent a link in place of the groups ({name}).", advice)
        message = f"{provider.name} sent no groups ({provider.source} {name})"
        return NoRole(f"{message}: you are in none, or it is not set up to send them.")
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        return BadClaims(f"{provider.name} sent the {provider.source} {name}, and it is no list of names.")
    if len(groups) > MOST_GROUPS or any(len(group) > LONGEST_NAME for group in groups):
        return BadClaims(
            f"{provider.name} sent more, or longer, groups than are read: {MOST_GROUPS:,} of {LONGEST_NAME:,}."
        )
    granted = provider.roles_of(frozenset(groups))
    return granted or NoRole(f"None of your groups at {provider.name} gives a role in this installation.")
