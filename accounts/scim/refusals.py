"""Refusals as SCIM has them (RFC 7644, section 3.12)."""

from __future__ import annotations

from typing import Any

SCHEMA = "urn:ietf:params:scim:api:messages:2.0:Error"


class ScimRefused(Exception):
    """`detail` names the attribute; `kind` is the scimType, empty where the standard has none."""

    def __init__(self, status: int, detail: str, kind: str = "") -> None:
        super().__init__(detail)
        self.status, self.detail, self.kind = status, detail, kind

    def document(self) -> dict[str, Any]:
        return document(self.status, self.detail, self.kind)


def document(status: int, detail: str, kind: str = "") -> dict[str, Any]:
    return {"schemas": [SCHEMA], "status": str(status), "detail": detail} | ({"scimType": kind} if kind else {})


def invalid(attribute: str, detail: str) -> ScimRefused:
    return ScimRefused(400, f"{attribute}: {detail}", "invalidValue")


def taken(attribute: str, detail: str) -> ScimRefused:
    return ScimRefused(409, f"{attribute}: {detail}", "uniqueness")


def missing(what: str) -> ScimRefused:
    return ScimRefused(404, f"There is no such {what}.")
