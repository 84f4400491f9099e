"""One simulated cluster: an API server's objects, the controllers around them, machines, agents, and time.

Everything that happens by itself is an event in one queue, ordered by time and then by when it was asked for, so the
same seed and the same calls give the same history. `tick` plays the queue; nothing moves between ticks.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from contract import names
from simfleet.apiserver import admission
from simfleet.apiserver.api import Api
from simfleet.apiserver.audit import AuditLog
from simfleet.apiserver.definitions import Definitions
from simfleet.apiserver.faults import Faults
from simfleet.apiserver.proxies import Proxies
from simfleet.apiserver.store import Change, Store, Stored
from simfleet.clock import Clock, SimClock, stamp
from simfleet.controllers import check_programs
from simfleet.controllers.agents import Agents
from simfleet.controllers.containers import Containers
from simfleet.controllers.exporters import Exporters
from simfleet.controllers.garbage import Garbage
from simfleet.controllers.gpus import Gpus
from simfleet.controllers.monitoring import Monitoring
from simfleet.controllers.nodes import Nodes
from simfleet.controllers.operators import Operators
from simfleet.controllers.partitioning import MigManager
from simfleet.controllers.pods import Pods
from simfleet.controllers.programs import FAULTS, Programs
from simfleet.controllers.software import KNOWN
from simfleet.controllers.switches import Switches
from simfleet.controllers.tainting import TaintManager
from simfleet.controllers.workloads import Workloads
from simfleet.machines.kernel import VirtualKernel


class SimCluster:
    """`live=True`: watches wait for what comes, for use with a ticking thread; else they end when all is told."""

    def __init__(
        self,
        seed: int = 1,
        clock: Clock | None = None,
        *,
        name: str = "sim",
        version: str = "v1.35.4",
        live: bool = False,
        equipped: bool = True,
    ) -> None:
        self.name, self.version, self.live, self.seed = name, version, live, seed
        self.clock: Clock = clock or SimClock()
        self.lock = threading.RLock()
        self.news = threading.Condition(self.lock)
        """Notified after every change of an object."""
        self._uids = random.Random(f"uids-{seed}-{name}")
        self._queue: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.faults = Faults(seed)
        self.audit = AuditLog()
        self.store = Store(stamp=lambda: stamp(self.clock.now()), new_uid=self._new_uid)
        self.api = Api(self)
        self.proxies = Proxies(self)
        self.programs = Programs((*FAULTS, *KNOWN, *check_programs.PROGRAMS))
        self.garbage = Garbage(self)
        self.definitions = Definitions(self)
        self.containers = Containers(self)
        self.pods = Pods(self, seed)
        self.workloads = Workloads(self, seed)
        self.operators = Operators(self)
        self.nodes = Nodes(self, seed)
        self.taints = TaintManager(self)
        self.agents = Agents(self, seed)
        self.gpus = Gpus(self, seed)
        self.exporters = Exporters(self)
        self.monitoring = Monitoring(self)
        self.switches = Switches(self)
        self.mig = MigManager(self)
        self.store.listeners.append(self._changed)
        with self.lock:
            for namespace in ("kube-system", "default", names.NAMESPACE, names.CHECKS_NAMESPACE):
                self.ensure_namespace(namespace)
            if equipped:
                self.equip()

    def _new_uid(self) -> str:
        return str(uuid.UUID(int=self._uids.getrandbits(128), version=4))

    @property
    def uid(self) -> str:
        return str(self.store.get("namespaces", "kube-system").raw["metadata"]["uid"])

    def ensure_namespace(self, name: str) -> None:
        """Create a missing namespace for objects that the simulation makes itself; clients are refused without one."""
        if self.store.find("namespaces", name) is None:
            self.store.create("namespaces", admission.namespace_of({"metadata": {"name": name}}))

    def kind_key(self, api_version: str, kind: str) -> str:
        """Return the key under which a kind is served, "" if it is not."""
        group, _, version = api_version.rpartition("/")
        for key, resource in self.store.resources.items():
            if (resource.group, resource.kind) == (group, kind) and version in resource.served:
                return key
        return ""

    def equip(self) -> None:
        """Install what deploy/ holds: CRD, both admission policies, the agents' DaemonSet."""
        crd: dict[str, Any] = {"metadata": {"name": f"{names.PLURAL}.{names.GROUP}"}, "spec": {"group": names.GROUP}}
        crd["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        self.store.create("customresourcedefinitions", crd)
        for policy in (names.AGENT_POLICY, names.SPEC_POLICY):
            self.store.create("validatingadmissionpolicies", {"metadata": {"name": policy}, "spec": {}})
            binding = {"metadata": {"name": policy}, "spec": {"policyName": policy, "validationActions": ["Deny"]}}
            self.store.create("validatingadmissionpolicybindings", binding)
        own: dict[str, Any] = {"labels": names.AGENT_LABELS, "tolerations": [{"operator": "Exists"}]}
        self.pods.workload("DaemonSet", names.AGENT_DAEMONSET, namespace=names.NAMESPACE, **own)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────
    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something `seconds` from now, when time gets there."""
        at = self.clock.now() + timedelta(seconds=seconds)
        heapq.heappush(self._queue, (at, next(self._order), action))

    def tick(self, seconds: float = 0.0) -> None:
        """Let `seconds` pass, and do all that falls due, in order. With a wall clock: do what has fallen due."""
        until = self.clock.now() + timedelta(seconds=seconds)
        while self._play_one(until):
            if self.live:
                time.sleep(0)  # callers wait for the lock, and a burst of thousands of events must not starve them
        with self.lock:
            self.clock.advance(max(0.0, (until - self.clock.now()).total_seconds()))
            self.settle()

    def _play_one(self, until: datetime) -> bool:
        """The next event, if it is due by then."""
        with self.lock:
            if not self._queue or self._queue[0][0] > until:
                return False
            at, _, action = heapq.heappop(self._queue)
            self.clock.advance(max(0.0, (at - self.clock.now()).total_seconds()))
            action()
            return True

    def run_until(self, is_so: Callable[[], bool], *, seconds: float, step: float = 1.0) -> bool:
        """Tick until a condition holds; False if it did not within `seconds`."""
        until = self.clock.now() + timedelta(seconds=seconds)
        while not is_so():
            if self.clock.now() >= until:
                return False
            self.tick(step)
        return True

    def next_event_in(self) -> float | None:
        """Seconds to the next event, None if nothing is to come."""
        with self.lock:
            if not self._queue:
                return None
            return max(0.0, (self._queue[0][0] - self.clock.now()).total_seconds())

    def settle(self) -> None:
        """Let lazy controllers catch up."""
        self.pods.settle()

    def _changed(self, plural: str, change: Change) -> None:
        with self.lock:
            self.news.notify_all()

    # ── what tests and the demo do to it ──────────────────────────────────────────────────────────────────────────
    def add_node(self, name: str, **fields: Any) -> Stored:
        """See `nodes.Nodes.add`."""
        with self.lock:
            return self.nodes.add(name, **fields)

    def add_pod(self, name: str, **fields: Any) -> Stored:
        """See `pods.Pods.add`."""
        with self.lock:
            return self.pods.add(name, **fields)

    def node(self, name: str) -> dict[str, Any]:
        """The Node object. Raises ApiError 404."""
        with self.lock:
            return self.store.get("nodes", name).copy()

    def tuning(self, name: str) -> dict[str, Any]:
        """The NodeTuning object. Raises ApiError 404."""
        with self.lock:
            return self.store.get("nodetunings", name).copy()

    def kernel(self, node: str) -> VirtualKernel:
        machine = self.nodes.machine(node)
        if machine is None:
            raise KeyError(node)
        return machine.kernel

    def drift(self, node: str, key: str, value: str) -> None:
        """Run `sysctl -w` on the node, as its administrator would. Raises OSError as it would."""
        with self.lock:
            self.kernel(node).write("/proc/sys/" + key.replace(".", "/"), value)

    def drop_file(self, node: str, path: str, text: str) -> None:
        """Write a file on the node, such as /etc/sysctl.d/50-local.conf, and run `sysctl --system`, which reads it."""
        with self.lock:
            kernel = self.kernel(node)
            kernel.disk[path] = text
            if "sysctl" in path:
                kernel.reload_sysctl_files()

    def objects(self, plural: str) -> list[dict[str, Any]]:
        with self.lock:
            return [stored.copy() for stored in self.store.all(plural)]

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.store.count(p)} {p}" for p in self.store.resources if self.store.count(p))
        return f"<SimCluster {self.name}: {counts}>"
