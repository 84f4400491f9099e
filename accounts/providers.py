"""Providers of single sign-on as the operator of the installation set them. No Django here: settings are made of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def issuer_objection(url: str) -> str:
    """Return why this is not the address of an issuer, to be read after its field's name; empty when it is one."""
    if objection := url_objection(url):
        return objection
    if urlsplit(url).query or "/.well-known/" in url:
        return f"must be the issuer itself, as its discovery document has it, not {url!r}"
    return ""


def url_objection(url: str) -> str:
    """Return why this is not an address at a provider, to be read after its field's name; empty when it is one."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return f"is not a URL: {url!r}"
    if parts.fragment or parts.username or not host or not url.isprintable() or " " in url:
        return f"must be an address such as https://id.example.com/path, not {url!r}"
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
    """The part that both protocols share: all that is needed once a person's identity is proven."""

    page: ClassVar[str]
    """Name of the address at which its log-ins begin."""
    source: ClassVar[str]
    """The protocol's word for what is told of a person."""

    key: str
    """In variables, addresses and the audit record: lowercase letters and digits."""
    name: str
    """On pages."""
    issuer: str
    mapping: tuple[GroupRole, ...]
    _: KW_ONLY
    groups_claim: str = "groups"
    email_claim: str = "email"
    """By which messages call it."""
    trusts_email: bool = False
    """E-mail addresses count without `email_verified`: the directory assigns them, people cannot write their own."""
    scim_subject: str = "sub"
    """The claim that is the externalId which SCIM sends for the same person."""
    scim_groups: str = ""
    """Roles come from the groups that SCIM sends: matched by `displayName` or `externalId`; empty: from the claim."""

    @property
    def actor(self) -> str:
        """Name the provider as the author of audit records about what its groups decide."""
        return f"single sign-on ({self.key})"

    def roles_of(self, groups: Collection[str]) -> frozenset[tuple[str, str]]:
        """Return (role, scope) of each mapped group among these."""
        return frozenset((row.role, row.scope) for row in self.mapping if row.group in groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcProvider(Provider):
    """An OpenID Connect provider."""

    page: ClassVar[str] = "accounts:sign_on"
    source: ClassVar[str] = "claim"

    client_id: str
    client_secret: str = field(repr=False)
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    auth_method: str = ""
    """client_secret_basic or client_secret_post; empty: what the provider's discovery document offers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlProvider(Provider):
    """A SAML 2.0 identity provider. `issuer` is its entity ID, and the subject the NameID."""

    page: ClassVar[str] = "accounts:saml"
    source: ClassVar[str] = "attribute"

    sso_url: str
    """Where a browser is sent with the request (HTTP-Redirect)."""
    certificates: tuple[str, ...]
    """PEM: their keys sign assertions, and no others. Several while one replaces another."""
    name_id: str = "persistent"
    """persistent or email: the only format of NameID that is accepted."""
    first_name_attribute: str = "givenName"
    last_name_attribute: str = "sn"
    trusts_authn_instant: bool = False
    """AuthnInstant is when the person proved themselves, also for a log-in that it remembers: not so at Keycloak."""
    trusts_email: bool = True
    """SAML has no word for a verified address: the operator names an attribute that people cannot write."""
