"""The OpenAPI document: what drf-spectacular cannot see by itself, and the page that shows it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.cache import get_conditional_response
from django.views.decorators.http import require_GET
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import extend_schema

from common.api import ApiView, SelectedFields
from common.requests import UserApiRequest

DOCS_CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
"""Swagger UI writes style attributes; scripts stay as strict as everywhere."""

PROBLEM = {
    "type": "object",
    "description": "RFC 9457. One shape for everything that goes wrong.",
    "required": ["type", "title", "status", "detail", "instance", "request_id", "code", "errors"],
    "properties": {
        "type": {"type": "string", "description": "urn:setpoint:problem:<code>"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What, why, and what would be right."},
        "instance": {"type": "string"},
        "request_id": {"type": "string"},
        "code": {"type": "string", "description": "A stable word for programs."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {
                    "field": {"type": "string", "description": "Path, such as settings[3].value; empty for the whole."},
                    "message": {"type": "string"},
                },
            },
        },
    },
}
PROBLEMS = {
    400: ("Malformed", "The address, a filter, a header or the JSON itself is malformed."),
    401: ("NotAuthenticated", "No token, or one that is unknown, expired or revoked."),
    403: ("NotAllowed", "The role or the token's scope is missing; `detail` names it."),
    404: ("Missing", "Not found, or outside your permissions."),
    406: ("NotAcceptable", "Another form of answer was asked for than there is."),
    409: ("Conflict", "Not possible in the present state; `detail` says in which it would be."),
    412: ("Stale", "The object is at another version than If-Match names."),
    413: ("TooLarge", "The body is larger than 1 MiB, or a chart than 10 MiB."),
    415: ("UnsupportedMediaType", "The body is not application/json, or for a chart multipart/form-data."),
    422: ("Invalid", "The body, or a filter, is not valid; `errors` names each field."),
    428: ("PreconditionRequired", "If-Match is missing."),
    502: ("ClusterUnreachable", "The cluster's API server could not be asked, or refused."),
    503: ("Unavailable", "The database cannot be reached; nothing was changed."),
}
"""Status → name and meaning of the problem documents that operations answer with."""

_METHODS = frozenset({"get", "post", "put", "patch", "delete"})
_BASED_ON_A_VERSION = frozenset(
    {
        "approval_rules_partial_update", "approval_rules_destroy", "calendar_rules_partial_update",
        "calendar_rules_destroy", "clusters_component_values_update",
        "chart_repositories_partial_update", "chart_repositories_destroy", "clusters_partial_update",
        "pools_partial_update",
        "profiles_partial_update", "profiles_actions_publish_create", "profiles_actions_discard_create",
        "clusters_telemetry_update", "alert_rules_update", "alert_rules_reset", "clusters_alert_rules_update",
        "clusters_alert_rules_reset", "notice_channels_partial_update", "notice_channels_destroy",
        "gpus_teams_partial_update", "gpus_team_rules_replace",
        "gpus_check_schedules_partial_update", "gpus_check_schedules_destroy",
        "change_record_rules_partial_update", "change_record_rules_destroy", "ticket_connections_destroy",
        "site_entries_partial_update", "site_entries_destroy", "site_entries_actions_classify_create",
    }
)  # fmt: skip
"""Operations that need If-Match; a test holds this to what the views do."""
_ASKS_A_CLUSTER = ("/api/v1/clusters", "/api/v1/nodes", "/api/v1/plans", "/api/v1/pools", "/api/v1/rollouts")

_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "description": "Sent again within 24 h: the same answer, no second object.",
}
_IF_MATCH = 'The ETag that was read, such as "3": the request is refused if the object has moved on.'
_SUMMARIES = {
    "me": "Read who this request acts as",
    "clusters_actions_rotate_credential_create": "Rotate a cluster's credential",
    "compliance_matrix": "Read settings by pools",
    "compliance_summary": "Count nodes by state",
    "plans_actions_request_create": "Request approval of a plan",
    "plans_actions_retract_create": "Take back one's own verdict on a plan",
    "rollouts_actions_retry_failed_create": "Retry a rollout's failed steps",
    "rollouts_actions_skip_create": "Skip one step of a rollout",
    "settings_retrieve": "Read a setting of the catalog",
    "settings_list": "List settings of the catalog",
    "profiles_actions_import_create": "Preview, then store, a profile from a text",
}
_VERBS = {
    "list": "List",
    "retrieve": "Read",
    "get": "Read",
    "create": "Create",
    "partial_update": "Change",
    "destroy": "Delete",
}


class BearerTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "accounts.access.authentication.BearerToken"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "sp_<id>.<secret>, made under your account."}


class Schema(AutoSchema):
    """Adds a summary to each operation, and `fields` and ETag where views have them."""

    def get_summary(self) -> str:
        if known := _SUMMARIES.get(self.get_operation_id()):
            return known
        action = getattr(self.view, "action", None) or self.method.lower()
        handler = getattr(self.view, action, None)
        text = (getattr(handler, "__doc__", None) or "").strip()
        if text and action not in _VERBS:
            return " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".")
        words = _VERBS.get(action) or action.removesuffix("_").replace("_", " ").capitalize()
        return f"{words} {self._things(many=action == 'list')}"

    def _things(self, *, many: bool) -> str:
        """Return the noun of what the address names: `a plan`, `plan nodes`."""
        model = getattr(getattr(self.view, "queryset", None), "model", None)
        if model is None and hasattr(self.view, "get_serializer_class"):
            model = getattr(getattr(self.view.get_serializer_class(), "Meta", None), "model", None)
        if model is None:
            named = [part for part in self.path.split("/") if part and "{" not in part][-1].replace("-", " ")
            return named if many else f"the {named}"
        name = str(model._meta.verbose_name)
        if many:
            return str(model._meta.verbose_name_plural)
        return f"{'an' if name[0] in 'aeio' else 'a'} {name}"

    def get_override_parameters(self) -> list[Any]:
        from drf_spectacular.utils import OpenApiParameter

        parameters = list(super().get_override_parameters())
        action = getattr(self.view, "action", None)
        if isinstance(self.view, SelectedFields) and action in ("list", "retrieve"):
            parameters.append(OpenApiParameter("fields", str, description="Only these, as `id,name`."))
        is_versioned = getattr(self.view, "is_versioned", False)
        needed = self.get_operation_id() in _BASED_ON_A_VERSION
        if needed or (is_versioned and self.method == "POST" and "{" in self.path):
            parameters.append(OpenApiParameter("If-Match", str, "header", required=needed, description=_IF_MATCH))
        if is_versioned and action == "retrieve":
            parameters.append(
                OpenApiParameter(
                    "ETag", str, OpenApiParameter.HEADER, response=[200], description="The version, for If-Match."
                )
            )
        return parameters


def add_problems(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Names the problem documents of each operation, its special headers, and an example of each component."""
    components = result.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = PROBLEM
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    components["responses"] = {
        name: {"description": meaning, "content": content} for name, meaning in PROBLEMS.values()
    }
    for path, operations in result.get("paths", {}).items():
        for method, operation in operations.items():
            if method in _METHODS:
                _complete(path, method, operation)
    for name, example in examples().items():
        if name in schemas:
            schemas[name]["example"] = example
    return result


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    for status in _problems_of(path, method, operation):
        reference = {"$ref": f"#/components/responses/{PROBLEMS[status][0]}"}
        operation["responses"].setdefault(str(status), reference)
    is_upload = "multipart/form-data" in operation.get("requestBody", {}).get("content", {})
    if method == "post" and "201" in operation["responses"] and not is_upload:
        operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)


def _problems_of(path: str, method: str, operation: dict[str, Any]) -> Iterable[int]:
    """The statuses of problem documents that this operation may answer with."""
    yield from (400, 406, 422, 503)
    if operation.get("security"):
        yield from (401, 403)
    if "{" in path:
        yield 404
    if method != "get":
        yield 409
        yield from (413, 415)  # where no body is asked for, one that is sent is read all the same
        if path.startswith(_ASKS_A_CLUSTER):
            yield 502
    if any(parameter["name"] == "If-Match" for parameter in operation.get("parameters", ())):
        yield 412
    if operation["operationId"] in _BASED_ON_A_VERSION:
        yield 428


@cache
def examples() -> dict[str, Any]:
    """Component → example: what may be sent by hand, answers from a demo. A test holds each to its schema."""
    by_name: dict[str, Any] = {}
    for file in sorted(Path(__file__).with_name("api_examples").glob("*.yaml")):
        by_name |= yaml.safe_load(file.read_text(encoding="utf-8"))
    return by_name


@cache
def _document() -> bytes:
    """The same for everyone. Seconds of CPU: made once in a process, and by one thread."""
    generator: Any = SchemaGenerator  # untyped
    schema = generator().get_schema(request=None, public=True)
    return bytes(OpenApiJsonRenderer().render(schema, renderer_context={}))


_making = threading.Lock()


@extend_schema(exclude=True)
class Document(ApiView):
    """The OpenAPI document, for logged-in users."""

    needs_role = False
    scope_for = {"GET": "read"}

    def get(self, request: UserApiRequest) -> HttpResponseBase:
        with _making:
            content = _document()
        answer = HttpResponse(content, content_type="application/vnd.oai.openapi+json")
        answer["ETag"] = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        answer["Cache-Control"] = "private, no-cache"
        return get_conditional_response(request, etag=answer["ETag"], response=answer) or answer


@require_GET
@login_required
def docs(request: HttpRequest) -> HttpResponse:
    """Swagger UI, from our own static files."""
    response = render(request, "api/docs.html")
    response["Content-Security-Policy"] = DOCS_CONTENT_SECURITY_POLICY
    return response
