"""A security key and its browser, for tests: written from WebAuthn and CTAP 2, with `cryptography` and a CBOR encoder.

Everything that it signs and says can be falsified: each test forges one thing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import struct
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from django.test import Client
from fido2 import cbor

from accounts.models import User
from tests.factories import PASSWORD

SITE = "https://setpoint.example.com"
UP, UV, BE, BS, AT = 0x01, 0x04, 0x08, 0x10, 0x40
PAGE = "/account/second-factor/passkeys/"
ES256, EDDSA, RS256 = -7, -8, -257


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class SecurityKey:
    """One credential. `origin` and `rp_id`: the page that the browser believes to be on."""

    origin: str = SITE
    rp_id: str = "setpoint.example.com"
    flags: int = UP | UV
    algorithm: int = ES256
    counter: int = 0
    credential: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    user_handle: bytes = b""
    client: dict[str, Any] = field(default_factory=dict)
    """Put over what the browser collects: type, challenge, origin, crossOrigin."""

    def __post_init__(self) -> None:
        if self.algorithm == ES256:
            self.secret: Any = ec.generate_private_key(ec.SECP256R1())
        elif self.algorithm == EDDSA:
            self.secret = ed25519.Ed25519PrivateKey.generate()
        else:
            self.secret = rsa.generate_private_key(65537, 2048)

    def cose(self) -> dict[int, Any]:
        public = self.secret.public_key()
        if self.algorithm == ES256:
            numbers = public.public_numbers()
            return {1: 2, 3: ES256, -1: 1, -2: numbers.x.to_bytes(32), -3: numbers.y.to_bytes(32)}
        if self.algorithm == EDDSA:
            return {1: 1, 3: EDDSA, -1: 6, -2: public.public_bytes_raw()}
        numbers = public.public_numbers()
        return {1: 3, 3: RS256, -1: numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8), -2: numbers.e.to_bytes(3)}

    def client_data(self, kind: str, options: dict[str, Any]) -> bytes:
        collected = {"type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": False}
        return json.dumps(
            {name: value for name, value in (collected | self.client).items() if value is not None}
        ).encode()

    def auth_data(self, flags: int, rest: bytes = b"") -> bytes:
        return hashlib.sha256(self.rp_id.encode()).digest() + struct.pack(">BI", flags, self.counter) + rest

    def made(self, options: dict[str, Any], **over: Any) -> dict[str, Any]:
        """Answer `navigator.credentials.create`. `over`: cose, flags, auth_data, raw_id."""
        self.user_handle = decoded(options["user"]["id"])
        key = cbor.encode(over.get("cose", self.cose()))
        attested = bytes(16) + struct.pack(">H", len(self.credential)) + self.credential + key
        data = over.get("auth_data") or self.auth_data(over.get("flags", self.flags | AT), attested)
        statement = cbor.encode({"fmt": "none", "attStmt": {}, "authData": data})
        response = {"clientDataJSON": encoded(self.client_data("webauthn.create", options)),
                    "attestationObject": encoded(statement)}  # fmt: skip
        return self._credential(over.get("raw_id", self.credential), response)

    def proved(self, options: dict[str, Any], **over: Any) -> dict[str, Any]:
        """Answer `navigator.credentials.get`. `over`: signature, user_handle, raw_id."""
        client_data, data = self.client_data("webauthn.get", options), self.auth_data(self.flags)
        signature = over.get("signature") or self.sign(data + hashlib.sha256(client_data).digest())
        response = {"clientDataJSON": encoded(client_data), "authenticatorData": encoded(data),
                    "signature": encoded(signature)}  # fmt: skip
        if handle := over.get("user_handle", self.user_handle):
            response["userHandle"] = encoded(handle)
        return self._credential(over.get("raw_id", self.credential), response)

    def sign(self, message: bytes) -> bytes:
        if self.algorithm == ES256:
            return bytes(self.secret.sign(message, ec.ECDSA(hashes.SHA256())))
        if self.algorithm == EDDSA:
            return bytes(self.secret.sign(message))
        return bytes(self.secret.sign(message, padding.PKCS1v15(), hashes.SHA256()))

    @staticmethod
    def _credential(raw_id: bytes, response: dict[str, str]) -> dict[str, Any]:
        return {"id": encoded(raw_id), "rawId": encoded(raw_id), "type": "public-key", "response": response}


def options(client: Client, path: str, **extra: Any) -> dict[str, Any]:
    """Ask as the page's script does."""
    answer = client.post(f"{path}options/", {"password": PASSWORD} if path == PAGE else {}, **extra)
    assert answer.status_code == 200, answer.content
    content: dict[str, Any] = answer.json()["publicKey"]
    return content


def send(client: Client, path: str, credential: Any, **fields: Any) -> Any:
    text = credential if isinstance(credential, str) else json.dumps(credential)
    proof = {"password": PASSWORD} if path == PAGE else {}
    return client.post(path, {"response": text} | proof | fields)


def enroll(client: Client, key: SecurityKey | None = None, name: str = "blue key") -> SecurityKey:
    """Register a passkey in a browser whose log-in is recent."""
    key = key or SecurityKey()
    answer = send(client, PAGE, key.made(options(client, PAGE)), name=name)
    assert answer.status_code == 302, answer.content
    return key


def logged_in(user: User) -> Client:
    client = Client()
    assert client.post("/login/", {"email": user.email, "password": PASSWORD}).status_code == 302
    return client
