"""Parameters of a token exchange request (RFC 8693, section 2.1), read strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accounts.models import ApiToken
from accounts.workloads.refusals import ExchangeRefused

GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 — the name of a type
SUBJECT_TYPES = ("urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token")
REQUIRED = ("grant_type", "subject_token", "subject_token_type")
OPTIONAL = ("requested_token_type", "audience", "scope", "rule")
"""`rule` is our own: it names the rule where several accept the token."""
RULE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
NOT_OFFERED = ("resource", "actor_token", "actor_token_type", "client_id", "client_secret")


@dataclass(frozen=True, slots=True)
class Wish:
    subject_token: str
    audience: str = ""
    scopes: tuple[str, ...] = ()
    """Empty: all that the rule gives."""
    rule: str = ""


def read(sent: Mapping[str, Sequence[str]]) -> Wish:
    """Raises ExchangeRefused naming the parameter."""
    for name, values in sent.items():
        if name not in (*REQUIRED, *OPTIONAL):
            advice = "is not offered here" if name in NOT_OFFERED else "is unknown"
            raise _invalid(f"The parameter {_shown(name)} {advice}; there are {', '.join((*REQUIRED, *OPTIONAL))}.")
        if len(values) != 1:
            raise _invalid(f"The parameter {name} is sent {len(values)} times.")
    given = {name: values[0] for name, values in sent.items() if values[0]}
    if missing := [name for name in REQUIRED if name not in given]:
        raise _invalid(f"The parameter {missing[0]} is missing.")
    if given["grant_type"] != GRANT:
        raise ExchangeRefused("unsupported_grant_type", f"The grant_type must be {GRANT}.")
    if given["subject_token_type"] not in SUBJECT_TYPES:
        raise _invalid(f"The subject_token_type must be {' or '.join(SUBJECT_TYPES)}.")
    if given.get("requested_token_type", ACCESS_TOKEN) != ACCESS_TOKEN:
        raise _invalid(f"The requested_token_type can only be {ACCESS_TOKEN}.")
    if "rule" in given and not RULE_NAME.fullmatch(given["rule"]):
        raise _invalid("The parameter rule is no name of a rule: lowercase letters, digits and -, at most 40.")
    return Wish(
        given["subject_token"], given.get("audience", ""), _scopes(given.get("scope", "")), given.get("rule", "")
    )


def _scopes(text: str) -> tuple[str, ...]:
    scopes = tuple(dict.fromkeys(text.split(" "))) if text else ()
    for scope in scopes:
        if scope not in ApiToken.Scope.values:
            known = ", ".join(ApiToken.Scope.values)
            raise ExchangeRefused("invalid_scope", f"{_shown(scope)!r} is not a scope; there are {known}.")
    return scopes


def _invalid(description: str) -> ExchangeRefused:
    return ExchangeRefused("invalid_request", description)


def _shown(text: str) -> str:
    """RFC 6749 permits printable ASCII without quotation marks and backslashes in a description."""
    return re.sub(r"[^\x20\x21\x23-\x5b\x5d-\x7e]", "?", text[:40])
