"""Controllers of workloads that came through the API: each looks at one object and moves it a step towards its spec.

Deployments roll through ReplicaSets within maxSurge and maxUnavailable, StatefulSets go in order, Jobs retry up to
their backoffLimit. Those that `pods.Pods.workload` makes have no template, and are that module's. Not simulated:
CronJobs, autoscalers, quota, priority, progress deadlines.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from clusters import objects
from simfleet.apiserver.store import Change, Key, Raw, Stored
from simfleet.clock import stamp
from simfleet.controllers import daemons
from simfleet.controllers.budgets import is_ready
from simfleet.controllers.deployments import Deployments
from simfleet.controllers.owned import (
    ALPHABET,
    REVISION_HASH,
    TEMPLATE_HASH,
    hash_of,
    is_ours,
    ordinal_of,
    placement_of,
    reference,
    replicas_of,
    true_since,
)
from simfleet.controllers.placing import START_SECONDS, node_of

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
JOB_LABEL = "batch.kubernetes.io/job-name"


class Workloads:
    def __init__(self, cluster: SimCluster, seed: int) -> None:
        self._cluster, self._store = cluster, cluster.store
        self._random = random.Random(f"workloads-{seed}")
        self._due: set[tuple[str, Key]] = set()
        self._daemons: set[Key] = set()
        self._deployments = Deployments(cluster)
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
        elif plural == "nodes" and self._daemons and (before is None or placement_of(before) != placement_of(raw)):
            for key in sorted(self._daemons):
                self._wake("daemonsets", key)

    def _wake(self, plural: str, key: Key) -> None:
        if (plural, key) in self._due:
            return
        owner = self._store.find(plural, key[1], key[0])
        if owner is not None and is_ours(owner.raw):
            self._due.add((plural, key))
            self._cluster.after(LOOK_SECONDS, partial(self._look, plural, key))

    def _look(self, plural: str, key: Key) -> None:
        self._due.discard((plural, key))
        owner = self._store.find(plural, key[1], key[0])
        if owner is None or "deletionTimestamp" in owner.raw["metadata"]:
            return
        look = {
            "deployments": self._deployments.look,
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
        """Create a pod from the owner's template; bound to `node`, or left to the scheduler."""
        namespace, of = owner.key
        template = owner.raw["spec"]["template"]
        metadata = dict(template.get("metadata") or {})
        name = name or f"{of}-{self._suffix()}"
        metadata |= {
            "name": name,
            "namespace": namespace,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "ownerReferences": [reference(owner, kind)],
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
        return "".join(self._random.choices(ALPHABET, k=5))

    # ── ReplicaSet ────────────────────────────────────────────────────────────────────────────────────────────────
    def _replica_set(self, owner: Stored) -> Raw:
        pods, wanted = self.pods_of(owner), replicas_of(owner)
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
        spec, name, wanted = owner.raw["spec"], owner.key[1], replicas_of(owner)
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
        for pod_name in sorted(there.keys() - inside, key=ordinal_of, reverse=True)[:1]:
            self.end_pod(there[pod_name])
        fresh = [p for p in there.values() if p.raw["metadata"]["labels"].get(REVISION_HASH) == current]
        ready = sum(1 for n, p in there.items() if n in inside and is_ready(p.raw))
        stale = sorted((n for n, p in there.items() if p not in fresh and n in inside), key=ordinal_of, reverse=True)
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
            return status | {"conditions": [true_since("FailureTarget", at) | why, true_since("Failed", at) | why]}
        if succeeded >= wanted:
            done = [true_since("SuccessCriteriaMet", at), true_since("Complete", at)]
            return status | {"conditions": done, "completionTime": at}
        missing = min(spec.get("parallelism", 1), wanted - succeeded) - len(active)
        for _ in range(missing):
            self.make_pod(owner, "Job", labels={JOB_LABEL: owner.key[1], "job-name": owner.key[1]})
        return status | {"active": len(active) + max(0, missing), "ready": sum(1 for p in active if is_ready(p.raw))}
