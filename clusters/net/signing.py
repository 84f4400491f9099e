"""Signatures of webhooks as Standard Webhooks has them: made for what is sent, verified for what arrives.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hashlib
import hmac

KEY_PREFIX = "whsec_"
LEAST_BYTES, MOST_BYTES = 24, 64
"""Of a key after `whsec_`, as Standard Webhooks has it."""
MOST_SIGNATURES = 10
"""In one header: several are sent while a secret is being changed."""


def key(secret: str) -> bytes:
    """Return the signing key: after `whsec_` the bytes that its base64 names, else the text itself."""
    return decoded(secret) or secret.encode()


def decoded(secret: str) -> bytes | None:
    """The bytes of a secret in the form of Standard Webhooks; None of another."""
    if not secret.startswith(KEY_PREFIX):
        return None
    try:
        return base64.b64decode(secret.removeprefix(KEY_PREFIX), validate=True)
    except ValueError:
        return None


def is_key(secret: str) -> bool:
    """Return whether the secret has the form of Standard Webhooks, and its length."""
    return LEAST_BYTES <= len(decoded(secret) or b"") <= MOST_BYTES


def signature(secret: str, name: str, timestamp: int, body: bytes) -> str:
    """Return a Standard Webhooks signature.

    It is `v1,` and the HMAC-SHA256, in base64, of id, timestamp and body, joined by full stops.
    """
    signed = f"{name}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key(secret), signed, hashlib.sha256).digest()).decode()


def is_signed(secret: str, name: str, timestamp: int, body: bytes, given: str) -> bool:
    """Return whether one of the signatures in the header `given`, separated by blanks, is right. In constant time."""
    right = signature(secret, name, timestamp, body).encode()
    results = [hmac.compare_digest(right, text.encode()) for text in given.split(" ")[:MOST_SIGNATURES]]
    return any(results)
