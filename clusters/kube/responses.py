"""Answers of an API server, and the FleetError that a status of 300 or more means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusters.fleet import (
    Conflict,
    CredentialsRefused,
    FleetError,
    FleetRefused,
    FleetUnavailable,
    Forbidden,
    Gone,
    NotFound,
    Throttled,
    Untrusted,
)

MAX_RETRY_AFTER = 300.0


@dataclass(frozen=True, slots=True)
class Call:
    """Call in progress, for messages: the verb and resource of Kubernetes' own permissions."""

    verb: str
    resource: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f' {self.name}' if self.name else ''}"


@dataclass(frozen=True, slots=True)
class ApiResponse:
    call: Call
    status: int
    headers: Mapping[str, str]
    body: bytes

    def object(self, kind: str = "") -> dict[str, Any]:
        """The body as an object. Raises Untrusted unless it is JSON of that kind."""
        body = parsed(self.body)
        if body is None:
            raise Untrusted(f"{self.call}: the answer is not a JSON object; is this an API server?")
        if kind and body.get("kind") != kind:
            raise Untrusted(f"{self.call}: expected a {kind}, was given {short(body.get('kind'))!r}")
        return body

    def status_object(self) -> dict[str, Any]:
        """The Kubernetes Status in the body, {} when it is something else."""
        body = parsed(self.body) or {}
        return body if body.get("kind") == "Status" else {}

    @property
    def retry_after(self) -> float:
        """Seconds, from the header, else the Status, else 1."""
        details = self.status_object().get("details")
        seconds = self.headers.get("Retry-After") or (details or {}).get("retryAfterSeconds")
        try:
            return min(max(float(seconds), 0.0), MAX_RETRY_AFTER) if seconds else 1.0
        except (TypeError, ValueError):
            return 1.0

    def refusal(self) -> FleetError:
        """The error that a status of 300 or more means."""
        status, words = self.status_object(), short(self.status_object().get("message") or "")
        code = self.status
        if code in (404, 409, 410) and not (status or self._is_absent_api()):
            # A load balancer's 404 must never read as "the pod is gone".
            return Untrusted(f"{self.call}: {code}, but not from an API server")
        if 300 <= code < 400:
            return Untrusted(f"{self.call}: answered with a redirect, which is not followed")
        if code == 401:
            return CredentialsRefused(f"may not {self.call}: the credentials are not accepted (401)")
        if code == 403 and is_starting(message(self)):
            return FleetUnavailable(f"{self.call}: the API server has just started and has not read its roles yet")
        if code == 403:
            return Forbidden(f"may not {self.call}: {words or '403'}")
        if code == 429:
            return Throttled(f"{self.call}: throttled, {words or '429'}", self.retry_after)
        if code == 404 and not status:
            lacks = "NodeTunings; apply Setpoint's manifests" if self.call.resource == "nodetunings" else "this kind"
            return NotFound(f"{self.call}: the cluster does not serve {lacks}")
        final = {404: NotFound, 409: Conflict, 410: Gone}.get(code)
        if final:
            return final(f"{self.call}: {words or code}")
        if 400 <= code < 500 and code != 408:
            return FleetRefused(f"{self.call}: {words or code}")
        return FleetUnavailable(f"{self.call}: the API server answered {code} {words}".rstrip())

    def _is_absent_api(self) -> bool:
        """Return whether this is the answer for a group that is not served: no CRD is installed, or it is older."""
        kinds = ("nodetunings", "resourceslices", "resourceclaims")
        return self.call.resource.startswith(kinds) and self.body.strip() == b"404 page not found"


def is_starting(words: str) -> bool:
    """Return whether an API server forbids something only because it has just started.

    It answers before it has read the roles: then even those that every API server creates for itself are missing.
    """
    return "RBAC: " in words and 'clusterrole.rbac.authorization.k8s.io "system:' in words and '" not found' in words


def is_for_want_of_a_role(answer: ApiResponse) -> bool:
    """Return whether an authorizer refused, by its wording: admission (quota, terminating namespace) has another."""
    words = message(answer)
    return " cannot " in words and not is_starting(words)


def message(answer: ApiResponse) -> str:
    return str(answer.status_object().get("message") or "")


def parsed(body: bytes) -> dict[str, Any] | None:
    try:
        body_object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return body_object if isinstance(body_object, dict) else None


def short(text: object, limit: int = 500) -> str:
    """A server's words, fit for a page and a log: printable, one line, bounded."""
    printable = "".join(c if c.isprintable() else " " for c in str(text)[: limit + 1])
    return printable if len(printable) <= limit else printable[: limit - 1] + "…"
