"""Documents of the service itself: what it supports, its resource types and their schemas.

They call required what a client that knows nothing else has to send: a POST of `userName` alone is taken where that is
an address, and a person is active unless the directory says otherwise.
"""

from __future__ import annotations

from typing import Any

from accounts.scim.documents import GROUP, USER
from accounts.scim.resources import MOST, location

_PREFIX = "urn:ietf:params:scim:schemas:core:2.0:"


def service_provider_config() -> dict[str, Any]:
    return {
        "schemas": [f"{_PREFIX}ServiceProviderConfig"],
        "patch": {"supported": True},
        "bulk": {"supported": False, "maxOperations": 0, "maxPayloadSize": 0},
        "filter": {"supported": True, "maxResults": MOST},
        "changePassword": {"supported": False},
        "sort": {"supported": False},
        "etag": {"supported": False},
        "authenticationSchemes": [
            {
                "type": "oauthbearertoken",
                "name": "Bearer token",
                "description": "A token of a SCIM client, which an administrator makes.",
                "primary": True,
            }
        ],
        "meta": {"resourceType": "ServiceProviderConfig", "location": location("ServiceProviderConfig", "")[:-1]},
    }


def resource_types() -> list[dict[str, Any]]:
    return [_type("User", "/Users", USER), _type("Group", "/Groups", GROUP)]


def schemas() -> list[dict[str, Any]]:
    return [
        _schema(
            USER, "User",
            [
                _attribute("userName", required=True, uniqueness="server"),
                _attribute("externalId", exact=True),
                _attribute("displayName"),
                _attribute(
                    "name", kind="complex",
                    parts=[
                        _attribute("givenName"), _attribute("familyName"),
                        _attribute("formatted", mutability="readOnly"),
                    ],
                ),
                _attribute(
                    "emails", kind="complex", many=True, required=True,
                    parts=[
                        _attribute("value", required=True), _attribute("type", values=["work"]),
                        _attribute("primary", kind="boolean"),
                    ],
                ),
                _attribute("active", kind="boolean", required=True),
                _attribute("groups", kind="complex", many=True, mutability="readOnly", parts=_references("readOnly")),
            ],
        ),
        _schema(
            GROUP, "Group",
            [
                _attribute("displayName", required=True, uniqueness="server"),
                _attribute("externalId", exact=True),
                _attribute("members", kind="complex", many=True, parts=_references("immutable")),
            ],
        ),
    ]  # fmt: skip


def _references(mutability: str) -> list[dict[str, Any]]:
    return [
        _attribute("value", mutability=mutability, exact=True),
        _attribute("$ref", kind="reference", mutability=mutability, exact=True),
        _attribute("display", mutability="readOnly"),
        _attribute("type", mutability="readOnly"),
    ]


def _type(name: str, endpoint: str, schema: str) -> dict[str, Any]:
    return {
        "schemas": [f"{_PREFIX}ResourceType"],
        "id": name,
        "name": name,
        "endpoint": endpoint,
        "schema": schema,
        "meta": {"resourceType": "ResourceType", "location": location("ResourceTypes", name)},
    }


def _schema(urn: str, name: str, attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schemas": [f"{_PREFIX}Schema"],
        "id": urn,
        "name": name,
        "attributes": attributes,
        "meta": {"resourceType": "Schema", "location": location("Schemas", urn)},
    }


def _attribute(
    name: str,
    *,
    kind: str = "string",
    many: bool = False,
    required: bool = False,
    exact: bool = False,
    mutability: str = "readWrite",
    uniqueness: str = "none",
    values: list[str] | None = None,
    parts: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": name, "type": kind, "multiValued": many, "required": required, "caseExact": exact,
        "mutability": mutability, "returned": "default", "uniqueness": uniqueness,
    }  # fmt: skip
    more = {"subAttributes": parts, "canonicalValues": values, "referenceTypes": ["User"] if name == "$ref" else None}
    return made | {key: value for key, value in more.items() if value}
