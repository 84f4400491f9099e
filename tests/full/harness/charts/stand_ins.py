"""Stand-ins for the operators of real charts, whose images run on no kwok node: what they would make, and no more."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from clusters.fleet import FleetError
from clusters.kube.apiserver import MERGE, ApiServer, Call
from tests.controlplane.plane import LOOPBACK, Plane

HOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
UNASKED = [{"name": "no-server-here", "expression": "false"}]
"""The condition with which an API server never calls a webhook. No chart of the catalog sets the field."""
PAUSE_SECONDS = 0.2


class StandIns(threading.Thread):
    """Plays Volcano's, NVIDIA's and Prometheus's operators, and keeps the API server from webhooks without a server."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(name="stand-ins", daemon=True)
        self._server = ApiServer(plane.admin, policy=LOOPBACK, timeout=20)
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            for play in (self._webhooks, self._queue, self._gpus, self._nics, self._prometheus):
                with suppress(FleetError):  # its kind is not there now
                    play()

    def stop(self) -> None:
        self._over.set()
        self.join(30)
        self._server.close()

    # ── what each does ────────────────────────────────────────────────────────────────────────────────────────────
    def _webhooks(self) -> None:
        for plural in HOOKS:
            base = f"/apis/admissionregistration.k8s.io/v1/{plural}"
            for raw in self._items(base):
                hooks = raw.get("webhooks") or []
                if any(not hook.get("matchConditions") for hook in hooks):
                    changed = {"webhooks": [hook | {"matchConditions": UNASKED} for hook in hooks]}
                    version = {"metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]}}
                    self._patch(f"{base}/{raw['metadata']['name']}", changed | version)

    def _queue(self) -> None:
        base = "/apis/scheduling.volcano.sh/v1beta1/queues"
        there = {raw["metadata"]["name"]: raw for raw in self._items(base)}
        if "default" not in there:
            queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}}
            self._create(base, queue | {"spec": {"weight": 1}})
        for name, raw in there.items():
            if (raw.get("status") or {}).get("state") != "Open":
                self._patch(f"{base}/{name}/status", {"status": {"state": "Open"}})

    def _gpus(self) -> None:
        for policy in self._items("/apis/nvidia.com/v1/clusterpolicies"):
            self._workload("daemonsets", "gpu-operator", "nvidia-operator-validator", policy)
            self._ready("/apis/nvidia.com/v1/clusterpolicies", policy)

    def _nics(self) -> None:
        base = "/apis/mellanox.com/v1alpha1/nicclusterpolicies"
        for policy in self._items(base):
            self._ready(base, policy)

    def _prometheus(self) -> None:
        for prometheus in self._items("/apis/monitoring.coreos.com/v1/prometheuses"):
            meta = prometheus["metadata"]
            self._workload("statefulsets", meta["namespace"], f"prometheus-{meta['name']}", prometheus)

    def _ready(self, base: str, policy: Mapping[str, Any]) -> None:
        if (policy.get("status") or {}).get("state") != "ready":
            self._patch(f"{base}/{policy['metadata']['name']}/status", {"status": {"state": "ready"}})

    def _workload(self, plural: str, namespace: str, name: str, owner: Mapping[str, Any]) -> None:
        base = f"/apis/apps/v1/namespaces/{namespace}/{plural}"
        if any(raw["metadata"]["name"] == name for raw in self._items(base)):
            return
        by = {key: owner.get(key) for key in ("apiVersion", "kind")} | {
            key: owner["metadata"][key] for key in ("name", "uid")
        }
        spec: dict[str, Any] = {
            "selector": {"matchLabels": {"made": name}},
            "template": {
                "metadata": {"labels": {"made": name}},
                "spec": {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "main", "image": "none"}]},
            },
        }
        kind = {"daemonsets": "DaemonSet", "statefulsets": "StatefulSet"}[plural]
        if kind == "StatefulSet":
            spec["serviceName"] = name
        meta = {"name": name, "ownerReferences": [by]}
        self._create(base, {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec})

    # ── verbs ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def _items(self, base: str) -> Iterator[dict[str, Any]]:
        """Raises FleetError. The kind and version of the list, which its items lack."""
        listing = self._server.ask(Call("list", base.rpartition("/")[2]), "GET", base).object()
        for raw in listing.get("items") or ():
            yield {"apiVersion": listing["apiVersion"], "kind": str(listing["kind"]).removesuffix("List")} | raw

    def _create(self, base: str, raw: Mapping[str, Any]) -> None:
        self._server.ask(Call("create", base.rpartition("/")[2]), "POST", base, body=raw)

    def _patch(self, path: str, change: Mapping[str, Any]) -> None:
        query = {"fieldManager": "stand-ins"}
        self._server.ask(Call("patch", path), "PATCH", path, body=change, content_type=MERGE, query=query)
