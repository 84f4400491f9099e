"""First-fit scheduler over readiness, cordons, taints, node selectors, GPUs and pod slots."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from clusters import objects
from simfleet.apiserver.store import Change, Key, Stored
from simfleet.machines import instances

if TYPE_CHECKING:
    from simfleet.core import SimCluster

START_SECONDS = 2.0
PLACE_SECONDS = 0.2
PODS_PER_NODE = 110


class Scheduler:
    """Looks at all waiting pods, in name order, soon after anything changed that could help them."""

    def __init__(self, cluster: SimCluster, start: Callable[[Key], None]) -> None:
        self._cluster, self._store, self._start = cluster, cluster.store, start
        self._used: dict[str, Counter[str]] = defaultdict(Counter)
        """GPUs and instances that unfinished pods hold, by node and resource."""
        self._waiting: set[Key] = set()
        self._is_due = False
        cluster.store.listeners.append(self._changed)

    def _changed(self, plural: str, change: Change) -> None:
        if plural == "pods":
            if change.before is not None:
                self._used[node_of(change.before.raw)].subtract(_held(change.before.raw))
            if change.type != "DELETED":
                self._used[node_of(change.now.raw)].update(_held(change.now.raw))
            if change.type == "DELETED" or node_of(change.now.raw) or "deletionTimestamp" in change.now.raw["metadata"]:
                self._waiting.discard(change.now.key)
            else:
                self._waiting.add(change.now.key)
        if plural in ("pods", "nodes") and self._waiting and not self._is_due:
            self._is_due = True
            self._cluster.after(PLACE_SECONDS, self._place)

    def _place(self) -> None:
        self._is_due = False
        nodes = [n.raw for n in self._store.all("nodes") if _accepts(n.raw)] if self._waiting else []
        with_room = [n for n in nodes if any(count > 0 for count in self._free(n).values())]
        for key in sorted(self._waiting):
            pod = self._store.get("pods", key[1], key[0])
            offered = with_room if _held(pod.raw) else nodes
            home = next((n for n in offered if self._fits(n, pod.raw)), None)
            if home is None:
                self._unschedulable(pod, len(nodes))
                continue
            spec = pod.raw["spec"] | {"nodeName": home["metadata"]["name"]}
            self._store.write("pods", pod.raw | {"spec": spec})
            self._cluster.after(START_SECONDS, partial(self._start, key))

    def _unschedulable(self, pod: Stored, nodes: int) -> None:
        message = f"0/{self._store.count('nodes')} nodes are available: {nodes} were considered."
        reason = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self._store.write("pods", pod.raw | {"status": {"phase": "Pending", "conditions": [reason]}})

    def _free(self, node: Mapping[str, Any]) -> Mapping[str, int]:
        """Return a node's unused capacity by resource."""
        used = self._used[node["metadata"]["name"]]
        offered = instances.counted((node.get("status") or {}).get("allocatable"))
        return {resource: count - used[resource] for resource, count in offered.items()}

    def _fits(self, node: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
        name = node["metadata"]["name"]
        if not selects(pod["spec"], node) or not tolerates(pod["spec"].get("tolerations") or (), node):
            return False
        has_slot = len(self._store.pods_by_node.get(name, ())) < PODS_PER_NODE
        if not has_slot or not (wanted := instances.requested(pod)):
            return has_slot
        free = self._free(node)
        return all(count <= free.get(resource, 0) for resource, count in wanted.items())


def selects(pod_spec: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """nodeSelector and required node affinity."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(k) != v for k, v in (pod_spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(
        objects.selects(term, labels) and _is_named(term, node) for term in required["nodeSelectorTerms"]
    )


def _is_named(term: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """matchFields, of which Kubernetes knows one: metadata.name."""
    fields = term.get("matchFields") or ()
    return all((node["metadata"]["name"] in f["values"]) == (f["operator"] == "In") for f in fields)


def tolerates(tolerations: Sequence[Mapping[str, str]], node: Mapping[str, Any]) -> bool:
    """Return whether a pod with these may be put on the node as it is tainted."""
    return all(
        taint["effect"] == "PreferNoSchedule" or any(suits(t, taint) for t in tolerations)
        for taint in node["spec"].get("taints") or ()
    )


def node_of(pod: Mapping[str, Any]) -> str:
    """Name of the node a pod is bound to, "" while it waits."""
    return str(pod["spec"].get("nodeName", ""))


def _held(pod: Mapping[str, Any]) -> Mapping[str, int]:
    return {} if objects.is_finished(pod) else instances.requested(pod)


def _accepts(node: Mapping[str, Any]) -> bool:
    return objects.is_ready(node) and not objects.is_cordoned(node)


def suits(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key", "") in ("", taint["key"])
    return (toleration.get("key"), toleration.get("value", "")) == (taint["key"], taint.get("value", ""))
