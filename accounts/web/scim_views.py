"""The SCIM endpoints. For programs: a token of a SCIM client, no session, no page, and errors as SCIM has them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from accounts.access.addresses import client_address
from accounts.scim import clients, directory, discovery, documents, groups, refusals, resources, users
from accounts.scim.clients import Caller
from accounts.scim.directory import LastAdministrator
from accounts.scim.refusals import ScimRefused
from audit.services import record

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/scim+json"
ACCEPTED = (CONTENT_TYPE, "application/json")
Answer = tuple[int, dict[str, Any] | None]
Handler = Callable[[Caller, HttpRequest, str], Answer]


def _endpoint(**handlers: Handler) -> Callable[..., HttpResponse]:
    """Make the view of these methods. The token is judged before anything else is looked at."""

    @csrf_exempt
    def view(request: HttpRequest, pk: str = "") -> HttpResponse:
        try:
            caller = clients.authenticate(request.headers.get("Authorization", ""), address=client_address(request))
            handler = handlers.get(request.method or "")
            if handler is None:
                allowed = ", ".join(sorted(handlers))
                return _refused(ScimRefused(405, f"Allowed here: {allowed}."), Allow=allowed)
            return _handled(handler, caller, request, pk)
        except ScimRefused as refusal:
            challenge = {"WWW-Authenticate": 'Bearer realm="setpoint-scim"'} if refusal.status == 401 else {}
            return _refused(refusal, **challenge)
        except (OperationalError, InterfaceError) as error:
            log.error("the database cannot be used: %s", error)
            unavailable = ScimRefused(503, "The database cannot be reached now. Nothing was changed; try again soon.")
            return _refused(unavailable, **{"Retry-After": "5"})

    return view


def _handled(handler: Handler, caller: Caller, request: HttpRequest, pk: str) -> HttpResponse:
    directory.adopt(caller.provider)
    try:
        status, content = handler(caller, request, pk)
    except LastAdministrator as refusal:
        target, name = f"scim-token:{caller.client.pk}", caller.client.name
        message = f"{request.method} {request.path_info[:200]}: {refusal}"
        record(by=caller.actor, action="scim-token.refuse", target=target, target_name=name, message=message)
        raise
    return _answer(status, content)


def _body(request: HttpRequest) -> dict[str, Any]:
    if request.content_type not in ACCEPTED:
        raise ScimRefused(415, f"Send the body as {CONTENT_TYPE}.")
    try:
        return documents.parse(request.body)
    except RequestDataTooBig:
        raise ScimRefused(413, "The request is larger than 1 MiB.") from None


def _query(request: HttpRequest) -> dict[str, str]:
    return {name: str(value) for name, value in request.GET.items()}


def _made(content: dict[str, Any]) -> Answer:
    return 201, content


def _only(rows: list[dict[str, Any]], pk: str, what: str) -> Answer:
    row = next((row for row in rows if row["id"].lower() == pk.lower()), None)
    if row is None:
        raise refusals.missing(what)
    return 200, row


def _all(rows: list[dict[str, Any]]) -> Answer:
    return 200, resources.listed(rows, total=len(rows), start=1)


def _search(caller: Caller, request: HttpRequest, pk: str) -> Answer:
    raise ScimRefused(501, "Searching by POST is not supported: send the filter with GET.")


def _drop_user(caller: Caller, request: HttpRequest, pk: str) -> Answer:
    users.delete(caller, pk)
    return 204, None


def _drop_group(caller: Caller, request: HttpRequest, pk: str) -> Answer:
    groups.delete(caller, pk)
    return 204, None


search = _endpoint(POST=_search)
all_users = _endpoint(
    GET=lambda caller, request, pk: (200, resources.users(caller, _query(request))),
    POST=lambda caller, request, pk: _made(resources.one_user(users.create(caller, _body(request)), _query(request))),
)
one_user = _endpoint(
    GET=lambda caller, request, pk: (200, resources.one_user(users.get(caller, pk), _query(request))),
    PUT=lambda caller, request, pk: (
        200, resources.one_user(users.replace(caller, pk, _body(request)), _query(request))
    ),
    PATCH=lambda caller, request, pk: (
        200, resources.one_user(users.patch(caller, pk, _body(request)), _query(request))
    ),
    DELETE=_drop_user,
)  # fmt: skip
all_groups = _endpoint(
    GET=lambda caller, request, pk: (200, resources.groups(caller, _query(request))),
    POST=lambda caller, request, pk: _made(
        resources.one_group(groups.create(caller, _body(request)), _query(request))
    ),
)  # fmt: skip
one_group = _endpoint(
    GET=lambda caller, request, pk: (200, resources.one_group(groups.get(caller, pk), _query(request))),
    PUT=lambda caller, request, pk: (
        200, resources.one_group(groups.replace(caller, pk, _body(request)), _query(request))
    ),
    PATCH=lambda caller, request, pk: (
        200, resources.one_group(groups.patch(caller, pk, _body(request)), _query(request))
    ),
    DELETE=_drop_group,
)  # fmt: skip
service_provider_config = _endpoint(GET=lambda caller, request, pk: (200, discovery.service_provider_config()))
resource_types = _endpoint(GET=lambda caller, request, pk: _all(discovery.resource_types()))
one_resource_type = _endpoint(
    GET=lambda caller, request, pk: _only(discovery.resource_types(), pk, "resource type"),
)
schemas = _endpoint(GET=lambda caller, request, pk: _all(discovery.schemas()))
one_schema = _endpoint(GET=lambda caller, request, pk: _only(discovery.schemas(), pk, "schema"))


def _refused(refusal: ScimRefused, **headers: str) -> HttpResponse:
    answer = _answer(refusal.status, refusal.document())
    for name, value in headers.items():
        answer[name] = value
    return answer


def _answer(status: int, content: dict[str, Any] | None) -> HttpResponse:
    if content is None:
        return HttpResponse(status=status)
    answer = HttpResponse(json.dumps(content), status=status, content_type=f"{CONTENT_TYPE}; charset=utf-8")
    if status == 201:
        answer["Location"] = content["meta"]["location"]
    return answer
