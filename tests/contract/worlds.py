"""Worlds of the contract suite beside the port: they make nodes, pods and budgets, edit, delete and wait."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol, TypeVar

from clusters.fleet import Fleet
from clusters.kube.fleet import KubeFleet
from contract import names
from simfleet.apiserver.callers import Caller, agent, person
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.controlplane.admin import Admin
from tests.controlplane.plane import LOOPBACK, Plane
from tests.controlplane.pod_host import PodHost

T = TypeVar("T")
Raw = dict[str, Any]
_serial = itertools.count(1)


class World(Protocol):
    fleet: Fleet

    def name(self, word: str) -> str:
        """A name that no other test uses: the real cluster is shared."""

    def kube_system_uid(self) -> str: ...
    def node(self, name: str, *, labels: Mapping[str, str] | None = None, gpus: int = 0) -> Raw: ...
    def delete_node(self, name: str) -> None: ...
    def replace_node(self, name: str) -> Raw: ...
    def pod(self, name: str, node: str, *, labels: Mapping[str, str] | None = None, lingers: bool = False) -> Raw:
        """Running on the node, with no owner, in namespace default. `lingers`: told to end, it stays for a while."""

    def end(self, pod: str) -> None:
        """Remove a lingering pod that was told to end, as its kubelet would."""
        ...

    def serve(self, pod: str, node: str, text: str, *, status: int = 200) -> str:
        """Make a pod on the node that says this at `/metrics`. Returns its port."""

    def budget(self, name: str, labels: Mapping[str, str], min_available: int) -> None:
        """A PodDisruptionBudget in namespace default, once it is counted."""

    def edit(self, plural: str, name: str, change: Mapping[str, Any], namespace: str = "") -> Raw:
        """A person's merge patch, with a field manager of their own."""

    def report(self, node: str, status: Mapping[str, Any]) -> None:
        """The node's agent writes its status."""

    def stranger(self) -> Fleet:
        """The same cluster with credentials that may do nothing."""

    def ruler(self) -> Fleet:
        """The same cluster with the rights of its administrator."""

    def forget_history(self) -> None:
        """Resource versions from before can be watched from no more."""

    def until(self, is_so: Callable[[], T]) -> T:
        """Let time pass until `is_so` answers something true; return that."""

    def clean(self) -> None: ...


class SimWorld:
    def __init__(self) -> None:
        self.cluster = SimCluster(seed=7)
        self.fleet: Fleet = SimFleet(self.cluster)
        self.cluster.api.forbidden.add(("create", "nodes"))

    def name(self, word: str) -> str:
        return f"{word}-{next(_serial)}"

    def kube_system_uid(self) -> str:
        return self.cluster.uid

    def node(self, name: str, *, labels: Mapping[str, str] | None = None, gpus: int = 0) -> Raw:
        self.cluster.add_node(name, labels=labels, gpus=gpus)
        return self.cluster.node(name)

    def delete_node(self, name: str) -> None:
        self.cluster.nodes.delete(name)

    def replace_node(self, name: str) -> Raw:
        self.cluster.nodes.replace(name)
        return self.cluster.node(name)

    def pod(self, name: str, node: str, *, labels: Mapping[str, str] | None = None, lingers: bool = False) -> Raw:
        how: Raw = {"stop_seconds": 1000, "grace": 1000} if lingers else {}
        return self.cluster.add_pod(name, node=node, labels=dict(labels or {}), **how).copy()

    def end(self, pod: str) -> None:
        self.cluster.store.delete("pods", pod, "default")

    def serve(self, pod: str, node: str, text: str, *, status: int = 200) -> str:
        def answer(raw: Raw, port: str, path: str, query: Mapping[str, str]) -> tuple[int, str] | None:
            return (status, text) if (raw["metadata"]["name"], port, path) == (pod, "9400", "metrics") else None

        self.pod(pod, node)
        self.cluster.proxies.answerers["pods"].append(answer)
        return "9400"

    def budget(self, name: str, labels: Mapping[str, str], min_available: int) -> None:
        self.cluster.pods.budget(name, labels=labels, minAvailable=min_available)
        self.cluster.tick(1)

    def edit(self, plural: str, name: str, change: Mapping[str, Any], namespace: str = "") -> Raw:
        return self.cluster.api.patch(person("alice"), plural, name, change, namespace).copy()

    def report(self, node: str, status: Mapping[str, Any]) -> None:
        self.cluster.api.patch(agent(node), names.PLURAL, node, {"status": status}, subresource="status")

    def stranger(self) -> Fleet:
        for verb in ("get", "list", "watch", "patch"):
            self.cluster.api.forbidden.add((verb, "nodes"))
        self.cluster.api.forbidden.add(("get", "pods/proxy"))
        return SimFleet(self.cluster, caller=Caller("nobody", "nobody"))

    def ruler(self) -> Fleet:
        return self.fleet

    def forget_history(self) -> None:
        self.cluster.store.compact()

    def until(self, is_so: Callable[[], T]) -> T:
        for _ in range(120):
            if result := is_so():
                return result
            self.cluster.tick(1)
        raise AssertionError("not within two simulated minutes")

    def clean(self) -> None:
        self.fleet.close()


PATIENCE_SECONDS = 180
"""Controllers, scheduler and kwok of a busy machine, just after their API server was restarted, take more than one."""


class RealWorld:
    """kube-apiserver with its controllers and kwok; the port with the rights that deploy/ gives the controller."""

    def __init__(self, plane: Plane, admin: Admin) -> None:
        self.plane, self.admin = plane, admin
        self.fleet: Fleet = KubeFleet(plane.credentials(token=admin.controller_token()), policy=LOOPBACK)
        self._fleets: list[Fleet] = [self.fleet]
        self._made: list[tuple[str, str]] = []
        self._pods: PodHost | None = None

    def name(self, word: str) -> str:
        return f"{word}-{next(_serial)}"

    def kube_system_uid(self) -> str:
        return str(self.admin.get("namespaces", "kube-system")["metadata"]["uid"])

    def node(self, name: str, *, labels: Mapping[str, str] | None = None, gpus: int = 0) -> Raw:
        self._made.append(("nodes", name))
        return self.admin.node(name, labels=labels, gpus=gpus)

    def delete_node(self, name: str) -> None:
        self.admin.delete("nodes", name)
        self.admin.wait_gone("nodes", name)

    def replace_node(self, name: str) -> Raw:
        self.delete_node(name)
        return self.admin.node(name)

    def pod(self, name: str, node: str, *, labels: Mapping[str, str] | None = None, lingers: bool = False) -> Raw:
        self._made.append(("pods", name))
        pod = self.admin.pod(name, node=node, labels=labels)
        return self.admin.leave_alone("pods", name, "default") if lingers else pod

    def end(self, pod: str) -> None:
        self.admin.delete("pods", pod, "default", grace=0)
        self.admin.wait_gone("pods", pod, "default")

    def serve(self, pod: str, node: str, text: str, *, status: int = 200) -> str:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None: ...

            def do_GET(self) -> None:
                self.send_response(status if self.path == "/metrics" else 418)
                self.end_headers()
                self.wfile.write(text.encode())

        self._pods = self._pods or PodHost()
        self._made.append(("pods", pod))
        self.admin.pod(pod, node=node, address=self._pods.address)
        return str(self._pods.serve(Handler))

    def budget(self, name: str, labels: Mapping[str, str], min_available: int) -> None:
        self._made.append(("poddisruptionbudgets", name))
        self.admin.budget(name, selector=labels, min_available=min_available)

    def edit(self, plural: str, name: str, change: Mapping[str, Any], namespace: str = "") -> Raw:
        return self.admin.patch(plural, name, change, namespace)

    def report(self, node: str, status: Mapping[str, Any]) -> None:
        agent = Admin(self.plane, self.plane.credentials(token=self.admin.agent_token(node)))
        agent.patch(names.PLURAL, node, {"status": status}, subresource="status")
        agent.close()

    def stranger(self) -> Fleet:
        fleet = KubeFleet(self.plane.credentials(user="nobody"), policy=LOOPBACK)
        self._fleets.append(fleet)
        return fleet

    def ruler(self) -> Fleet:
        fleet = KubeFleet(self.plane.admin, policy=LOOPBACK)
        self._fleets.append(fleet)
        return fleet

    def forget_history(self) -> None:
        """A restarted API server remembers no events from before its start."""
        self.plane.restart("kube-apiserver")

    def until(self, is_so: Callable[[], T]) -> T:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            if result := is_so():
                return result
            assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s"
            time.sleep(0.1)

    def clean(self) -> None:
        for plural, name in reversed(self._made):
            self.admin.delete(plural, name, grace=0)
        for fleet in self._fleets:
            fleet.close()
        if self._pods:
            self._pods.close()
