"""Controllers of workloads that came through the API: each looks at one object and moves it a step towards its spec.

Deployments roll through ReplicaSets within maxSurge and maxUnavailable, StatefulSets go in order, Jobs retry up to
their backoffLimit. Those that `pods.Pods.workload` makes have no template, and are that module's. Not simulated:
CronJobs, autoscalers, quota, priority, progress deadlines.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from clusters import objects
from simfleet import daemons, manifests
from simfleet.budgets import is_ready
from simfleet.clock import stamp
from simfleet.placing import START_SECONDS, node_of
from simfleet.store import Change, Key, Raw, Stored

if TYPE_CHECKING:
    from simfleet.core import SimCluster

LOOK_SECONDS = 0.1
KINDS = {
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
}
PLURALS = frozenset(KINDS.values())
TEMPLATE_HASH, REVISION_HASH = "pod-template-hash", "controller-revision-hash"
JOB_LABEL = "batch.kubernetes.io/job-name"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Workloads:
    def __init__(self, cluster: SimCluster, seed: int) -> None:
        self._cluster, self._store = cluster, cluster.store
        self._random = random.Random(f"workloads-{seed}")
        self._due: set[tuple[str, Key]] = set()
        self._daemons: set[Key] = set()
        cluster.store.listeners.append(self._changed)

    # ── noticing ──────────────────────────────────────────────────────────────────────────────────────────────────
    def _changed(self, plural: str, change: Change) -> None:
        raw, before = change.now.raw, change.before.raw if change.before else None
        if plural in PLURALS:
            if not is_ours(raw):
                return
            if plural == "daemonsets":
                (self._daemons.discard if change.type == "DELETED" else self._daemons.add)(change.now.key)
            if change.type != "DELETED" and (before is None or before["spec"] != raw["spec"]):
                self._wake(plural, change.now.key)
        if plural in ("pods", "replicasets"):
            kind, name = objects.controller(raw)
            if kind in KINDS:
                self._wake(KINDS[kind], (change.now.key[0], name))
        elif plural == "nodes" and self._daemons and (before is None or _place(before) != _place(raw)):
            for key in sorted(self._daemons):
                self._wake("daemonsets", key)

    def _wake(self, plural: str, key: Key) -> None:
        if (plural, key) in self._due:
            return
        found = self._store.find(plural, key[1], key[0])
        if found is not None and is_ours(found.raw):
            self._due.add((plural, key))
            self._cluster.after(LOOK_SECONDS, partial(self._look, plural, key))

    def _look(self, plural: str, key: Key) -> None:
        self._due.discard((plural, key))
        owner = self._store.find(plural, key[1], key[0])
        if owner is None or "deletionTimestamp" in owner.raw["metadata"]:
            return
        look = {
            "deployments": self._deployment,
            "replicasets": self._replica_set,
            "statefulsets": self._stateful_set,
            "daemonsets": self._daemon_set,
            "jobs": self._job,
        }
        status = look[plural](owner)
        now = self._store.get(plural, key[1], key[0])
        status["observedGeneration"] = owner.raw["metadata"]["generation"]
        self._store.write(plural, now.raw | {"status": status})

    # ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def pods_of(self, owner: Stored) -> list[Stored]:
        return self._cluster.garbage.dependants(owner.raw["metadata"]["uid"], "pods")

    def make_pod(self, owner: Stored, kind: str, *, labels: Mapping[str, str], name: str = "", node: str = "") -> None:
        """From the owner's template; bound to `node`, or left to the scheduler."""
        namespace, of = owner.key
        template = owner.raw["spec"]["template"]
        metadata = dict(template.get("metadata") or {})
        name = name or f"{of}-{self._suffix()}"
        metadata |= {
            "name": name,
            "namespace": namespace,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "ownerReferences": [_reference(owner, kind)],
        }
        defaults = {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
        }
        spec: Raw = defaults | template["spec"]
        if node:
            spec |= {"nodeName": node, "tolerations": daemons.tolerations(template["spec"])}
        self._store.create("pods", {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
        if node:
            self._cluster.after(START_SECONDS, lambda: self._cluster.pods.start((namespace, name)))

    def end_pod(self, pod: Stored) -> None:
        if "deletionTimestamp" not in pod.raw["metadata"]:
            self._cluster.pods.terminate(pod)

    def _suffix(self) -> str:
        return "".join(self._random.choices(_ALPHABET, k=5))

    # ── Deployment, ReplicaSet ────────────────────────────────────────────────────────────────────────────────────
    def _deployment(self, owner: Stored) -> Raw:
        spec, wanted = owner.raw["spec"], _count(owner)
        current = hash_of(spec["template"])
        sets = self._cluster.garbage.dependants(owner.raw["metadata"]["uid"], "replicasets")
        new = next((s for s in sets if s.raw["metadata"]["labels"].get(TEMPLATE_HASH) == current), None)
        old = [s for s in sets if s is not new and (_count(s) or _number(s, "replicas"))]
        rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
        surge = share(rolling.get("maxSurge", "25%"), wanted, is_up=True)
        spare = share(rolling.get("maxUnavailable", "25%"), wanted)
        if (spec.get("strategy") or {}).get("type") == "Recreate":
            surge, spare = 0, wanted
        if new is None:
            new = self._new_set(owner, current, 1 + max((_revision(s) for s in sets), default=0))
        ready_old = sum(_number(s, "readyReplicas") for s in old)
        room = wanted + max(surge, 0 if spare else 1) - sum(max(_count(s), _number(s, "replicas")) for s in old)
        self._scale(new, min(wanted, max(room, _count(new))) if wanted >= _count(new) else wanted)
        may_go = max(0, ready_old + _number(new, "readyReplicas") - (wanted - spare))
        for replica_set in old:
            broken = _count(replica_set) - _number(replica_set, "readyReplicas")
            step = min(_count(replica_set), max(0, broken) + may_go)
            may_go -= max(0, step - max(0, broken))
            self._scale(replica_set, _count(replica_set) - step)
        return self._deployment_status(owner, new, old, wanted, spare)

    def _new_set(self, owner: Stored, current: str, revision: int) -> Stored:
        spec = owner.raw["spec"]
        template = dict(spec["template"])
        metadata = dict(template.get("metadata") or {})
        labels = {**(metadata.get("labels") or {}), TEMPLATE_HASH: current}
        template["metadata"] = metadata | {"labels": labels}
        matching = {**(spec["selector"].get("matchLabels") or {}), TEMPLATE_HASH: current}
        body: Raw = {
            "metadata": {
                "name": f"{owner.key[1]}-{current}",
                "namespace": owner.key[0],
                "labels": labels,
                "annotations": {"deployment.kubernetes.io/revision": str(revision)},
                "ownerReferences": [_reference(owner, "Deployment")],
            },
            "spec": {"replicas": 0, "selector": spec["selector"] | {"matchLabels": matching}, "template": template},
        }
        return self._store.create("replicasets", body)

    def _scale(self, replica_set: Stored, count: int) -> None:
        if _count(replica_set) != count:
            spec = replica_set.raw["spec"] | {"replicas": count}
            self._store.write("replicasets", replica_set.raw | {"spec": spec})

    def _deployment_status(self, owner: Stored, new: Stored, old: list[Stored], wanted: int, spare: int) -> Raw:
        updated, ready_new = _number(new, "replicas"), _number(new, "readyReplicas")
        total = updated + sum(_number(s, "replicas") for s in old)
        ready = ready_new + sum(_number(s, "readyReplicas") for s in old)
        is_available, is_done = ready >= wanted - spare, ready_new >= wanted and total == wanted
        at = stamp(self._cluster.clock.now())
        conditions = [
            {
                "type": "Available",
                "status": "True" if is_available else "False",
                "reason": "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable",
            },
            {
                "type": "Progressing",
                "status": "True",
                "reason": "NewReplicaSetAvailable" if is_done else "ReplicaSetUpdated",
            },
        ]
        return {
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(0, max(wanted, total) - ready),
            "conditions": since(conditions, owner.raw, at),
        }

    def _replica_set(self, owner: Stored) -> Raw:
        pods, wanted = self.pods_of(owner), _count(owner)
        living = [p for p in pods if "deletionTimestamp" not in p.raw["metadata"] and not objects.is_finished(p.raw)]
        labels = owner.raw["metadata"].get("labels") or {}
        marks = {TEMPLATE_HASH: labels[TEMPLATE_HASH]} if TEMPLATE_HASH in labels else {}
        for _ in range(wanted - len(living)):
            self.make_pod(owner, "ReplicaSet", labels=marks)
        surplus = sorted(living, key=lambda p: (is_ready(p.raw), bool(node_of(p.raw)), p.key))
        for pod in surplus[: max(0, len(living) - wanted)]:
            self.end_pod(pod)
        ready = sum(1 for p in living if is_ready(p.raw))
        return {"replicas": len(living), "readyReplicas": ready, "availableReplicas": ready}

    # ── StatefulSet ───────────────────────────────────────────────────────────────────────────────────────────────
    def _stateful_set(self, owner: Stored) -> Raw:
        spec, name, wanted = owner.raw["spec"], owner.key[1], _count(owner)
        current, in_order = hash_of(spec["template"]), spec.get("podManagementPolicy") != "Parallel"
        there = {p.key[1]: p for p in self.pods_of(owner)}
        for ordinal in range(wanted):
            pod = there.get(f"{name}-{ordinal}")
            if pod is None:
                marks = {REVISION_HASH: current, "statefulset.kubernetes.io/pod-name": f"{name}-{ordinal}"}
                self.make_pod(owner, "StatefulSet", labels=marks, name=f"{name}-{ordinal}")
            if in_order and (pod is None or not is_ready(pod.raw)):
                break
        inside = {f"{name}-{ordinal}" for ordinal in range(wanted)}
        for pod_name in sorted(there.keys() - inside, key=_ordinal, reverse=True)[:1]:
            self.end_pod(there[pod_name])
        fresh = [p for p in there.values() if p.raw["metadata"]["labels"].get(REVISION_HASH) == current]
        ready = sum(1 for n, p in there.items() if n in inside and is_ready(p.raw))
        stale = sorted((n for n, p in there.items() if p not in fresh and n in inside), key=_ordinal, reverse=True)
        others_ready = all(is_ready(p.raw) for n, p in there.items() if n in inside and n not in stale)
        if stale and len(there) >= wanted and others_ready:
            self.end_pod(there[stale[0]])
        return {
            "replicas": len(there),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentReplicas": len(fresh),
            "updatedReplicas": len(fresh),
            "currentRevision": f"{name}-{current}",
            "updateRevision": f"{name}-{current}",
        }

    # ── DaemonSet ─────────────────────────────────────────────────────────────────────────────────────────────────
    def _daemon_set(self, owner: Stored) -> Raw:
        current = hash_of(owner.raw["spec"]["template"])
        nodes = {n.key[1] for n in self._store.all("nodes") if daemons.runs_on(owner.raw, n.raw)}
        decided = daemons.decide(owner.raw, self.pods_of(owner), nodes, current, REVISION_HASH)
        for pod in decided.end:
            self.end_pod(pod)
        for node in decided.make:
            self.make_pod(owner, "DaemonSet", labels={REVISION_HASH: current}, node=node)
        return decided.status

    # ── Job ───────────────────────────────────────────────────────────────────────────────────────────────────────
    def _job(self, owner: Stored) -> Raw:
        spec, status = owner.raw["spec"], dict(owner.raw.get("status") or {})
        if any(c["type"] in ("Complete", "Failed") for c in status.get("conditions") or ()):
            return status
        pods = self.pods_of(owner)
        phases = [(p.raw.get("status") or {}).get("phase") for p in pods]
        succeeded, failed = phases.count("Succeeded"), phases.count("Failed")
        restarts = sum(c["restartCount"] for p in pods for c in p.raw["status"].get("containerStatuses") or ())
        active = [p for p in pods if not objects.is_finished(p.raw) and "deletionTimestamp" not in p.raw["metadata"]]
        wanted, limit = spec.get("completions", 1), spec.get("backoffLimit", 6)
        at = stamp(self._cluster.clock.now())
        status = {"startTime": status.get("startTime") or at, "succeeded": succeeded, "failed": failed}
        if failed + restarts > limit:
            for pod in active:
                self.end_pod(pod)
            why = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
            return status | {"conditions": [_true("FailureTarget", at) | why, _true("Failed", at) | why]}
        if succeeded >= wanted:
            done = [_true("SuccessCriteriaMet", at), _true("Complete", at)]
            return status | {"conditions": done, "completionTime": at}
        missing = min(spec.get("parallelism", 1), wanted - succeeded) - len(active)
        for _ in range(missing):
            self.make_pod(owner, "Job", labels={JOB_LABEL: owner.key[1], "job-name": owner.key[1]})
        return status | {"active": len(active) + max(0, missing), "ready": sum(1 for p in active if is_ready(p.raw))}


def is_ours(raw: Mapping[str, Any]) -> bool:
    return "template" in (raw.get("spec") or {})


def hash_of(template: Mapping[str, Any]) -> str:
    value = manifests.hash_text(json.dumps(template, sort_keys=True))
    letters = []
    for _ in range(9):
        value, digit = divmod(value, len(_ALPHABET))
        letters.append(_ALPHABET[digit])
    return "".join(letters)


def share(value: int | str, whole: int, *, is_up: bool = False) -> int:
    """A count, or a percentage of `whole`, rounded down unless `is_up`."""
    if not isinstance(value, str):
        return value
    part = int(value.rstrip("%")) * whole
    return -(-part // 100) if is_up else part // 100


def since(conditions: list[Raw], old: Mapping[str, Any], at: str) -> list[Raw]:
    """With the times of those that were so before."""
    had = {(c["type"], c["status"]): c for c in (old.get("status") or {}).get("conditions") or ()}
    return [
        c | {"lastTransitionTime": had.get((c["type"], c["status"]), {}).get("lastTransitionTime", at)}
        for c in conditions
    ]


def _true(type_: str, at: str) -> Raw:
    return {"type": type_, "status": "True", "lastTransitionTime": at, "lastProbeTime": at}


def _reference(owner: Stored, kind: str) -> Raw:
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "name": owner.key[1],
        "uid": owner.raw["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _place(node: Mapping[str, Any]) -> tuple[Any, Any]:
    return node["metadata"].get("labels"), node["spec"].get("taints")


def _count(stored: Stored) -> int:
    return int(stored.raw["spec"].get("replicas", 1))


def _number(stored: Stored, field: str) -> int:
    return int((stored.raw.get("status") or {}).get(field, 0))


def _revision(stored: Stored) -> int:
    return int((stored.raw["metadata"].get("annotations") or {}).get("deployment.kubernetes.io/revision", 0))


def _ordinal(name: str) -> int:
    return int(name.rpartition("-")[2])
