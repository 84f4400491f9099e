"""Requests as views and services see them: a person is logged in, and every line of work carries a request id."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from django.http import HttpRequest
from rest_framework.request import Request

if TYPE_CHECKING:  # for the type checker only: this room imports no app
    from django_htmx.middleware import HtmxDetails

    from accounts.models import User

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{8,64}")
"""What is accepted from outside: it ends up in logs, audit records and answers."""

_request_id: ContextVar[str] = ContextVar("request_id", default="")


class UserRequest(HttpRequest):
    """A page's request behind `login_required`."""

    user: User
    htmx: HtmxDetails


class UserApiRequest(Request):
    """An API request that passed authentication."""

    user: User


def posted_version(request: HttpRequest) -> int:
    """Return the version of the row that a form was made of; 0, which no row has, for all that is none."""
    text = request.POST.get("version", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def request_id() -> str:
    """Return the id of the request or task being worked on; empty outside of both."""
    return _request_id.get()


def new_request_id() -> str:
    return secrets.token_hex(16)


@contextmanager
def working_on(identifier: str) -> Iterator[str]:
    """Everything inside, audit records included, belongs to this request id."""
    mark = _request_id.set(identifier)
    try:
        yield identifier
    finally:
        _request_id.reset(mark)
