"""Pods that Setpoint itself runs on a real API server, in the one namespace where it may: created, read, removed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from clusters.fleet import FleetRefused, NotFound, ObjectRef, PodRef
from clusters.kube.apiserver import ApiServer, Call
from contract import names

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class OwnPods:
    """Verbs of the port for such pods."""

    _server: ApiServer

    def run_pod(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        ref = ObjectRef.of(manifest)
        path, call = _path(ref.namespace), Call("create", "pods", str(ref))
        answer = self._server.send(call, "POST", path, body=manifest, query={"fieldValidation": "Strict"})
        if answer.status == 409:
            return self._server.get(Call("get", "pods", str(ref)), _path(ref.namespace, ref.name), "Pod")
        if answer.status >= 300:
            raise answer.refusal()
        return answer.object("Pod")

    def pod_log(self, pod: PodRef, *, limit: int) -> bytes:
        call = Call("get", "pods/log", pod.name)
        path = f"{_path(pod.namespace, pod.name)}/log"
        # The server cuts off after limitBytes; the bound here counts, with room for an error of the server itself.
        query = {"limitBytes": str(limit)}
        return self._server.ask(call, "GET", path, query=query, accept="*/*", limit=limit + 4096).body[:limit]

    def remove_pod(self, pod: PodRef) -> None:
        conditions = {"preconditions": {"uid": pod.uid}} if pod.uid else {}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 5, **conditions}
        path, call = _path(pod.namespace, pod.name), Call("delete", "pods", pod.name)
        answer = self._server.send(call, "DELETE", path, body=body)
        if answer.status >= 300:
            with suppress(NotFound):
                raise answer.refusal()


def _path(namespace: str, name: str = "") -> str:
    """Raises FleetRefused: nothing of ours runs elsewhere."""
    if namespace != names.CHECKS_NAMESPACE or (name and not _NAME.fullmatch(name)):
        raise FleetRefused(f"{namespace[:80]}/{name[:80]} is no pod that Setpoint runs")
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")
