"""Authentication of API requests: a Bearer token, or the browser's session with its CSRF token."""

from __future__ import annotations

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from accounts.access import tokens
from accounts.access.addresses import client_address
from accounts.models import ApiToken, User

_REFUSED = "This token is unknown, expired or revoked."
"""One message for all three causes: a caller without a valid token must not learn which of them it is."""


class BearerToken(BaseAuthentication):
    """`Authorization: Bearer sp_<id>.<secret>`. `request.auth` is the token, `request.user` its owner."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        header = request.headers.get("Authorization", "")
        scheme, _, text = header.partition(" ")
        if not header:
            return None
        if scheme.lower() != "bearer":
            raise AuthenticationFailed("Only Authorization: Bearer sp_<id>.<secret> is accepted.")
        token = tokens.authenticate(text.strip(), address=client_address(request._request))
        if token is None:
            raise AuthenticationFailed(_REFUSED)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="setpoint"'
