"""Middleware of every request: its id, its limits, the headers of its answer, and one line in the log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import structlog
from django.conf import settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import resolve_url

from accounts.access import account_ranges, requirement, role_gate, sessions
from accounts.models import User
from accounts.permissions import teams_of
from accounts.web.views import session_ended
from common.requests import REQUEST_ID, new_request_id, working_on
from components.catalog import catalog
from components.charts.archives import MAX_PACKED
from config.errors import Problem, answer, is_api

GetResponse = Callable[[HttpRequest], HttpResponseBase]
log = structlog.get_logger("setpoint.request")

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_QUIET = ("/healthz", "/readyz", "/metrics", "/static/")
MAX_BODY = 1024 * 1024
UPLOADS = ("/components/archives/", "/api/v1/chart-archives")
"""Where charts are sent to, which are larger than anything else that is."""
MAX_UPLOAD = MAX_PACKED + 64 * 1024
"""The largest archive, and the form around it."""
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def request_context(get_response: GetResponse) -> GetResponse:
    """X-Request-ID: taken if it is sane, else made; in logs, audit records, tasks, and the answer."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        received = request.headers.get("X-Request-ID", "")
        identifier = received if REQUEST_ID.fullmatch(received) else new_request_id()
        started = time.monotonic()
        with working_on(identifier), structlog.contextvars.bound_contextvars(request_id=identifier):
            response = get_response(request)
            response["X-Request-ID"] = identifier
            if not request.path_info.startswith(_QUIET):
                log.info(
                    "request",
                    method=request.method,
                    path=request.path_info[:200],
                    status=response.status_code,
                    ms=round((time.monotonic() - started) * 1000, 1),
                    user=str(getattr(request, "user", "") or ""),
                )
        return response

    return middleware


def held_catalog(get_response: GetResponse) -> GetResponse:
    """One state of the catalog of components a request, read when it is first asked for."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        with catalog.held():
            return get_response(request)

    return middleware


def security_headers(get_response: GetResponse) -> GetResponse:
    """Set unless a view chose its own; nothing inline runs on any page but the API's documentation."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        if not request.path_info.startswith("/static/"):
            response.headers.setdefault("Cache-Control", "no-store, private")
        return response

    return middleware


def limits(get_response: GetResponse) -> GetResponse:
    """Refuses bodies above 1 MiB, or a chart's limit, before reading them, and NUL anywhere: no column holds it."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        length = request.META.get("CONTENT_LENGTH") or "0"
        if not length.isdigit():
            return answer(request, Problem(400, "malformed", "Content-Length is not a number."))
        most = MAX_UPLOAD if (is_upload := request.path_info in UPLOADS) else MAX_BODY
        if int(length) > most:
            detail = f"The request has {int(length):,} bytes; at most {most:,} are read."
            fields = {"archive": [f"At most {MAX_PACKED:,} bytes."]} if is_upload else {}
            return answer(request, Problem(413, "too-large", detail, fields))
        if "%00" in request.META.get("QUERY_STRING", "") or "\x00" in request.path_info:
            return answer(request, Problem(400, "malformed", "The address contains the character NUL."))
        # Only pages read forms; reading one here would hide from the API that it is not JSON.
        if request.content_type in FORMS and not is_api(request):
            for name, values in request.POST.lists():
                if "\x00" in name or any("\x00" in str(value) for value in values):
                    field = name.replace("\x00", "\ufffd")
                    problem = Problem(400, "malformed", "A field contains the character NUL.", {field: ["Remove it."]})
                    return answer(request, problem)
        return get_response(request)

    return middleware


def ended_sessions(get_response: GetResponse) -> GetResponse:
    """A POST that login_required sends to the log-in page would lose what it brought: it is answered with that page
    and what was typed. By then its CSRF token was found right, so it is one of ours."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if request.method != "POST" or is_api(request) or request.user.is_authenticated:
            return response
        to = urlsplit(response.headers.get("Location", ""))
        is_refused = to.path == resolve_url(settings.LOGIN_URL) and REDIRECT_FIELD_NAME in parse_qs(to.query)
        return session_ended(request) if is_refused else response

    return middleware


def second_factor(get_response: GetResponse) -> GetResponse:
    """Lead a browser whose person must set up a second factor to its page, from every other one."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        is_quiet = request.path_info.startswith(_QUIET)
        if not settings.SETPOINT_SECOND_FACTOR or is_quiet or not requirement.is_missing(request):
            return get_response(request)
        page = resolve_url("accounts:second_factor")
        confirm = resolve_url("accounts:confirm")  # registering a passkey takes a recent log-in
        if request.path.startswith((page, confirm)) or request.path == resolve_url("accounts:logout"):
            return get_response(request)
        if is_api(request):
            detail = f"Your role needs a second factor. Set it up in the browser first: {page}"
            return answer(request, Problem(403, "second-factor-needed", detail))
        if request.headers.get("HX-Request"):
            return HttpResponse(status=403, headers={"HX-Redirect": page})
        return HttpResponseRedirect(page)

    return middleware


class RoleGate:
    """Refuse pages to an account without a role, and lead it from the first page to what it may open.

    REST authenticates later: there accounts.access.role_gate.HasRole is the same gate."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_view: Any) -> HttpResponse | None:
        match = request.resolver_match
        if match is None or is_api(request) or role_gate.opens(request, match.route.removeprefix("^")):
            return None
        assert isinstance(request.user, User)
        if match.route == "" and request.method in ("GET", "HEAD"):
            page = "gpus:own_teams" if teams_of(request.user) else "accounts:account"
            return HttpResponseRedirect(resolve_url(page))
        return answer(request, Problem(403, "not-allowed", role_gate.refusal(request.user)))


def address_ranges(get_response: GetResponse) -> GetResponse:
    """End a session that is used from an address that its account is not accepted from: the request is no one's."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(_QUIET):
            account_ranges.end_if_outside(request)
        return get_response(request)

    return middleware


def session_use(get_response: GetResponse) -> GetResponse:
    """Note, once a minute, that a session is in use. Probes have no session, and must work without a database."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(_QUIET):
            sessions.note_seen(request)
        return get_response(request)

    return middleware
