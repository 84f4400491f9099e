"""PodDisruptionBudgets: the disruption controller's arithmetic, and the eviction subresource's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters import objects
from simfleet.apiserver.store import ApiError, Change, Raw, Store, Stored

SCALED = ("ReplicaSet", "StatefulSet", "ReplicationController")
"""Owners whose scale the disruption controller can read. A Job has none: maxUnavailable over its pods allows none."""
_PLURALS = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}


class Budgets:
    """Status is brought up to date before it is read, not after every pod's change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stale: set[str] = set()
        self._namespaces: set[str] = set()
        store.listeners.append(self._changed)

    def _changed(self, plural: str, change: Change) -> None:
        if plural == "poddisruptionbudgets":
            self._namespaces.add(change.now.key[0])
            self._stale.add(change.now.key[0])
        elif plural == "pods" and change.now.key[0] in self._namespaces:
            self._stale.add(change.now.key[0])

    def settle(self) -> None:
        while self._stale:
            namespace = self._stale.pop()
            pods = [pod.raw for pod in self._store.all("pods", namespace)]
            for budget in self._store.all("poddisruptionbudgets", namespace):
                status = self._status(budget.raw, pods)
                if status != budget.raw.get("status"):
                    self._store.write("poddisruptionbudgets", budget.raw | {"status": status})
            self._stale.discard(namespace)

    def _status(self, budget: Mapping[str, Any], pods: list[Raw]) -> Raw:
        spec = budget["spec"]
        ours = [p for p in pods if objects.selects(spec.get("selector"), _labels(p)) and not objects.is_finished(p)]
        healthy = sum(1 for p in ours if is_ready(p) and "deletionTimestamp" not in p["metadata"])
        status: Raw = {"observedGeneration": budget["metadata"]["generation"], "currentHealthy": healthy}
        try:
            expected, desired = self._expected(spec, ours)
        except _NoScale as error:
            condition = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": str(error)}
            return status | {
                "expectedPods": 0,
                "desiredHealthy": 0,
                "disruptionsAllowed": 0,
                "conditions": [condition],
            }
        allowed = max(0, healthy - desired) if expected > 0 else 0
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
        }
        return status | {
            "expectedPods": expected,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "conditions": [condition],
        }

    def _expected(self, spec: Mapping[str, Any], pods: list[Raw]) -> tuple[int, int]:
        """(expectedPods, desiredHealthy)."""
        least = spec.get("minAvailable")
        if least is not None and not isinstance(least, str):
            return len(pods), least
        expected = self._scale(pods)
        if least is not None:
            return expected, _share(least, expected)
        return expected, max(0, expected - _share(spec.get("maxUnavailable", 0), expected))

    def _scale(self, pods: list[Raw]) -> int:
        total = 0
        for kind, namespace, name in sorted({_controller(p) for p in pods}):
            if kind not in SCALED:
                raise _NoScale(
                    f'found no controllers for pod "{name}"' if not kind else f"{kind}: no scale subresource"
                )
            owner = self._store.find(_PLURALS[kind], name, namespace)
            total += ((owner.raw.get("spec") or {}).get("replicas", 1)) if owner else 0
        return total

    def admit_eviction(self, pod: Stored) -> None:
        """Raises ApiError 429 for a budget that is spent, 500 where several budgets select the pod."""
        if (pod.raw.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Pending"):
            return
        if "deletionTimestamp" in pod.raw["metadata"]:
            return
        self.settle()
        namespace = pod.key[0]
        budgets = [
            b
            for b in self._store.all("poddisruptionbudgets", namespace)
            if objects.selects(b.raw["spec"].get("selector"), _labels(pod.raw))
        ]
        if len(budgets) > 1:
            raise ApiError(
                500,
                "InternalError",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            )
        if not budgets:
            return
        budget, status = budgets[0].raw, budgets[0].raw["status"]
        if not is_ready(pod.raw):
            if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
                return
            if status["desiredHealthy"] > 0 and status["currentHealthy"] >= status["desiredHealthy"]:
                return
        if status["disruptionsAllowed"] == 0:
            name = budget["metadata"]["name"]
            needs = f"needs {status['desiredHealthy']} healthy pods and has {status['currentHealthy']} currently"
            raise ApiError(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
                causes=({"reason": "DisruptionBudget", "message": f"The disruption budget {name} {needs}"},),
            )


class _NoScale(Exception):
    pass


def is_ready(pod: Mapping[str, Any]) -> bool:
    return objects.condition(pod, "Ready") == "True"


def _labels(raw: Mapping[str, Any]) -> Mapping[str, str]:
    return raw["metadata"].get("labels") or {}


def _controller(pod: Mapping[str, Any]) -> tuple[str, str, str]:
    kind, name = objects.controller(pod)
    return kind, pod["metadata"]["namespace"], name or pod["metadata"]["name"]


def _share(value: int | str, whole: int) -> int:
    """A count, or a percentage rounded up, as the disruption controller rounds both bounds."""
    return -(-int(value.rstrip("%")) * whole // 100) if isinstance(value, str) else value
