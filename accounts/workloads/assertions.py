"""Verification of a workload's own token (RFC 7519): which rules its issuer's signature speaks to, and its claims."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from accounts.access.jose import ALGORITHMS, LEEWAY_SECONDS, LONGEST_SUBJECT, public_key
from accounts.models import WorkloadRule
from accounts.workloads import issuers
from accounts.workloads.refusals import ExchangeRefused, bad_token

LONGEST_TOKEN = 16 * 1024
MOST_SECONDS = 24 * 3600
"""From a token's issue to its end: so long its exchange is remembered."""


@dataclass(frozen=True, slots=True)
class Assertion:
    """A verified token of an outside issuer, and the rules whose keys verified it."""

    claims: Mapping[str, Any]
    rules: Sequence[WorkloadRule]
    digest: str
    """Identifies it among those that were exchanged."""

    @property
    def subject(self) -> str:
        return str(self.claims["sub"])


def verify(token: str) -> Assertion:
    """Waits on the network. Raises ExchangeRefused."""
    header, issuer = _unverified(token)
    rules = _rules_of(issuer)
    verified: list[WorkloadRule] = []
    claims: Mapping[str, Any] = {}
    refusal: ExchangeRefused | None = None
    for rule in rules:
        try:
            claims = _claims(token, header, rule)
        except ExchangeRefused as error:
            refusal = error
        else:
            verified.append(rule)
    if not verified:
        raise refusal or _no_rule()
    return Assertion(claims, verified, _digest(token, claims))


def _unverified(token: str) -> tuple[dict[str, Any], object]:
    """Return the header and the issuer that the token names. Raises ExchangeRefused."""
    if len(token) > LONGEST_TOKEN:
        raise bad_token(f"The subject_token is longer than {LONGEST_TOKEN:,} characters.")
    try:
        header = jwt.get_unverified_header(token)
        issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
    except (jwt.PyJWTError, ValueError, RecursionError):  # the last two: of text and JSON that no library foresaw
        raise bad_token("The subject_token is no JSON Web Token.") from None
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise bad_token(f"The algorithm {str(algorithm)[:20]!r} is not accepted; there are {', '.join(ALGORITHMS)}.")
    if "crit" in header:
        raise bad_token("The subject_token has critical header parameters that are not understood.")
    return header, issuer


def _rules_of(issuer: object) -> list[WorkloadRule]:
    """Return the enabled rules of an issuer; no other issuer is ever connected to. Raises ExchangeRefused."""
    is_name = isinstance(issuer, str) and issuer.isprintable()
    rows = WorkloadRule.objects.filter(issuer=issuer, is_enabled=True).select_related("account") if is_name else []
    rules = [row for row in rows if row.is_genuine]
    if not rules:
        raise _no_rule()
    return rules


def _no_rule() -> ExchangeRefused:
    return bad_token("No rule of this installation accepts tokens of this issuer.")


def _claims(token: str, header: Mapping[str, Any], rule: WorkloadRule) -> dict[str, Any]:
    keys = rule.keys or issuers.keys_of(rule.issuer, key_id=header.get("kid"))
    algorithm = str(header["alg"])
    try:
        key = public_key(keys, header, algorithm)
        if key is None:
            raise bad_token("The subject_token is signed with a key that its issuer does not publish.")
        claims: dict[str, Any] = jwt.decode(
            token,
            key=key,
            algorithms=[algorithm],
            issuer=rule.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["iss", "sub", "aud", "exp", "iat"], "verify_aud": False},
        )
    except jwt.PyJWTError as error:
        raise bad_token(_reason(error)) from None
    except (OverflowError, TypeError, ValueError):
        raise bad_token("A time in the subject_token is no time.") from None
    _check_claims(claims)
    return claims


def _check_claims(claims: Mapping[str, Any]) -> None:
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT or not subject.isprintable():
        raise bad_token("The claim sub of the subject_token names no workload.")
    if int(claims["exp"]) - int(claims["iat"]) > MOST_SECONDS:
        raise bad_token(f"The subject_token lives longer than {MOST_SECONDS // 3600} hours. Ask for a shorter one.")


def _digest(token: str, claims: Mapping[str, Any]) -> str:
    """Identify it by jti, else by what is signed: of one signature there may be several spellings."""
    jti = claims.get("jti")
    name = f"jti:{jti}" if isinstance(jti, str) and jti else f"jws:{token.rpartition('.')[0]}"
    return hashlib.sha256(f"{claims['iss']}\0{name}".encode()).hexdigest()


def _reason(error: jwt.PyJWTError) -> str:
    if isinstance(error, jwt.ExpiredSignatureError):
        return "The subject_token has expired."
    if isinstance(error, jwt.ImmatureSignatureError):
        return "The subject_token is not valid yet: the clocks of issuer and installation may differ."
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"The subject_token has no claim {error.claim}."
    return "The subject_token has no valid signature of its issuer."
