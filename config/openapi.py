"""The OpenAPI document: what drf-spectacular cannot see by itself, and the page that shows it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET
from drf_spectacular.extensions import OpenApiAuthenticationExtension

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
_METHODS = frozenset({"get", "post", "put", "patch", "delete"})


class BearerTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[misc, no-untyped-call]
    target_class = "accounts.authentication.BearerToken"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "sp_<id>.<secret>, made under your account."}


def add_problems(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Every operation may answer with a problem document, creating ones accept a key, and each names its scope."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = PROBLEM
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for operations in result.get("paths", {}).values():
        for method, operation in operations.items():
            if method not in _METHODS:
                continue
            operation["responses"].setdefault("default", {"description": "Refused, or failed.", "content": content})
            if method == "post" and "201" in operation["responses"]:
                operation.setdefault("parameters", []).append(
                    {
                        "name": "Idempotency-Key",
                        "in": "header",
                        "required": False,
                        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
                        "description": "Sent again within 24 h: the same answer, no second object.",
                    }
                )
    return result


@require_GET
def docs(request: HttpRequest) -> HttpResponse:
    """Swagger UI, from our own static files."""
    response = render(request, "api/docs.html")
    response["Content-Security-Policy"] = DOCS_CONTENT_SECURITY_POLICY
    return response
