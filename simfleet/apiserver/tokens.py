"""TokenRequest: a simulated service account asks for the next token of its own, or the issuer for helm's."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from contract import names
from simfleet.apiserver.callers import Caller
from simfleet.apiserver.store import ApiError

if TYPE_CHECKING:
    from simfleet.http import Door

SHORTEST = 600
MAY_ASK = {
    names.CONTROLLER_USERNAME: (names.CONTROLLER_SERVICE_ACCOUNT,),
    names.HELM_ISSUER_USERNAME: (names.HELM_SERVICE_ACCOUNT, names.HELM_ISSUER_SERVICE_ACCOUNT),
}
"""As deploy/ grants it. Every other account has all rights."""
ACCOUNTS = (
    names.CONTROLLER_SERVICE_ACCOUNT,
    names.HELM_SERVICE_ACCOUNT,
    names.HELM_ISSUER_SERVICE_ACCOUNT,
    names.HELM_ADMIN_SERVICE_ACCOUNT,
)


def issued(door: Door, caller: Caller, namespace: str, account: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The answer, with a token that the door lets in until it ends. Raises ApiError 403, 404, 422."""
    ours = f"system:serviceaccount:{names.NAMESPACE}:"
    if caller.user.startswith(ours) and account not in MAY_ASK.get(caller.user, ()):
        raise ApiError(403, "Forbidden", f'serviceaccounts "{account}" is forbidden: cannot create its token')
    if namespace != names.NAMESPACE or account not in ACCOUNTS:
        raise ApiError(404, "NotFound", f'serviceaccounts "{account}" not found')
    seconds = int((body.get("spec") or {}).get("expirationSeconds") or 3600)
    if seconds < SHORTEST:
        raise ApiError(422, "Invalid", "spec.expirationSeconds: Invalid value: may not specify less than 10 minutes")
    since = int(time.time())
    claims = {"sub": f"{ours}{account}", "iat": since, "exp": since + seconds, "jti": secrets.token_hex(8)}
    token = ".".join((_part({"alg": "none"}), _part(claims), secrets.token_urlsafe(16)))
    door.admit(token, Caller(f"{ours}{account}", names.FIELD_MANAGER), until=since + seconds)
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since + seconds))
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "status": {"token": token, "expirationTimestamp": ends},
    }


def _part(claims: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
