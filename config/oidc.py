"""Reading of SETPOINT_OIDC_*: the providers of single sign-on, whole or not at all.

`SETPOINT_OIDC_PROVIDERS` lists their keys; each has variables of its own, `SETPOINT_OIDC_<KEY>_...`. A variable that is
unknown, or of a provider that is not listed, ends the process: what was misspelled must not be silently off.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from accounts.providers import GroupRole, OidcProvider, Provider, issuer_objection
from common import yaml
from config import env
from config.env import BadEnvironment

PREFIX = "SETPOINT_OIDC_"
LISTED = f"{PREFIX}PROVIDERS"
REQUIRED = ("ISSUER", "CLIENT_ID", "CLIENT_SECRET", "ROLES")
OPTIONAL = ("NAME", "SCOPES", "GROUPS_CLAIM", "TRUST_EMAIL", "AUTH_METHOD", "SCIM_SUBJECT", "SCIM_GROUPS")
AUTH_METHODS = ("client_secret_basic", "client_secret_post")

SCIM_GROUPS = ("displayName", "externalId")
WRITTEN_BY_PEOPLE = frozenset({
    "email", "email_verified", "name", "nickname", "given_name", "family_name", "preferred_username", "profile",
    "upn", "unique_name", "website", "picture",
})  # fmt: skip
"""Claims that a person may change: none of them leads to an account."""

ROLES = ("viewer", "operator", "approver", "admin", "break-glass", "auditor")
TEAM = "team:"
SCOPE = re.compile(
    r"\*|env:(development|staging|production)|cluster:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|team:[1-9][0-9]{0,17}"
)
"""Roles and scopes as accounts.permissions knows them, whose models cannot be imported yet; a test keeps them equal."""

_KEY = re.compile(r"[a-z][a-z0-9]{0,19}")
_SCOPE_WORD = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,100}")
"""A scope token of RFC 6749."""
_FORM = '[{"group": "gpu-operators", "role": "operator", "scope": "env:staging"}, …]'


def providers(keys: list[str]) -> tuple[OidcProvider, ...]:
    """Return the providers with these keys, which SETPOINT_OIDC_PROVIDERS lists. Raises BadEnvironment."""
    check_keys(keys, LISTED)
    refuse_unknown(keys, PREFIX, (*REQUIRED, *OPTIONAL))
    read = tuple(_provider(key) for key in keys)
    issuers = [provider.issuer for provider in read]
    for provider in read:
        if issuers.count(provider.issuer) > 1:
            name = _variable(provider.key, "ISSUER")
            raise BadEnvironment(f"{name}: another provider has this issuer; its people would have two sets of roles")
    return read


def local_accounts(listed: list[str], configured: tuple[Provider, ...]) -> frozenset[str]:
    """Return the accounts that alone may log in with a password; empty: every local account. Raises BadEnvironment."""
    name = "SETPOINT_LOCAL_ACCOUNTS"
    accounts = frozenset(word.lower() for word in listed)
    if bad := sorted(account for account in accounts if "@" not in account):
        raise BadEnvironment(f"{name} lists e-mail addresses of local accounts, and {bad[0]!r} is none")
    if accounts and not configured:
        raise BadEnvironment(
            f"{name} closes password log-in for all others, and "
            f"neither {LISTED} nor SETPOINT_SAML_PROVIDERS names another way to log in"
        )
    return accounts


def check_keys(keys: list[str], listed: str) -> None:
    """Raises BadEnvironment unless `listed` names each key once, and each is one."""
    for key in keys:
        if not _KEY.fullmatch(key):
            raise BadEnvironment(f"{listed}: {key!r} is no key: a lowercase letter, then up to 19 letters and digits")
        if keys.count(key) > 1:
            raise BadEnvironment(f"{listed} names {key} twice")


def refuse_unknown(keys: list[str], prefix: str, parts: Sequence[str]) -> None:
    """Raises BadEnvironment for a variable with this prefix that belongs to none of these providers."""
    listed = f"{prefix}PROVIDERS"
    names = {listed} | {f"{prefix}{key.upper()}_{part}" for key in keys for part in parts}
    known = names | {f"{name}_FILE" for name in names}
    for name in sorted(os.environ):
        if name.startswith(prefix) and name not in known:
            of = name.removeprefix(prefix).partition("_")[0].lower()
            if of in keys:
                own = ", ".join(f"{prefix}{of.upper()}_{part}" for part in parts)
                raise BadEnvironment(f"{name} is unknown; provider {of} has {own}")
            raise BadEnvironment(f"{name} belongs to no provider that {listed} lists")


def _provider(key: str) -> OidcProvider:
    given = {part: env.text(_variable(key, part)).strip() for part in (*REQUIRED, *OPTIONAL)}
    if missing := [_variable(key, part) for part in REQUIRED if not given[part]]:
        raise BadEnvironment(f"{missing[0]} must be set: {LISTED} lists {key}")
    return OidcProvider(
        key=key,
        name=given["NAME"][:60] or key.capitalize(),
        issuer=_issuer(_variable(key, "ISSUER"), given["ISSUER"]),
        client_id=given["CLIENT_ID"],
        client_secret=given["CLIENT_SECRET"],
        mapping=mapping(_variable(key, "ROLES"), given["ROLES"]),
        scopes=_scopes(_variable(key, "SCOPES"), given["SCOPES"]),
        groups_claim=given["GROUPS_CLAIM"] or "groups",
        trusts_email=env.flag(_variable(key, "TRUST_EMAIL")),
        scim_subject=_scim_subject(key, given["SCIM_SUBJECT"], given["GROUPS_CLAIM"]),
        scim_groups=scim_groups(_variable(key, "SCIM_GROUPS"), given["SCIM_GROUPS"]),
        auth_method=_auth_method(_variable(key, "AUTH_METHOD"), given["AUTH_METHOD"]),
    )


def _variable(key: str, part: str) -> str:
    return f"{PREFIX}{key.upper()}_{part}"


def _issuer(name: str, url: str) -> str:
    if objection := issuer_objection(url):
        raise BadEnvironment(f"{name} {objection}")
    return url


def _scopes(name: str, text: str) -> tuple[str, ...]:
    scopes = tuple(dict.fromkeys(text.replace(",", " ").split())) or ("openid", "profile", "email")
    if "openid" not in scopes:
        raise BadEnvironment(f"{name} must contain openid: without it the provider does not say who logs in")
    if bad := [scope for scope in scopes if not _SCOPE_WORD.fullmatch(scope)]:
        raise BadEnvironment(f"{name}: {bad[0]!r} is no scope")
    return scopes


def _auth_method(name: str, method: str) -> str:
    if method and method not in AUTH_METHODS:
        raise BadEnvironment(f"{name} must be {' or '.join(AUTH_METHODS)}, not {method!r}")
    return method


def _scim_subject(key: str, claim: str, groups_claim: str) -> str:
    claim = claim or "sub"
    if claim in WRITTEN_BY_PEOPLE | {groups_claim or "groups"} or not _SCOPE_WORD.fullmatch(claim):
        name = _variable(key, "SCIM_SUBJECT")
        raise BadEnvironment(f"{name} must be a claim that its person cannot change, such as sub or oid, not {claim!r}")
    return claim


def scim_groups(name: str, attribute: str) -> str:
    if attribute and attribute not in SCIM_GROUPS:
        raise BadEnvironment(f"{name} must be {' or '.join(SCIM_GROUPS)}, not {attribute!r}")
    return attribute


def mapping(name: str, text: str) -> tuple[GroupRole, ...]:
    """Read the YAML or JSON list that maps groups to roles. Raises BadEnvironment naming variable, item and field."""
    try:
        rows = yaml.load(text).data
    except yaml.BadYaml as error:
        raise BadEnvironment(f"{name}: {error}") from None
    if not isinstance(rows, list) or not rows:
        raise BadEnvironment(f"{name} must be a list such as {_FORM}")
    rows_read = [_row(f"{name}[{index}]", row) for index, row in enumerate(rows)]
    for index, row in enumerate(rows_read):
        if row in rows_read[:index]:
            raise BadEnvironment(f"{name}[{index}] repeats an earlier item: {row.group}, {row.role}, {row.scope}")
    return tuple(rows_read)


def _row(where: str, row: Any) -> GroupRole:
    if not isinstance(row, dict):
        raise BadEnvironment(f"{where} must have group, role and scope, as in {_FORM}")
    if extra := sorted(set(map(str, row)) - {"group", "role", "scope"}):
        raise BadEnvironment(f"{where}.{extra[0]} is unknown: there are group, role and scope")
    for part in ("group", "role", "scope"):
        if not isinstance(row.get(part), str) or not row[part]:
            raise BadEnvironment(f"{where}.{part} must be text, not {row.get(part)!r}")
    if row["role"] not in ROLES:
        raise BadEnvironment(f"{where}.role must be {', '.join(ROLES)}, not {row['role']!r}")
    if not SCOPE.fullmatch(row["scope"]):
        forms = "*, env:development, env:staging, env:production, cluster:<uuid> or, of a viewer, team:<id>"
        raise BadEnvironment(f"{where}.scope must be {forms}, not {row['scope']!r}")
    if row["role"] == "auditor" and row["scope"] != "*":
        raise BadEnvironment(f"{where}.scope must be *, not {row['scope']!r}: an auditor reads everything")
    if row["scope"].startswith(TEAM) and row["role"] != "viewer":
        raise BadEnvironment(f"{where}.scope must be no team, not {row['scope']!r}: only a viewer is limited to one")
    return GroupRole(row["group"], row["role"], row["scope"])
