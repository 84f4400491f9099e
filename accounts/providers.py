"""OpenID Connect providers as the operator of the installation set them. No Django here: settings are made of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GroupRole:
    """Members of `group` hold `role` in `scope`."""

    group: str
    role: str
    scope: str


@dataclass(frozen=True, slots=True)
class Provider:
    key: str
    """In variables, addresses and the audit record: lowercase letters and digits."""
    name: str
    """On pages."""
    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    mapping: tuple[GroupRole, ...]
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    groups_claim: str = "groups"
    trusts_email: bool = False
    """E-mail addresses count without `email_verified`: the directory assigns them, people cannot write their own."""
    auth_method: str = ""
    """client_secret_basic or client_secret_post; empty: what the provider's discovery document offers."""

    @property
    def actor(self) -> str:
        """Name the provider as the author of audit records about what its groups decide."""
        return f"single sign-on ({self.key})"

    def roles_of(self, groups: Collection[str]) -> frozenset[tuple[str, str]]:
        """Return (role, scope) of each mapped group among these."""
        return frozenset((row.role, row.scope) for row in self.mapping if row.group in groups)
