"""An API server that keeps what it is given, for what this room asks of one: enough to see each request and answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clusters.fleet import NotFound
from clusters.kube.apiserver import ApiResponse, Call


class Kube:
    """A stand-in for ApiServer. `answers`: (method, path) to (status, body); `asked`: every request."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {}
        self.asked: list[dict[str, Any]] = []

    def say(self, method: str, path: str, body: Any, status: int = 200) -> None:
        self.answers[method, path] = (status, body)

    def send(self, call: Call, method: str, path: str, **how: Any) -> ApiResponse:
        self.asked.append({"method": method, "path": path, **how})
        missing = {"kind": "Status", "message": "not found", "code": 404}
        status, body = self.answers.get((method, path), (404, missing))
        if callable(body):
            status, body = body(how)
        if isinstance(body, dict) and "items" in body:
            body = {"kind": "List", "metadata": {}, **body}
        return ApiResponse(call, status, {}, json.dumps(body).encode())

    def ask(self, call: Call, method: str, path: str, **how: Any) -> ApiResponse:
        answer = self.send(call, method, path, **how)
        if answer.status >= 300:
            raise answer.refusal()
        return answer

    def get(self, call: Call, path: str, kind: str = "") -> dict[str, Any]:
        return self.ask(call, "GET", path).object(kind)


def record(payload: Mapping[str, Any], *, namespace: str = "space", labels: Mapping[str, str] | None = None) -> dict:
    """helm's Secret of one revision."""
    from components.helm.releases import _packed

    name, version, status = payload["name"], payload["version"], payload["info"]["status"]
    own = {"owner": "helm", "name": name, "version": str(version), "status": status}
    return {
        "metadata": {
            "name": f"sh.helm.release.v1.{name}.v{version}",
            "namespace": namespace,
            "resourceVersion": "7",
            "labels": own | dict(labels or {}),
        },
        "type": "helm.sh/release.v1",
        "data": {"release": _packed(payload)},
    }


def payload(version: int = 1, status: str = "deployed", name: str = "one", **over: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": "space",
        "version": version,
        "info": {"status": status, "last_deployed": "2026-11-21T10:00:00Z", "description": "Install complete"},
        "chart": {"metadata": {"name": "tiny", "version": "1.2.3", "appVersion": "7"}},
        "config": {"color": "blue"},
        "manifest": "---\n# Source: tiny/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
    } | over


__all__ = ["Kube", "NotFound", "payload", "record"]
