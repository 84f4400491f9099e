"""Verification of ID tokens (OpenID Connect Core 1.0, section 3.1.3.7).

allauth skips the signature of a token that came over TLS from the token endpoint, as the standard permits, and takes
the algorithm from the token where it does check. Here every token is verified, by algorithms of a fixed list.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

import jwt

from accounts.access.jose import ALGORITHMS, LEEWAY_SECONDS, LONGEST_SUBJECT, public_key
from accounts.providers import OidcProvider
from accounts.signon.refusals import BadToken

_CLOCKS = "The clocks of the provider and of this installation differ: an operator should look at both."


def verify(token: object, *, provider: OidcProvider, nonce: str, keys: object) -> dict[str, Any]:
    """Return the claims of an ID token. `keys` is the provider's JWKS document. Raises BadToken."""
    if not isinstance(token, str):
        raise BadToken(f"{provider.name} sent no ID token.", "Its client needs the scope openid and the code flow.")
    try:
        header = jwt.get_unverified_header(token)
        algorithm = str(header.get("alg", ""))
        if algorithm not in ALGORITHMS:
            raise BadToken(f"{provider.name} signs with {algorithm[:20]!r}, which is not accepted.", _accepted())
        claims: dict[str, Any] = jwt.decode(
            token,
            key=_key(keys, header, algorithm, provider),
            algorithms=[algorithm],
            audience=provider.client_id,
            issuer=provider.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["iss", "sub", "aud", "exp", "iat"]},
        )
    except jwt.PyJWTError as error:
        raise _refused(error, provider) from None
    _check_person(claims, provider, nonce)
    return claims


def _check_person(claims: Mapping[str, Any], provider: OidcProvider, nonce: str) -> None:
    audience = claims["aud"]
    party = claims.get("azp")
    if (isinstance(audience, list) and len(audience) > 1 and party is None) or party not in (None, provider.client_id):
        raise BadToken(f"The token of {provider.name} was issued for another application.")
    given = claims.get("nonce")
    if not isinstance(given, str) or not nonce or not hmac.compare_digest(given.encode(), nonce.encode()):
        raise BadToken(f"The token of {provider.name} does not belong to this log-in.", "Start again from this page.")
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT or not subject.isprintable():
        raise BadToken(f"{provider.name} sent a claim sub that names no person.")


def _key(keys: object, header: Mapping[str, Any], algorithm: str, provider: OidcProvider) -> Any:
    """Return the public key that the token names. Raises BadToken, PyJWTError."""
    key = public_key(keys, header, algorithm)
    if key is None:
        raise BadToken(f"{provider.name} signed its token with a key that it does not publish.")
    return key


def _refused(error: jwt.PyJWTError, provider: OidcProvider) -> BadToken:
    if isinstance(error, jwt.ExpiredSignatureError):
        return BadToken(f"The token of {provider.name} has expired.", f"Start again from this page. {_CLOCKS}")
    if isinstance(error, jwt.ImmatureSignatureError):
        return BadToken(f"The token of {provider.name} is from the future.", _CLOCKS)
    if isinstance(error, jwt.InvalidAudienceError):
        return BadToken(f"The token of {provider.name} was issued for another application.")
    if isinstance(error, jwt.InvalidIssuerError):
        return BadToken(f"The token was not issued by {provider.issuer}.")
    if isinstance(error, jwt.MissingRequiredClaimError):
        return BadToken(f"The token of {provider.name} has no claim {error.claim}.")
    return BadToken(f"The token of {provider.name} has no valid signature.")


def _accepted() -> str:
    return f"Have the provider sign this client's ID tokens with one of {', '.join(ALGORITHMS)}."
