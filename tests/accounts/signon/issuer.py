"""An OpenID Connect provider on loopback that signs its own tokens, and lies where a test wants it to."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

CLIENT, SECRET = "setpoint", "a secret of the client's"
KEY, OTHER_KEY = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())


def published(key: Any, kid: str = "1") -> dict[str, Any]:
    return {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig", "alg": "ES256"}


def signed(claims: dict[str, Any], key: Any = KEY, kid: str = "1") -> str:
    return jwt.encode(claims, key, algorithm="ES256", headers={"kid": kid})


class Issuer:
    """`claims` are the person's; `id_token`, `userinfo`, `answers` replace what it would say."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {}
        self.userinfo: Any = None
        self.sign = signed
        self.answers: dict[str, tuple[int, Any]] = {}
        self.requests: list[str] = []
        self.codes: dict[str, dict[str, str]] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(*issuer.get(urlsplit(self.path).path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self.answer(*issuer.token({name: values[0] for name, values in parse_qs(body).items()}))

            def answer(self, status: int, body: Any) -> None:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def get(self, path: str) -> tuple[int, Any]:
        self.requests.append(path)
        if path in self.answers:
            return self.answers[path]
        if path == "/.well-known/openid-configuration":
            return 200, self.discovery()
        if path == "/keys":
            return 200, {"keys": [published(KEY)]}
        if path == "/userinfo" and self.userinfo is not None:
            return 200, self.userinfo
        return 404, {}

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            **({"userinfo_endpoint": f"{self.url}/userinfo"} if self.userinfo is not None else {}),
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }

    def authorize(self, location: str, **over: str) -> str:
        """Do what a browser does there, and return the query of the way back, with a code."""
        wanted = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        assert wanted["response_type"] == "code"
        assert wanted["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(12)
        self.codes[code] = wanted
        return urlencode({"code": code, "state": wanted["state"], **over})

    def token(self, sent: dict[str, str]) -> tuple[int, Any]:
        self.requests.append("/token")
        if "/token" in self.answers:
            return self.answers["/token"]
        wanted = self.codes.pop(sent.get("code", ""), None)
        if (sent.get("client_id"), sent.get("client_secret")) != (CLIENT, SECRET):
            return 401, {"error": "invalid_client"}
        digest = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if not wanted or wanted["redirect_uri"] != sent["redirect_uri"] or wanted["code_challenge"] != challenge:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": wanted["nonce"], **self.claims}
        claims = {name: value for name, value in claims.items() if value is not None}
        return 200, {"access_token": "opaque-access", "token_type": "Bearer", "id_token": self.sign(claims)}
