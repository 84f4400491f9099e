"""Signed tokens (JWS, RFC 7515): the algorithms that are accepted, and the key of an issuer that verifies one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""With public keys only: `none`, and HMAC over a secret that the issuer shares with us, prove nothing more."""
LEEWAY_SECONDS = 60
"""Between the issuer's clock and ours."""
LONGEST_SUBJECT = 255
LEAST_RSA_BITS = 2048


def public_key(keys: object, header: Mapping[str, Any], algorithm: str) -> Any:
    """Return the key of this JWKS that the header names; without a name, the only one there is. None: there is none.

    Raises PyJWTError for a key that does not fit the algorithm.
    """
    rows = keys.get("keys") if isinstance(keys, dict) else None
    usable = [row for row in rows if isinstance(row, dict) and row.get("use", "sig") == "sig"] if rows else []
    named = [row for row in usable if row.get("kid") == header["kid"]] if "kid" in header else usable
    fitting = [row for row in named if row.get("alg", algorithm) == algorithm and row.get("kty") != "oct"]
    if len(fitting) != 1:
        return None
    key = jwt.PyJWK(fitting[0], algorithm=algorithm).key
    if isinstance(key, RSAPublicKey) and key.key_size < LEAST_RSA_BITS:
        raise jwt.InvalidKeyError(f"an RSA key of {key.key_size} bits")
    return key
