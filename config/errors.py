"""The one place where exceptions become answers: problem documents (RFC 9457) under /api/, pages elsewhere.

A user's mistake gets an answer that names the field; a fault of ours gets the request id and nothing of the inside.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from django.core import exceptions as django
from django.db import DataError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.http.multipartparser import MultiPartParserError
from django.shortcuts import render
from rest_framework import exceptions as drf
from rest_framework.response import Response
from rest_framework.views import set_rollback

from accounts.access import typed
from accounts.models import User
from accounts.scim import refusals as scim
from accounts.web.scim_views import CONTENT_TYPE as SCIM_TYPE
from accounts.web.views import ask_to_send, say_ended, session_ended
from clusters.fleet import FleetError, FleetRefused
from common.errors import LostRace, Refusal
from common.requests import request_id

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
TYPE = "urn:setpoint:problem:"


@dataclass(frozen=True, slots=True)
class Problem:
    status: int
    code: str
    detail: str
    fields: Mapping[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase

    def document(self, instance: str) -> dict[str, Any]:
        errors = [{"field": name, "message": message} for name, messages in self.fields.items() for message in messages]
        return {
            "type": TYPE + self.code,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "request_id": request_id(),
            "code": self.code,
            "errors": errors,
        }


# ── Exception → problem ───────────────────────────────────────────────────────────────────────────────────────────────
def judge(error: Exception, method: str = "GET") -> Problem | None:
    """Return the problem that the caller gets; None when the fault is ours and the answer is a 500."""
    if isinstance(error, Refusal):
        retry = getattr(error, "retry_after", None)
        headers = {"Retry-After": str(retry)} if retry else {}
        return Problem(error.status, error.code, str(error), error.fields, headers)
    if isinstance(error, drf.APIException):
        return _of_framework(error, method)
    if isinstance(error, FleetError):
        # What a service did not translate. The API server refused us, or could not be queried: not the caller's fault.
        code = "cluster-refused" if isinstance(error, FleetRefused) else "cluster-unreachable"
        return Problem(502, code, f"The cluster's API server: {error}")
    for kind, make in _PLAIN:
        if isinstance(error, kind):
            made: Problem = make(error)
            return made
    return None


def _of_framework(error: drf.APIException, method: str) -> Problem:
    headers: dict[str, str] = {}
    if auth_header := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = auth_header
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(int(wait))
    if isinstance(error, drf.ValidationError):
        fields = dict(_flat(error.detail))
        is_body = method in ("POST", "PUT", "PATCH", "DELETE")
        what = "body" if is_body else "query"
        detail = "; ".join(fields.get("", [])) or f"The {what} is not valid: {', '.join(fields)}."
        return Problem(422 if is_body else 400, "invalid", detail, fields, headers)
    code = {
        401: "not-authenticated",
        403: "not-allowed",
        404: "missing",
        405: "method-not-allowed",
        406: "not-acceptable",
        415: "unsupported-media-type",
        429: "too-many-requests",
    }.get(error.status_code, "malformed" if error.status_code == 400 else "refused")
    return Problem(error.status_code, code, str(error.detail), headers=headers)


def _of_validation(error: Exception) -> Problem:
    assert isinstance(error, django.ValidationError)
    fields = {
        ("" if name == django.NON_FIELD_ERRORS else name): list(messages)
        for name, messages in (error.message_dict if hasattr(error, "error_dict") else {"": error.messages}).items()
    }
    return Problem(422, "invalid", "; ".join(fields.get("", [])) or "The input is not valid.", fields)


def _of_bad_data(error: Exception) -> Problem:
    log.warning("the database refused a value: %s", error)
    return Problem(422, "invalid", "A value is too long or out of range for its field.")


def _of_lost_database(error: Exception) -> Problem:
    log.error("the database cannot be used: %s", error)
    detail = "The database cannot be reached now. Nothing was changed; try again soon."
    return Problem(503, "database-unavailable", detail, headers={"Retry-After": "5"})


_PLAIN: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Any], ...] = (
    (Http404, lambda e: Problem(404, "missing", "Not found, or outside your permissions.")),
    (django.PermissionDenied, lambda e: Problem(403, "not-allowed", str(e) or "You may not do this.")),
    (django.RequestDataTooBig, lambda e: Problem(413, "too-large", "The request is larger than 1 MiB.")),
    (django.SuspiciousOperation, lambda e: Problem(400, "malformed", "The request is malformed.")),
    (MultiPartParserError, lambda e: Problem(400, "malformed", "The uploaded form is malformed.")),
    (django.ValidationError, _of_validation),
    (
        LostRace,
        lambda e: Problem(
            409, "changed-meanwhile", "This was changed at the same time by another request. Reload and try again."
        ),
    ),
    (DataError, _of_bad_data),
    ((OperationalError, InterfaceError), _of_lost_database),
)


def _flat(detail: Any, path: str = "") -> Iterable[tuple[str, list[str]]]:
    """DRF's nested details as (field path, messages): `settings[3].value`."""
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            step = "" if name == "non_field_errors" else str(name)
            joined = f"{path}[{name}]" if isinstance(name, int) else f"{path}.{step}" if path and step else path or step
            yield from _flat(inner, joined)
    elif isinstance(detail, list) and all(isinstance(item, str) for item in detail):
        if detail:
            yield path, [str(item) for item in detail]
    elif isinstance(detail, list):
        for index, item in enumerate(detail):
            yield from _flat(item, f"{path}[{index}]")
    else:
        yield path, [str(detail)]


# ── Problem → answer ──────────────────────────────────────────────────────────────────────────────────────────────────
PROGRAMS = ("/api/", "/hooks/")
"""Addresses that programs alone use: they are answered with problems, and no form is read there."""


def is_api(request: HttpRequest) -> bool:
    return request.path_info.startswith(PROGRAMS)


def api_exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """DRF's EXCEPTION_HANDLER. None lets Django answer with `server_error`, and log."""
    request = context["request"]
    problem = judge(error, request.method or "GET")
    if problem is None:
        return None
    set_rollback()
    return Response(
        problem.document(request.path), status=problem.status, headers=problem.headers, content_type=CONTENT_TYPE
    )


def answer(request: HttpRequest, problem: Problem) -> HttpResponse:
    """A problem document under /api/, else the error page; the page's frame is left out when we ourselves failed."""
    if is_api(request):
        text = json.dumps(problem.document(request.path))
        return HttpResponse(text, status=problem.status, content_type=CONTENT_TYPE, headers=problem.headers)
    if request.path_info.startswith("/scim/"):
        text = json.dumps(scim.document(problem.status, problem.detail))
        return HttpResponse(text, status=problem.status, content_type=SCIM_TYPE, headers=problem.headers)
    context = {
        "status": problem.status,
        "title": problem.title,
        "code": problem.code,
        "message": problem.detail,
        "detail": problem.detail,
        "fields": problem.fields,
        "request_id": request_id(),
    }
    try:
        response = render(request, "error.html", context, status=problem.status)
    except Exception:
        log.exception("the error page itself failed")
        text = f"{problem.status} {problem.title}\n\n{problem.detail}\nRequest {request_id()}\n"
        response = HttpResponse(text, status=problem.status, content_type="text/plain; charset=utf-8")
    for name, value in problem.headers.items():
        response[name] = value
    return response


class ErrorAnswers:
    """Middleware: a refusal raised by a page becomes the error page, with the right status."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = self.get_response(request)
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        problem = judge(error, request.method or "GET")
        return None if problem is None else answer(request, problem)


# ── Django's handlers ─────────────────────────────────────────────────────────────────────────────────────────────────
def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(request, judge(exception) or Problem(400, "malformed", "The request is malformed."))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(request, judge(exception) or Problem(403, "not-allowed", "You may not do this."))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(request, Problem(404, "missing", "Not found, or outside your permissions."))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Refused. Where the browser says that one of our own pages sent it, as one opened before the last log-in, what was
    typed there is shown once more."""
    if request.method == "POST" and not is_api(request) and typed.is_of_this_origin(request):
        if not isinstance(request.user, User):
            return session_ended(request)
        typed_input = typed.read(request)
        if request.headers.get("HX-Request"):
            return say_ended(HttpResponse(status=403))
        if not typed_input.is_empty:
            return ask_to_send(request, typed_input, status=403)
    detail = "This form is too old, or it came from elsewhere. Reload the page and send it again."
    return answer(request, Problem(403, "csrf", detail))


def server_error(request: HttpRequest) -> HttpResponse:
    return answer(request, Problem(500, "fault", "Internal error. The log has the details under this request ID."))
