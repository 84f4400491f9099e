"""Effects of running programs on their cluster: taints, allocatable resources, custom resources that they reconcile.

Each program's effects are data, in `programs.Program`; here they apply when a pod of it becomes ready, and are undone
where a real one would: a device plugin that goes leaves its resource at 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from simfleet.apiserver.store import Change, Key, Raw, Stored
from simfleet.controllers.budgets import is_ready
from simfleet.controllers.containers import containers_of
from simfleet.controllers.placing import node_of
from simfleet.controllers.programs import Program, Serves

if TYPE_CHECKING:
    from simfleet.core import SimCluster

LOOK_SECONDS = 0.5
MAKE_AGAIN_SECONDS = 1.0
_HOLE = re.compile(r"\{([A-Za-z][A-Za-z0-9.]*)\}")
_WORKLOADS = ("daemonsets", "deployments", "statefulsets")


class Operators:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster, self._store = cluster, cluster.store
        self._ready: dict[Key, tuple[Program, ...]] = {}
        """Pods that are ready and do something to the cluster."""
        self._is_due = False
        cluster.store.listeners.append(self._changed)

    def _changed(self, plural: str, change: Change) -> None:
        if plural == "pods":
            self._pod_changed(change)
        elif self._ready and (self._store.resources[plural].custom or plural in _WORKLOADS):
            self._wake()

    def _pod_changed(self, change: Change) -> None:
        key = change.now.key
        is_up = change.type != "DELETED" and is_ready(change.now.raw)
        if is_up and key not in self._ready:
            programs = [self._cluster.programs.of(c["image"]) for c in containers_of(change.now.raw)]
            if active := tuple(p for p in programs if p.clears_taint or p.offers or p.serves or p.makes):
                self._ready[key] = active
                self._cluster.after(0.0, partial(self._came_up, change.now, active))
        elif not is_up and key in self._ready:
            gone = self._ready.pop(key)
            self._cluster.after(0.0, partial(self._went_down, node_of(change.now.raw), gone))

    def again(self, pod: Stored) -> None:
        """The node's kubelet forgot what was offered through it."""
        if pod.key in self._ready:
            self._cluster.after(0.0, partial(self._came_up, pod, self._ready[pod.key]))

    def _came_up(self, pod: Stored, programs: tuple[Program, ...]) -> None:
        for program in programs:
            self._clear(node_of(pod.raw), program.clears_taint)
            self._offer(node_of(pod.raw), program.offers)
            self._make(pod, program)
        self._wake()

    def _went_down(self, node: str, programs: tuple[Program, ...]) -> None:
        here = [p for key, programs_of_pod in self._ready.items() if self._is_on(key, node) for p in programs_of_pod]
        for program in programs:
            still = {name for other in here for name in other.offers}
            self._offer(node, {name: "0" for name in program.offers if name not in still})

    def _is_on(self, key: Key, node: str) -> bool:
        pod = self._store.find("pods", key[1], key[0])
        return pod is not None and node_of(pod.raw) == node

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def _clear(self, name: str, taint: str) -> None:
        node = self._store.find("nodes", name)
        if node is None or not taint:
            return
        spec = {k: v for k, v in node.raw["spec"].items() if k != "taints"}
        kept = [t for t in node.raw["spec"].get("taints") or () if t["key"] != taint]
        self._store.write("nodes", node.raw | {"spec": spec | ({"taints": kept} if kept else {})})

    def _offer(self, name: str, resources: Mapping[str, str]) -> None:
        node, machine = self._store.find("nodes", name), self._cluster.nodes.machine(name)
        if node is None or machine is None or not resources:
            return
        counted = {k: str(machine.hardware.gpus) if v == "gpus" else v for k, v in resources.items()}
        status = node.raw["status"]
        new = {field: status[field] | counted for field in ("capacity", "allocatable")}
        self._store.write("nodes", node.raw | {"status": status | new})

    # ── custom resources ──────────────────────────────────────────────────────────────────────────────────────────
    def _make(self, pod: Stored, program: Program) -> None:
        """Objects of its own, once; their kind may be defined only a moment later."""
        if pod.key not in self._ready:
            return
        for raw in program.makes:
            plural = self._cluster.kind_key(raw["apiVersion"], raw["kind"])
            if not plural:
                self._cluster.after(MAKE_AGAIN_SECONDS, partial(self._make, pod, program))
                return
            metadata = raw["metadata"]
            if self._store.find(plural, metadata["name"], metadata.get("namespace", "")) is None:
                self._store.create(plural, raw)

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._cluster.after(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._is_due = False
        served = {
            (s.api_version, s.kind, key[0]): s
            for key, programs_of_pod in self._ready.items()
            for p in programs_of_pod
            for s in p.serves
        }
        for (_, _, namespace), serves in sorted(served.items(), key=lambda item: item[0]):
            plural = self._cluster.kind_key(serves.api_version, serves.kind)
            for resource in self._store.all(plural) if plural else ():
                if "deletionTimestamp" not in resource.raw["metadata"]:
                    self._serve(serves, plural, resource, namespace)

    def _serve(self, serves: Serves, plural: str, resource: Stored, namespace: str) -> None:
        are_ready = [self._operand(serves, resource, operand, namespace) for operand in serves.operands]
        value = serves.ready if all(are_ready) else serves.waiting
        status = dict(resource.raw.get("status") or {})
        if value is None:
            status.pop(serves.path, None)
        else:
            status[serves.path] = value
        if status != (resource.raw.get("status") or {}):
            self._store.write(plural, resource.raw | {"status": status})

    def _operand(self, serves: Serves, resource: Stored, template: Mapping[str, Any], namespace: str) -> bool:
        """Make one or bring it up to date; whether it is ready."""
        raw = _filled(template, resource.raw.get("spec") or {})
        metadata = raw["metadata"] | {"namespace": namespace}
        owner: Raw = {"apiVersion": serves.api_version, "kind": serves.kind, "name": resource.key[1]}
        owner |= {"uid": resource.raw["metadata"]["uid"], "controller": True}
        plural = self._cluster.kind_key(raw["apiVersion"], raw["kind"])
        operand = self._store.find(plural, metadata["name"], namespace)
        if operand is None:
            self._store.create(plural, raw | {"metadata": metadata | {"ownerReferences": [owner]}})
            return False
        if operand.raw["spec"] != raw["spec"]:
            operand = self._store.write(plural, operand.raw | {"spec": raw["spec"]})
        return is_rolled_out(operand.raw)


def is_rolled_out(raw: Mapping[str, Any]) -> bool:
    """Return whether a DaemonSet, Deployment or StatefulSet has all its pods, in their newest revision, and ready."""
    status = raw.get("status") or {}
    if status.get("observedGeneration") != raw["metadata"].get("generation"):
        return False
    wanted = status.get("desiredNumberScheduled", raw["spec"].get("replicas", 1))
    updated = status.get("updatedNumberScheduled", status.get("updatedReplicas", 0))
    ready = status.get("numberReady", status.get("readyReplicas", 0))
    return bool(updated >= wanted and ready >= wanted)


def _filled(template: Any, spec: Mapping[str, Any]) -> Any:
    if isinstance(template, Mapping):
        return {k: _filled(v, spec) for k, v in template.items()}
    if isinstance(template, list | tuple):
        return [_filled(v, spec) for v in template]
    return _HOLE.sub(lambda hole: _at(spec, hole[1]), template) if isinstance(template, str) else template


def _at(spec: Mapping[str, Any], path: str) -> str:
    value: Any = spec
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
