"""Raw requests to an API server about objects of any kind, as helm and planning make them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clusters.kube.apiserver import ApiServer, Call

STRATEGIC, MERGE = "application/strategic-merge-patch+json", "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
Raw = dict[str, Any]
_CALL = Call("ask", "anything")


class Objects:
    """Paths are written out: what is asked is the point of these tests."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def get(self, path: str) -> tuple[int, Raw]:
        return self._send("GET", path)

    def watch(self, path: str, **query: str) -> list[Raw]:
        """Return the events of a watch of one second."""
        answer = self._server.send(_CALL, "GET", path, query={"watch": "true", "timeoutSeconds": "1"} | query)
        assert answer.status == 200, answer
        return [json.loads(line) for line in answer.body.splitlines()]

    def post(self, path: str, raw: Mapping[str, Any], **query: str) -> tuple[int, Raw]:
        return self._send("POST", path, raw, {"fieldManager": "helm"} | query)

    def put(self, path: str, raw: Mapping[str, Any], **query: str) -> tuple[int, Raw]:
        return self._send("PUT", path, raw, {"fieldManager": "helm"} | query)

    def patch(self, path: str, raw: Mapping[str, Any], kind: str = MERGE, **query: str) -> tuple[int, Raw]:
        return self._send("PATCH", path, raw, {"fieldManager": "helm"} | query, kind)

    def apply(self, path: str, raw: Mapping[str, Any], manager: str, **query: str) -> tuple[int, Raw]:
        return self._send("PATCH", path, raw, {"fieldManager": manager} | query, APPLY)

    def delete(self, path: str, policy: str = "Background", *, dry_run: bool = False) -> int:
        options: Raw = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
        return self._send("DELETE", path, options | ({"dryRun": ["All"]} if dry_run else {}))[0]

    def exists(self, path: str) -> bool:
        return self.get(path)[0] == 200

    def _send(
        self,
        method: str,
        path: str,
        raw: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        kind: str = "application/json",
    ) -> tuple[int, Raw]:
        answer = self._server.send(_CALL, method, path, query=query, body=raw, content_type=kind)
        return answer.status, json.loads(answer.body)
