"""Codes of authenticator apps: TOTP (RFC 6238) with what every app assumes, six digits of HMAC-SHA-1 each 30 seconds.

The codes themselves are made by `cryptography`.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from datetime import datetime

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.hotp import HOTP
from cryptography.hazmat.primitives.twofactor.totp import TOTP

DIGITS = 6
STEP_SECONDS = 30
KEY_BYTES = 20
"""As RFC 4226 recommends: 160 bits."""
TOLERANCE = 1
"""Steps before and after the present one that are accepted, for clocks that differ and people who type."""
_ALGORITHM = SHA1()  # noqa: S303 as HMAC it is sound, and many apps ignore any other


def new_key() -> str:
    """Return a key in base32, as apps take it."""
    return base64.b32encode(secrets.token_bytes(KEY_BYTES)).decode()


def step_of(key: str, code: str, at: datetime) -> int | None:
    """Return the newest time step around `at` that this code belongs to; None for a wrong code."""
    codes, present = HOTP(base64.b32decode(key), DIGITS, _ALGORITHM), int(at.timestamp()) // STEP_SECONDS
    fitting = None
    for step in range(present - TOLERANCE, present + TOLERANCE + 1):  # all of them: the time shows none
        if hmac.compare_digest(codes.generate(step), code.encode()):
            fitting = step
    return fitting


def link(key: str, account: str, issuer: str) -> str:
    """Return the otpauth:// address that apps open."""
    app = TOTP(base64.b32decode(key), DIGITS, _ALGORITHM, STEP_SECONDS)
    return app.get_provisioning_uri(account, issuer)
