"""Node objects and what controllers do to them: joining, readiness, condition taints, loss, and the witness of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from clusters import objects
from contract import names
from simfleet import manifests
from simfleet.apiserver.callers import person
from simfleet.apiserver.store import Change, Raw, Stored
from simfleet.clock import stamp
from simfleet.locking import locked
from simfleet.machines.hardware import CPU_SERVER, Hardware
from simfleet.machines.machine import Machine

if TYPE_CHECKING:
    from simfleet.core import SimCluster

TAINT_SECONDS = 0.1
"""Until the node lifecycle controller has put a condition into a taint."""
LOST_SECONDS = 300.0
"""Until pods of a node that is not heard of are deleted: the default tolerationSeconds."""
_CONDITION_TAINTS = {
    "unschedulable": ("node.kubernetes.io/unschedulable", ("NoSchedule",)),
    "False": ("node.kubernetes.io/not-ready", ("NoSchedule", "NoExecute")),
    "Unknown": ("node.kubernetes.io/unreachable", ("NoSchedule", "NoExecute")),
}


@dataclass(frozen=True, slots=True)
class UnavailableNodes:
    """Set of nodes that were cordoned, not Ready or both, from `at` until the next record."""

    at: datetime
    nodes: frozenset[str]


class Nodes:
    def __init__(self, cluster: SimCluster, seed: int) -> None:
        self._cluster, self._store, self._seed = cluster, cluster.store, seed
        self._machines: dict[str, Machine] = {}
        self._made = 0
        self._unavailable: frozenset[str] = frozenset()
        self.witness: list[UnavailableNodes] = []
        """How many nodes were out at once, at every moment: what law 1 is judged by."""
        cluster.store.listeners.append(self._changed)

    def machine(self, node: str) -> Machine | None:
        """None when no such node ever was, or its machine was taken away."""
        return self._machines.get(node)

    # ── coming and going ──────────────────────────────────────────────────────────────────────────────────────────
    @locked
    def add(
        self,
        name: str,
        *,
        gpus: int = 0,
        hardware: Hardware | None = None,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        control_plane: bool = False,
        pad: int = 0,
        agent: str = "normal",
    ) -> Stored:
        """A new machine that joined and is Ready. `pad`: bytes to blow its object up by; `agent`: an `AgentMode`."""
        hardware = hardware or (Hardware(gpus=gpus) if gpus else CPU_SERVER)
        labels = dict(labels or {})
        if control_plane:
            labels["node-role.kubernetes.io/control-plane"] = ""
            taints = [*taints, {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
        self._made += 1
        machine = Machine(self._cluster, name, hardware, f"{self._seed}-{name}-{self._made}")
        self._machines[name] = machine
        raw = manifests.node(name, hardware, labels=labels, taints=taints)
        raw["status"] = self._status(machine, pad)
        stored = self._store.create("nodes", raw)
        self._cluster.pods.join(name)
        self._cluster.agents.install(name, agent)
        return stored

    def _status(self, machine: Machine, pad: int) -> Raw:
        at = stamp(self._cluster.clock.now())
        number = self._made
        return manifests.node_status(
            machine.hardware,
            name=machine.node,
            address=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            boot_id=machine.kernel.boot_id,
            huge_pages=machine.seen_huge_pages,
            pad=pad,
        ) | {"conditions": manifests.conditions("True", manifests.READY["reason"], manifests.READY["message"], at)}

    @locked
    def delete(self, name: str) -> None:
        """kubectl delete node: the object goes, with its pods, NodeTuning and agent; the machine is taken away."""
        self._cluster.agents.remove(name)
        self._store.delete("nodes", name)
        machine = self._machines.pop(name)
        machine.power_off()
        self._cluster.pods.node_gone(name)
        self._cluster.after(1.0, lambda: self._collect(name))

    def _collect(self, name: str) -> None:
        """The garbage collector: a NodeTuning whose owner's UID is gone goes too."""
        tuning = self._store.find("nodetunings", name)
        node = self._store.find("nodes", name)
        if tuning is None:
            return
        owners = {o["uid"] for o in tuning.raw["metadata"].get("ownerReferences") or ()}
        if owners and (node is None or node.raw["metadata"]["uid"] not in owners):
            self._store.delete("nodetunings", name)

    @locked
    def replace(self, name: str, **changes: Any) -> Stored:
        """Another machine joins under the name: new UID, new boot id, fresh kernel and disk."""
        old = self._store.get("nodes", name).raw
        hardware = self._machines[name].hardware
        self.delete(name)
        fields: dict[str, Any] = {"hardware": hardware, "labels": old["metadata"]["labels"]}
        return self.add(name, **fields | changes)

    # ── readiness ─────────────────────────────────────────────────────────────────────────────────────────────────
    @locked
    def set_ready(self, name: str, *, is_ready: bool, reason: str = "", agent: bool = True) -> None:
        """The kubelet falls silent, or is back. `agent=False`: the whole machine is dead meanwhile."""
        machine = self._machines[name]
        if is_ready:
            machine.has_kubelet = True
            machine.power_on()
            self.kubelet_started(name)
            return
        machine.has_kubelet = False
        if not agent:
            machine.power_off()
        message = "Kubelet stopped posting node status."
        self._set_condition(name, "Unknown", reason or "NodeStatusUnknown", message)
        self._cluster.pods.node_down(name, graceful=False)
        since = self._cluster.clock.now()
        self._cluster.after(LOST_SECONDS, lambda: self._lost(name, since))

    def _lost(self, name: str, since: datetime) -> None:
        node = self._store.find("nodes", name)
        if node is not None and objects.condition(node.raw, "Ready") == "Unknown":
            ready = next(c for c in node.raw["status"]["conditions"] if c["type"] == "Ready")
            if ready["lastTransitionTime"] <= stamp(since):
                self._cluster.pods.node_lost(name)

    def went_down(self, name: str) -> None:
        """The machine shuts down in order: the kubelet says so before it stops."""
        if self._store.find("nodes", name):
            self._set_condition(name, "False", "KubeletNotReady", "node is shutting down")
            self._cluster.pods.node_down(name, graceful=True)

    def kubelet_started(self, name: str) -> None:
        """The kubelet posts what it found: boot id, huge pages and with them memory, and that it is Ready."""
        node, machine = self._store.find("nodes", name), self._machines.get(name)
        if node is None or machine is None:
            return
        pages = manifests.node_status(
            machine.hardware,
            name=name,
            address=node.raw["status"]["addresses"][0]["address"],
            boot_id=machine.kernel.boot_id,
            huge_pages=machine.seen_huge_pages,
        )
        kept = {k: pages[k] for k in ("capacity", "allocatable", "nodeInfo")}
        for counted in (kept["capacity"], kept["allocatable"]):
            counted["pods"] = machine.kubelet_config.get("maxPods", counted["pods"])
        self._store.write("nodes", node.raw | {"status": node.raw["status"] | kept})
        self._set_condition(name, "True", manifests.READY["reason"], manifests.READY["message"])
        self._cluster.pods.node_back(name)

    def _set_condition(self, name: str, status: str, reason: str, message: str) -> None:
        node = self._store.get("nodes", name).raw
        if objects.condition(node, "Ready") == status:
            return
        at = stamp(self._cluster.clock.now())
        conditions = manifests.conditions(status, reason, message, at)
        self._store.write("nodes", node | {"status": node["status"] | {"conditions": conditions}})

    # ── people ────────────────────────────────────────────────────────────────────────────────────────────────────
    def cordon(self, name: str, *, by: str = "alice@example.org", is_cordoned: bool = True) -> None:
        """kubectl cordon or uncordon by a person."""
        patch = {"spec": {"unschedulable": True if is_cordoned else None}}
        self._cluster.api.patch(person(by), "nodes", name, patch)

    def relabel(self, name: str, labels: Mapping[str, str | None], *, by: str = "alice@example.org") -> None:
        """kubectl label by a person; None takes a label away."""
        self._cluster.api.patch(person(by), "nodes", name, {"metadata": {"labels": dict(labels)}})

    def upgrade_driver(self, name: str, state: str, *, operator: str = "gpu") -> None:
        """Label the node with the state of its driver's upgrade, as the GPU Operator's upgrade controller does."""
        patch = {"metadata": {"labels": {f"nvidia.com/{operator}-driver-upgrade-state": state}}}
        self._cluster.api.patch(person("gpu-operator"), "nodes", name, patch)

    def keep_cordoned(self, name: str, *, by: str = "alice@example.org") -> None:
        patch = {"metadata": {"annotations": {names.KEEP_CORDONED: "true"}}}
        self._cluster.api.patch(person(by), "nodes", name, patch)

    @locked
    def reboot(self, name: str) -> None:
        """Reboot the machine, as its administrator would."""
        self._machines[name].reboot()

    # ── controllers ───────────────────────────────────────────────────────────────────────────────────────────────
    def _changed(self, plural: str, change: Change) -> None:
        if plural != "nodes":
            return
        name, raw = change.now.raw["metadata"]["name"], change.now.raw
        is_out = change.type != "DELETED" and (objects.is_cordoned(raw) or not objects.is_ready(raw))
        if is_out != (name in self._unavailable):
            self._unavailable = self._unavailable | {name} if is_out else self._unavailable - {name}
            self.witness.append(UnavailableNodes(self._cluster.clock.now(), self._unavailable))
        if change.type != "DELETED" and _wanted_taints(raw) != (raw["spec"].get("taints") or []):
            self._cluster.after(TAINT_SECONDS, lambda: self._taint(name))

    def _taint(self, name: str) -> None:
        """Set the conditions' own taints; those that others put there are kept, in their order."""
        node = self._store.find("nodes", name)
        if node is not None:
            taints = _wanted_taints(node.raw)
            spec = {k: v for k, v in node.raw["spec"].items() if k != "taints"}
            self._store.write("nodes", node.raw | {"spec": spec | ({"taints": taints} if taints else {})})

    def peak_unavailable(self) -> int:
        """The most nodes that were ever out at once."""
        return max((len(u.nodes) for u in self.witness), default=0)


def _wanted_taints(node: Mapping[str, Any]) -> list[Raw]:
    wanted = []
    if objects.is_cordoned(node):
        wanted.append(_CONDITION_TAINTS["unschedulable"])
    if (ready := objects.condition(node, "Ready")) in _CONDITION_TAINTS:
        wanted.append(_CONDITION_TAINTS[ready])
    ours = {key for key, _ in _CONDITION_TAINTS.values()}
    have = list(node["spec"].get("taints") or [])
    pairs = [(key, effect) for key, effects in wanted for effect in effects]
    kept = [t for t in have if t["key"] not in ours or (t["key"], t["effect"]) in pairs]
    present = {(t["key"], t["effect"]) for t in kept}
    return kept + [{"key": k, "effect": e} for k, e in pairs if (k, e) not in present]
