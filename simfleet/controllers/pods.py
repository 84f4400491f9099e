"""Pods and their makers: start, graceful end, eviction, and owners that replace what was evicted."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from clusters import objects
from simfleet import manifests
from simfleet.apiserver.store import ApiError, Change, Raw, Stored
from simfleet.clock import stamp
from simfleet.controllers import daemons
from simfleet.controllers.budgets import Budgets, is_ready
from simfleet.controllers.owned import is_ours
from simfleet.controllers.placing import START_SECONDS, Scheduler, node_of, tolerates
from simfleet.locking import locked

if TYPE_CHECKING:
    from simfleet.core import SimCluster

STOP_SECONDS = 1.0
"""How long a pod needs to end when it does not use its whole grace period."""
REPLACE_SECONDS = 0.5
OWNERS = {
    "Job": "jobs",
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Deployment": "deployments",
}
_KINDS = {plural: kind for kind, plural in OWNERS.items()}
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(slots=True)
class Workload:
    """Workload: the owner of pods and the template it makes them from."""

    kind: str
    namespace: str
    name: str
    uid: str
    template: Mapping[str, Any]
    """Keyword arguments of `manifests.pod`."""
    stop_seconds: float = STOP_SECONDS
    is_everywhere: bool = False
    """A DaemonSet that new nodes get a pod of."""
    pods: int = 0
    ready: int = 0


class Pods:
    def __init__(self, cluster: SimCluster, seed: int) -> None:
        self._cluster, self._store = cluster, cluster.store
        self._random = random.Random(f"pods-{seed}")
        self.budgets = Budgets(cluster.store)
        self.workloads: dict[tuple[str, str, str], Workload] = {}
        self._stop_seconds: dict[str, float] = {}
        self.scheduler = Scheduler(cluster, self.start)
        self._stale_daemons: set[tuple[str, str, str]] = set()
        cluster.store.listeners.append(self._changed)

    # ── making ────────────────────────────────────────────────────────────────────────────────────────────────────
    @locked
    def add(
        self,
        name: str,
        *,
        node: str = "",
        namespace: str = "default",
        running: bool = True,
        stop_seconds: float = STOP_SECONDS,
        **fields: Any,
    ) -> Stored:
        """One pod, running at once if `node` is given; `fields` are those of `manifests.pod`.

        `stop_seconds` beyond the grace period make it use all of it.
        """
        self._cluster.ensure_namespace(namespace)
        raw = manifests.pod(name, namespace, **{"labels": {"app": name}} | fields)
        if node:
            raw["spec"]["nodeName"] = node
        pod = self._store.create("pods", raw)
        self._stop_seconds[pod.raw["metadata"]["uid"]] = stop_seconds
        if node and running:
            self.start(pod.key)
        return self._store.get("pods", name, namespace)

    @locked
    def workload(
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "default",
        replicas: int = 1,
        nodes: Sequence[str] = (),
        stop_seconds: float = STOP_SECONDS,
        owner: tuple[str, str] | None = None,
        **template: Any,
    ) -> Workload:
        """A Job, ReplicaSet, StatefulSet or DaemonSet with its pods, on `nodes` in turn or where they fit.

        A DaemonSet with `nodes` runs there and on no other. `owner`: kind and name of what owns it, a Deployment or
        CronJob, which is made too.
        """
        self._cluster.ensure_namespace(namespace)
        labels = dict(template.pop("labels", None) or {"app": name})
        body: Raw = {
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}},
        }
        if owner:
            plural = {"Deployment": "deployments", "CronJob": "cronjobs"}[owner[0]]
            top = self._store.find(plural, owner[1], namespace) or self._store.create(
                plural, {"metadata": {"name": owner[1], "namespace": namespace}, "spec": {}}
            )
            body["metadata"]["ownerReferences"] = [
                {"kind": owner[0], "name": owner[1], "uid": top.raw["metadata"]["uid"], "controller": True}
            ]
        made = self._store.create(OWNERS[kind], body)
        if kind == "DaemonSet":
            template["tolerations"] = [*template.get("tolerations", ()), *daemons.TOLERATED]
        if kind == "Job":
            template.setdefault("restart_policy", "Never")
        work = Workload(
            kind,
            namespace,
            name,
            made.raw["metadata"]["uid"],
            template | {"labels": labels},
            stop_seconds,
            is_everywhere=kind == "DaemonSet" and not nodes,
        )
        self.workloads[kind, namespace, name] = work
        if work.is_everywhere:
            nodes = [n.key[1] for n in self._store.all("nodes")]
        for index in range(len(nodes) if kind == "DaemonSet" else replicas):
            self._spawn(work, node=nodes[index % len(nodes)] if nodes else "", ordinal=index, at_once=bool(nodes))
        self._stale_daemons.add((kind, namespace, name))
        return work

    @locked
    def spread(self, name: str, *, namespace: str, nodes: Sequence[str]) -> None:
        """A DaemonSet that `workload` made runs on these nodes, too. Raises KeyError."""
        work = self.workloads["DaemonSet", namespace, name]
        for node in nodes:
            self._spawn(work, node=node, at_once=True)

    @locked
    def budget(self, name: str, *, namespace: str = "default", labels: Mapping[str, str], **spec: Any) -> Stored:
        """A PodDisruptionBudget; `spec` holds minAvailable or maxUnavailable."""
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": dict(labels)}, **spec},
        }
        return self._store.create("poddisruptionbudgets", body)

    def _spawn(
        self, work: Workload, *, node: str = "", ordinal: int = 0, at_once: bool = False, name: str = ""
    ) -> None:
        if not name:
            name = f"{work.name}-{ordinal}" if work.kind == "StatefulSet" else self._new_name(work)
        api_version = "batch/v1" if work.kind == "Job" else "apps/v1"
        owner = {"apiVersion": api_version, "kind": work.kind, "name": work.name, "uid": work.uid}
        fields = dict(work.template)
        self.add(
            name,
            node=node,
            namespace=work.namespace,
            running=at_once,
            stop_seconds=work.stop_seconds,
            owner=owner,
            **fields,
        )
        if node and not at_once:
            self._cluster.after(START_SECONDS, lambda: self.start((work.namespace, name)))

    def _new_name(self, work: Workload) -> str:
        """Drawn again where a pod has it: of thousands of five letters, two are the same sooner or later."""
        name = ""
        while not name or self._store.find("pods", name, work.namespace):
            name = f"{work.name}-{''.join(self._random.choices(_ALPHABET, k=5))}"
        return name

    def start(self, key: tuple[str, str]) -> None:
        """The kubelet runs the pod, if pod and kubelet are still there."""
        pod = self._store.find("pods", key[1], key[0])
        if pod is None or "deletionTimestamp" in pod.raw["metadata"] or objects.is_finished(pod.raw):
            return
        machine = self._cluster.nodes.machine(pod.raw["spec"]["nodeName"])
        if machine is None or not machine.has_kubelet:
            return  # it starts all pods of the node when it comes back
        if pod.raw["spec"]["containers"][0]["image"] not in manifests.STANDING:
            self._cluster.containers.start(pod)
            return
        at = stamp(self._cluster.clock.now())
        status = (pod.raw.get("status") or {}) | {
            "phase": "Running",
            "conditions": manifests.pod_conditions(is_ready=True, at=at),
            "startTime": at,
        }
        self._store.write("pods", pod.raw | {"status": status})

    def _changed(self, plural: str, change: Change) -> None:
        if plural == "pods":
            if change.before is not None:
                self._count(change.before.raw, -1)
            if change.type != "DELETED":
                self._count(change.now.raw, 1)
        elif plural in _KINDS and (change.type == "DELETED" or is_ours(change.now.raw)):  # gone, or given a template
            self.workloads.pop((_KINDS[plural], *change.now.key), None)

    def _count(self, pod: Raw, sign: int) -> None:
        kind, name = objects.controller(pod)
        if kind == "DaemonSet" and (work := self.workloads.get((kind, pod["metadata"]["namespace"], name))):
            work.pods += sign
            work.ready += sign * is_ready(pod)
            self._stale_daemons.add((kind, work.namespace, name))

    # ── ending ────────────────────────────────────────────────────────────────────────────────────────────────────
    def evict(self, pod: Stored, *, uid: str = "", grace: int | None = None) -> None:
        """Raises ApiError 409 for another UID, 429 and 500 as budgets say."""
        _same(pod, uid)
        self.budgets.admit_eviction(pod)
        self.terminate(pod, uid=uid, grace=grace)

    def terminate(self, pod: Stored, *, uid: str = "", grace: int | None = None) -> Stored:
        """Delete as the API server does: at once if nothing runs, else after the grace period at the latest."""
        _same(pod, uid)
        metadata, spec = pod.raw["metadata"], pod.raw["spec"]
        seconds = spec.get("terminationGracePeriodSeconds", 30) if grace is None else grace
        phase = (pod.raw.get("status") or {}).get("phase")
        if seconds == 0 or not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
            return self._gone(pod.key, metadata["uid"])
        if "deletionTimestamp" not in metadata:
            until = self._cluster.clock.now() + timedelta(seconds=seconds)
            pod = self._store.write(
                "pods",
                pod.raw
                | {"metadata": metadata | {"deletionTimestamp": stamp(until), "deletionGracePeriodSeconds": seconds}},
            )
            self._replace(pod, when_gone=False)
            ends_in = min(float(seconds), self._stop_seconds.get(metadata["uid"], STOP_SECONDS))
            self._cluster.after(ends_in, lambda: self._stopped(pod.key, metadata["uid"]))
        return pod

    def _stopped(self, key: tuple[str, str], uid: str) -> None:
        """The containers ended; only a kubelet can say so, so without one the pod stays Terminating."""
        pod = self._store.find("pods", key[1], key[0])
        if pod is None or pod.raw["metadata"]["uid"] != uid:
            return
        machine = self._cluster.nodes.machine(node_of(pod.raw))
        if machine is None or machine.has_kubelet:
            self._gone(key, uid)

    def _gone(self, key: tuple[str, str], uid: str) -> Stored:
        before = self._store.get("pods", key[1], key[0])
        gone = self._store.delete("pods", key[1], key[0], uid=uid)
        self._stop_seconds.pop(uid, None)
        self._cluster.containers.forget(uid)
        self._replace(before, when_gone=True)
        return gone

    def _replace(self, pod: Stored, *, when_gone: bool) -> None:
        """Job and ReplicaSet replace a pod that is told to end; StatefulSet, DaemonSet and kubelet one that is gone."""
        kind, name = objects.controller(pod.raw)
        namespace, pod_name = pod.key
        if objects.is_mirror(pod.raw) and when_gone:
            self._cluster.after(REPLACE_SECONDS, lambda: self._mirror_again(pod.raw))
            return
        work = self.workloads.get((kind, namespace, name))
        told_before = "deletionTimestamp" in pod.raw["metadata"]
        if work is None or (kind in ("Job", "ReplicaSet") and when_gone and told_before):
            return
        if when_gone and objects.is_finished(pod.raw):
            return  # replaced when it failed
        if kind in ("StatefulSet", "DaemonSet") and not when_gone:
            return
        home = node_of(pod.raw) if kind == "DaemonSet" else ""
        again = pod_name if kind == "StatefulSet" else ""
        self._cluster.after(REPLACE_SECONDS, lambda: self._respawn(work, home, again))

    def _respawn(self, work: Workload, home: str, name: str) -> None:
        if work.kind == "DaemonSet":
            node = self._store.find("nodes", home)
            if node is None or not tolerates(work.template.get("tolerations") or (), node.raw):
                return
        if name and self._store.find("pods", name, work.namespace):
            return
        self._spawn(work, node=home, name=name)

    def _mirror_again(self, raw: Raw) -> None:
        name, namespace = raw["metadata"]["name"], raw["metadata"]["namespace"]
        if self._store.find("nodes", node_of(raw)) and not self._store.find("pods", name, namespace):
            kept = {k: raw["metadata"][k] for k in ("name", "namespace", "labels", "annotations")}
            self._store.create("pods", {"metadata": kept, "spec": raw["spec"], "status": {"phase": "Pending"}})
            self.start((namespace, name))

    # ── what happens to a node happens to its pods ────────────────────────────────────────────────────────────────
    def node_down(self, node: str, *, graceful: bool) -> None:
        """Mark a node's pods not ready; after an orderly shutdown, pods that never restart have failed."""
        at = stamp(self._cluster.clock.now())
        for pod in self._store.on_node(node):
            if objects.is_finished(pod.raw):
                continue
            status: Raw = pod.raw["status"] | {"conditions": manifests.pod_conditions(is_ready=False, at=at)}
            if graceful and pod.raw["spec"].get("restartPolicy") == "Never":
                status |= {
                    "phase": "Failed",
                    "reason": "Terminated",
                    "message": "Terminated: the node shuts down.",
                }
            self._store.write("pods", pod.raw | {"status": status})
            if status["phase"] == "Failed":
                self._replace(pod, when_gone=False)

    def node_back(self, node: str) -> None:
        for pod in self._store.on_node(node):
            if "deletionTimestamp" in pod.raw["metadata"]:
                self._gone(pod.key, pod.raw["metadata"]["uid"])
            else:
                self.start(pod.key)

    def node_gone(self, node: str) -> None:
        """The pod garbage collector: pods of a Node that is not there end without a kubelet."""
        for pod in self._store.on_node(node):
            self._gone(pod.key, pod.raw["metadata"]["uid"])

    def node_lost(self, node: str) -> None:
        """The taint manager, five minutes after a node was last heard of."""
        for pod in self._store.on_node(node):
            if not objects.stays(pod.raw):
                self.terminate(pod)

    def join(self, node: str) -> None:
        """A new Node gets a pod of every DaemonSet that runs everywhere."""
        for work in list(self.workloads.values()):
            if work.is_everywhere:
                self._spawn(work, node=node, at_once=True)

    def settle(self) -> None:
        """Bring the status of budgets and DaemonSets up to date."""
        self.budgets.settle()
        while self._stale_daemons:
            work = self.workloads.get(self._stale_daemons.pop())
            if work is not None and work.kind == "DaemonSet":
                daemonset = self._store.get("daemonsets", work.name, work.namespace)
                status = {
                    "desiredNumberScheduled": work.pods,
                    "currentNumberScheduled": work.pods,
                    "numberReady": work.ready,
                    "observedGeneration": daemonset.raw["metadata"]["generation"],
                }
                self._store.write("daemonsets", daemonset.raw | {"status": status})


def _same(pod: Stored, uid: str) -> None:
    have = pod.raw["metadata"]["uid"]
    if uid and uid != have:
        raise ApiError(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on pods "{pod.raw["metadata"]["name"]}": Precondition failed: UID in '
            f"precondition: {uid}, UID in object meta: {have}",
        )
