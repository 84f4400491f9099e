"""Form input whose session had ended: carried through the log-in, then shown before it is sent.

Nothing is ever posted by itself. It is carried only where the request is one of our own pages': its CSRF token fits the
browser's cookie, or the browser itself names this origin. It travels sealed to that cookie, so that what another page
or another browser made is not taken for it. Passwords, credentials and files are not carried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import signing
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest
from django.middleware.csrf import get_token
from django.urls import resolve

from accounts.access.session_store import stored
from accounts.models import LiveSession, User

MOST_CHARACTERS = 256 * 1024
"""Of all names and values together. A profile has at most 64 KiB, and its form less than three times that."""
KEPT_FOR = timedelta(hours=1)
SALT = "accounts.access.typed"
SECRET = re.compile(
    r"passw|secret|^old$|^new$|token|credential|kubeconfig|^code$|^again$|^ca$|^url$|private|api_?key", re.IGNORECASE
)
"""Fields that are typed again. Addresses of webhooks hold their secret."""
SECRET_ROOMS = ("accounts",)
SECRET_PAGES = ("clusters:connect", "clusters:rotate")
"""Pages of which nothing is carried: log-in, passwords, people, credentials."""
DROPPED = ("csrfmiddlewaretoken",)


@dataclass(frozen=True, slots=True)
class Typed:
    path: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    person: int | None = None
    """Whose session it was, where that is known still."""
    left_out: list[str] = field(default_factory=list)
    """Names of fields that are typed again."""
    back: str = ""
    """The page that it was typed on."""
    too_long: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.fields

    @property
    def shown(self) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self.fields if value.strip()]


def read(request: HttpRequest) -> Typed:
    """Read the form input of a POST to one of our pages."""
    person = request.user.pk if isinstance(request.user, User) else _person(request)
    path, back = request.get_full_path(), _page_before(request)
    if not _is_carried(request.path_info):
        return Typed(path, person=person, back=back)
    try:
        sent = [(name, str(value)) for name, values in request.POST.lists() if name not in DROPPED for value in values]
        files = list(request.FILES)
    except (RequestDataTooBig, SuspiciousOperation):
        return Typed(path, person=person, back=back, too_long=True)
    fields = [(name, value) for name, value in sent if not SECRET.search(name)]
    if sum(len(name) + len(value) for name, value in fields) > MOST_CHARACTERS:
        return Typed(path, person=person, back=back, too_long=True)
    secret = sorted({name for name, value in sent if SECRET.search(name) and value})
    return Typed(path, fields, person, [*secret, *files], back)


def _is_carried(path: str) -> bool:
    try:
        match = resolve(path)
    except Http404:
        return False
    return match.app_name not in SECRET_ROOMS and match.view_name not in SECRET_PAGES


def _page_before(request: HttpRequest) -> str:
    """Return the page of ours that the browser names as referrer, to go back to: the posted address may take no GET."""
    before = urlsplit(request.headers.get("Referer", ""))
    if before.netloc != request.get_host() or not before.path.startswith("/"):
        return ""
    return before.path + (f"?{before.query}" if before.query else "")


def _person(request: HttpRequest) -> int | None:
    """Return the user id of this browser's ended session, whose row is deleted later; None if it is not known."""
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
    user_id = LiveSession.objects.filter(key=stored(key)).values_list("user_id", flat=True).first() if key else None
    return int(user_id) if user_id else None


def is_of_this_origin(request: HttpRequest) -> bool:
    """Return whether the browser names our origin. No page can make a browser send another page's origin."""
    origin = request.headers.get("Origin", "")
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    return bool(urlsplit(origin).netloc) and origin == f"{request.scheme}://{request.get_host()}"


def seal(request: HttpRequest, typed: Typed) -> str:
    """Return the input, signed, for a hidden field of the log-in page."""
    content = [typed.path, typed.fields, typed.person, typed.left_out, typed.back]
    return signing.dumps(content, salt=_salt(request), compress=True)


def opened(request: HttpRequest, text: str) -> Typed | None:
    """Call it before the log-in, which renews the cookie. None of what this browser was not given, or is too old."""
    if not text:
        return None
    try:
        path, fields, person, left_out, back = signing.loads(text, salt=_salt(request), max_age=KEPT_FOR)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return Typed(path, [(name, value) for name, value in fields], person, left_out, back)


def _salt(request: HttpRequest) -> str:
    get_token(request)  # makes the cookie where there is none
    return f"{SALT}:{request.META['CSRF_COOKIE']}"


def shown_to(user: User, typed: Typed) -> Mapping[str, Any]:
    """Return the context of the page that asks whether to send it."""
    is_anothers = typed.person is not None and typed.person != user.pk
    return {
        "typed": Typed(typed.path, person=typed.person, back=typed.back) if is_anothers else typed,
        "is_anothers": is_anothers,
        "is_unknown": typed.person is None,
    }
