"""Service-account tokens that expire, asked of the API server (TokenRequest), and what a token says of itself."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from clusters.fleet import Untrusted
from clusters.kube.apiserver import ApiServer, Call
from clusters.net import certificates
from clusters.net.credentials import Credentials
from contract import names

SHORTEST = 600
"""Seconds: API servers give no token for less."""
_ACCOUNTS = f"/api/v1/namespaces/{names.NAMESPACE}/serviceaccounts"


def request(server: ApiServer, account: str, seconds: float) -> str:
    """A token of one of Setpoint's accounts; the server may give it for less or more time. Raises FleetError."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": max(SHORTEST, int(seconds))},
    }
    call = Call("create", "serviceaccounts/token", account)
    answer = server.ask(call, "POST", f"{_ACCOUNTS}/{account}/token", body=body).object("TokenRequest")
    token = (answer.get("status") or {}).get("token")
    if not isinstance(token, str) or not token:
        raise Untrusted(f"{call}: the API server answered without a token")
    return token


def with_token(credentials: Credentials, token: str) -> Credentials:
    """The same server, reached with this token and nothing else."""
    return replace(credentials, token=token, client_certificate="", client_key="")


def account_of(token: str) -> str:
    """The user name in a JWT, unverified: only to know which account to ask for. Empty where it says none."""
    return str(claims(token).get("sub") or "")


def lifetime(token: str) -> tuple[datetime, datetime] | None:
    """Return from when to when a token is valid, by its own claims; None for a token that does not expire."""
    token_claims = claims(token)
    try:
        return certificates.utc(float(token_claims["iat"])), certificates.utc(float(token_claims["exp"]))
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None


def claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        decoded = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
