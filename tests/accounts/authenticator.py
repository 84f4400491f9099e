"""An authenticator app for tests, written from RFC 4226 and RFC 6238 alone, with the standard library."""

from __future__ import annotations

import base64
import hmac
import re
import struct
from typing import Any

from django.test import Client

from accounts.models import User
from common.clock import now
from tests.factories import PASSWORD

PAGE = "/account/second-factor/"


def code(key: str, *, steps: int = 0) -> str:
    """Return the code that the app shows now, or shows that many steps of 30 seconds later."""
    counter = int(now().timestamp()) // 30 + steps
    digest = hmac.digest(base64.b32decode(key), struct.pack(">Q", counter), "sha1")
    offset = digest[-1] & 0xF
    return f"{(struct.unpack('>I', digest[offset : offset + 4])[0] & 0x7FFFFFFF) % 1_000_000:06}"


def wrong(key: str) -> str:
    """Return six digits that are no code of these minutes."""
    near = {code(key, steps=step) for step in range(-5, 6)}
    return next(text for text in ("000000", "111111", "222222", "333333", *map(str, range(400000, 400020)))
                if text not in near)  # fmt: skip


def begin(client: Client, password: str = PASSWORD) -> str:
    """Begin on the page, and return the key that it shows."""
    page = client.post(f"{PAGE}begin/", {"password": password})
    assert page.status_code == 200, page.content
    shown = re.search(r'id="factor-key">([A-Z2-7 ]+)<', page.content.decode())
    assert shown
    return shown[1].replace(" ", "")


def enroll(user: User) -> tuple[str, list[str]]:
    """Set up a second factor on the page, and return its key and its recovery codes."""
    client = Client()
    client.force_login(user)
    key = begin(client)
    page = client.post(f"{PAGE}confirm/", {"code": code(key)})
    assert page.status_code == 200, page.content
    return key, recovery_codes(page)


def recovery_codes(page: Any) -> list[str]:
    codes = re.search(r'id="recovery-codes">([^<]+)<', page.content.decode())
    assert codes
    return codes[1].split()


def password_step(user: User, client: Client | None = None, password: str = PASSWORD, **extra: Any) -> Client:
    """Enter a right password; the browser then waits for the code."""
    client = client or Client()
    page = client.post("/login/", {"email": user.email, "password": password}, **extra)
    assert page.status_code == 200, page.content
    return client


def code_step(client: Client, text: str, **extra: Any) -> int:
    return int(client.post("/login/code/", {"code": text}, **extra).status_code)


def is_in(client: Client) -> bool:
    return client.get("/account/").status_code == 200
