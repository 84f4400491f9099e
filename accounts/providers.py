"""OpenID Connect providers as the operator of the installation set them. No Django here: settings are made of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def issuer_objection(url: str) -> str:
    """Return why this is not the address of an issuer, to be read after its field's name; empty when it is one."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return f"is not a URL: {url!r}"
    if parts.query or parts.fragment or parts.username or not host or "/.well-known/" in url:
        return f"must be the issuer itself, as its discovery document has it, not {url!r}"
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        return f"must begin with https://, not {url!r}"
    return ""


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
    scim_subject: str = "sub"
    """The claim of the ID token that is the externalId which SCIM sends for the same person."""
    scim_groups: str = ""
    """Roles come from the groups that SCIM sends: matched by `displayName` or `externalId`; empty: from the claim."""
    auth_method: str = ""
    """client_secret_basic or client_secret_post; empty: what the provider's discovery document offers."""

    @property
    def actor(self) -> str:
        """Name the provider as the author of audit records about what its groups decide."""
        return f"single sign-on ({self.key})"

    def roles_of(self, groups: Collection[str]) -> frozenset[tuple[str, str]]:
        """Return (role, scope) of each mapped group among these."""
        return frozenset((row.role, row.scope) for row in self.mapping if row.group in groups)
