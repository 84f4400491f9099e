"""The taint manager: pods that do not tolerate a NoExecute taint are deleted, at once or after tolerationSeconds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from clusters import objects
from simfleet.apiserver.store import Change
from simfleet.controllers import placing

if TYPE_CHECKING:
    from simfleet.core import SimCluster

SECONDS = 0.1
"""Until it has seen a new taint."""
_OF_CONDITIONS = "node.kubernetes.io/"
"""Their pods end with their node: simfleet.controllers.nodes."""


class TaintManager:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster, self._store = cluster, cluster.store
        cluster.store.listeners.append(self._changed)

    def _changed(self, plural: str, change: Change) -> None:
        if plural != "nodes" or change.type == "DELETED":
            return
        before = _taints(change.before.raw) if change.before else []
        if (taints := _taints(change.now.raw)) and taints != before:
            self._cluster.after(SECONDS, partial(self._sweep, change.now.raw["metadata"]["name"]))

    def _sweep(self, node: str) -> None:
        for pod in self._store.on_node(node):
            if objects.is_mirror(pod.raw) or "deletionTimestamp" in pod.raw["metadata"]:
                continue
            seconds = self._seconds(node, pod.raw)
            if seconds is None:
                continue
            self._cluster.after(seconds, partial(self._end, node, pod.key, pod.raw["metadata"]["uid"]))

    def _seconds(self, node: str, pod: Mapping[str, Any]) -> float | None:
        """Return how many seconds a pod tolerates the node's present taints; None: forever."""
        stored = self._store.find("nodes", node)
        own = pod["spec"].get("tolerations") or ()
        times = []
        for taint in _taints(stored.raw) if stored else ():
            used = next((t for t in own if placing.suits(t, taint)), None)
            if used is None:
                return 0.0
            times += [float(used["tolerationSeconds"])] if "tolerationSeconds" in used else []
        return min(times, default=None)

    def _end(self, node: str, key: tuple[str, str], uid: str) -> None:
        pod = self._store.find("pods", key[1], key[0])
        if pod is not None and pod.raw["metadata"]["uid"] == uid and self._seconds(node, pod.raw) is not None:
            self._cluster.pods.terminate(pod, uid=uid)


def _taints(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    there = node["spec"].get("taints") or ()
    return [t for t in there if t["effect"] == "NoExecute" and not t["key"].startswith(_OF_CONDITIONS)]
