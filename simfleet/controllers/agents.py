"""The agents of a simulated cluster: the real reconciler on each virtual machine, woken by events instead of polling.

An agent looks when its object's spec changed, when something changed on its machine, and after a boot. So a
quiet fleet of thousands costs nothing but its Leases.
"""

from __future__ import annotations

import enum
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.journal import Journal
from agent.reconcile import Reconciler
from agent.restarts import Confirmed
from contract import names
from contract.nodetuning import Malformed, Mode, SettingReport, SettingStatus, Spec, Status
from simfleet.apiserver.callers import agent as caller
from simfleet.apiserver.faults import Outage
from simfleet.apiserver.store import ApiError, Change
from simfleet.clock import micro_stamp
from simfleet.locking import locked
from simfleet.machines.machine import DiskJournal, VirtualHost

if TYPE_CHECKING:
    from simfleet.core import SimCluster

LEASE_SECONDS = 60.0
VERSION = f"{names.RELEASE}-sim"
START_SECONDS = 3.0
"""From the kubelet's start to the agent's."""
REPORT_SECONDS = 1.0
"""Changes on the machine are noticed and reported this much later, together."""


class AgentMode(enum.StrEnum):
    NORMAL = "normal"
    MISSING = "missing"
    """Never installed: no status, no Lease."""
    OLD = "old"
    """Speaks a protocol that is too old to be understood."""
    HANGING = "hanging"
    """Its Lease is renewed, but it does nothing more."""
    DEAD = "dead"
    """It stopped: nothing happens, and the Lease runs out."""
    LYING = "lying"
    """Reports every setting Effective and writes nothing."""
    GARBAGE = "garbage"
    """Reports what no schema allows."""
    OVERSIZED = "oversized"
    """Reports far more than the contract's bounds."""
    SLOW = "slow"
    """Needs `slow_seconds` for what others do at once."""


class SimAgent:
    """One agent process. A restart makes another one over the same machine and journal."""

    def __init__(self, cluster: SimCluster, node: str, mode: AgentMode) -> None:
        self._cluster, self.node, self.mode = cluster, node, mode
        self.slow_seconds = 60.0
        self.is_running = True
        self._reported: dict[str, Any] | None = None
        self._generation = -1
        self._is_busy = False
        self._is_due = False
        machine = cluster.nodes.machine(node)
        assert machine is not None
        self.machine = machine
        self.uid = str(cluster.store.get("nodes", node).raw["metadata"]["uid"])
        self._core = Reconciler(
            VirtualHost(machine),
            Journal(DiskJournal(machine)),
            lambda: cluster.clock.now().timestamp(),
            node_uid=self.uid,
            agent_version=VERSION,
        )
        machine.kernel.watchers.append(self._kernel_changed)

    def stop(self) -> None:
        self.is_running = False
        if self._kernel_changed in self.machine.kernel.watchers:
            self.machine.kernel.watchers.remove(self._kernel_changed)

    @property
    def is_alive(self) -> bool:
        return self.is_running and self.machine.is_up and self.mode not in (AgentMode.MISSING, AgentMode.DEAD)

    def wake(self, seconds: float) -> None:
        """Look at object and machine in `seconds`; further wakes until then are this one."""
        if not self._is_due and self.is_alive and self.mode is not AgentMode.HANGING:
            self._is_due = True
            self._cluster.after(seconds + (self.slow_seconds if self.mode is AgentMode.SLOW else 0.0), self._look)

    def _kernel_changed(self, path: str) -> None:
        if not self._is_busy:
            self.wake(REPORT_SECONDS)

    def _look(self) -> None:
        self._is_due = False
        if not self.is_alive or self.mode is AgentMode.HANGING:
            return
        tuning = self._cluster.store.find("nodetunings", self.node)
        if tuning is None:
            self._generation = -1
            self._core.forget()
            return
        self._is_busy = True
        try:
            self._work(tuning.raw)
        finally:
            self._is_busy = False

    def _work(self, raw: dict[str, Any]) -> None:
        generation = raw["metadata"]["generation"]
        try:
            spec = Spec.from_json(raw["spec"])
        except Malformed as error:
            self._publish(self._core.refuse("BadSpec", str(error), generation).to_json())
            return
        if self.mode in (AgentMode.LYING, AgentMode.GARBAGE, AgentMode.OVERSIZED):
            self._publish(_lie(self.mode, spec, generation, self))
            return
        status = self._core.verify() if generation == self._generation else self._core.reconcile(spec, generation)
        self._generation = generation
        if not self._publish(status.to_json()):
            return
        after = self._core.restart(self._confirm, self._announce)
        if after is not None and self.is_alive:
            self._publish(after.to_json())

    def _confirm(self) -> Confirmed | None:
        tuning = self._cluster.store.find("nodetunings", self.node)
        date = float(int(self._cluster.clock.now().timestamp()))  # as a Date has it, to the second
        return Confirmed(Spec.from_json(tuning.raw["spec"]), date) if tuning else None

    def _announce(self, status: Status) -> None:
        self._publish(status.to_json())

    def _publish(self, status: dict[str, Any]) -> bool:
        """Write the status if it says anything new. False: the API server did not take it, the agent tries again."""
        if self.mode is AgentMode.OLD:
            status["protocol"] = max(0, names.PROTOCOL - names.MAX_SKEW - 1)
        if status == self._reported:
            return True
        try:
            self._cluster.api.patch(
                caller(self.node), "nodetunings", self.node, {"status": status}, subresource="status"
            )
        except (ApiError, Outage):
            self._reported = None
            self.wake(5.0)
            return False
        self._reported = status
        return True


class Agents:
    """All agents of a cluster, their DaemonSet's view of them, and their Leases."""

    def __init__(self, cluster: SimCluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(f"agents-{seed}")
        self._agents: dict[str, SimAgent] = {}
        self.latency = 0.2
        """Seconds from a changed spec to the agent's work."""
        cluster.store.listeners.append(self._changed)

    def __getitem__(self, node: str) -> SimAgent:
        return self._agents[node]

    def install(self, node: str, mode: str = AgentMode.NORMAL) -> None:
        agent = self._agents[node] = SimAgent(self._cluster, node, AgentMode(mode))
        machine = agent.machine
        machine.on_boot.append(lambda: self._cluster.after(START_SECONDS, lambda: self._started(machine, node)))
        if agent.is_alive:
            self._cluster.after(self._random.uniform(0.0, LEASE_SECONDS), lambda: self._renew(agent))
            self._renew_now(agent)
            agent.wake(self.latency)

    def _started(self, machine: object, node: str) -> None:
        agent = self._agents.get(node)
        if agent is not None and agent.machine is machine:
            self.restart(node)

    @locked
    def restart(self, node: str, mode: str | None = None) -> SimAgent:
        """Another process over the same machine, as after a kill, an upgrade or a boot."""
        old = self._agents[node]
        old.stop()
        agent = self._agents[node] = SimAgent(self._cluster, node, AgentMode(mode or old.mode))
        agent.slow_seconds = old.slow_seconds
        self._cluster.after(LEASE_SECONDS, lambda: self._renew(agent))
        self._renew_now(agent)
        agent.wake(self.latency)
        return agent

    def kill(self, node: str) -> None:
        self.restart(node, AgentMode.DEAD)

    def remove(self, node: str) -> None:
        agent = self._agents.pop(node, None)
        if agent is not None:
            agent.stop()

    def _changed(self, plural: str, change: Change) -> None:
        if plural != "nodetunings" or (agent := self._agents.get(change.now.raw["metadata"]["name"])) is None:
            return
        before = change.before.raw["metadata"]["generation"] if change.before else -1
        if change.type == "DELETED" or before != change.now.raw["metadata"]["generation"]:
            agent.wake(self.latency)

    def _renew(self, agent: SimAgent) -> None:
        if not agent.is_running or agent.mode in (AgentMode.MISSING, AgentMode.DEAD):
            return
        self._cluster.after(LEASE_SECONDS, lambda: self._renew(agent))
        self._renew_now(agent)

    def _renew_now(self, agent: SimAgent) -> None:
        """Written past the audit log, which would hold little else."""
        if not agent.is_alive:
            return
        store, name = self._cluster.store, names.lease_name(agent.node)
        spec = {
            "holderIdentity": agent.uid,
            "leaseDurationSeconds": 180,
            "renewTime": micro_stamp(self._cluster.clock.now()),
        }
        lease = store.find("leases", name, names.NAMESPACE)
        if lease is None:
            store.create("leases", {"metadata": {"name": name, "namespace": names.NAMESPACE}, "spec": spec})
        else:
            store.write("leases", lease.raw | {"spec": spec})


def _lie(mode: AgentMode, spec: Spec, generation: int, agent: SimAgent) -> dict[str, Any]:
    settings = tuple(
        SettingReport(w.key, SettingStatus.EFFECTIVE, written=w.value, effective=w.value, original=w.expect)
        for w in spec.settings
    )
    status = Status(
        observed_generation=generation,
        node_uid=agent.uid,
        protocol=names.PROTOCOL,
        agent_version=VERSION,
        boot_id=agent.machine.kernel.boot_id,
        kernel=agent.machine.hardware.release,
        step=spec.step,
        attempt=spec.attempt,
        revision=spec.revision,
        settings=settings if spec.mode != Mode.OBSERVE else (),
        observed={w.key: w.value for w in spec.settings},
    )
    if mode is AgentMode.OVERSIZED:
        status = replace(status, observed={f"vm.key{n}": "x" * 4096 for n in range(5000)})
    raw = status.to_json()
    if mode is AgentMode.GARBAGE:
        raw |= {"observedGeneration": "many", "settings": [17, {"key": None}], "observed": [1, 2], "conditions": "fine"}
    return raw
