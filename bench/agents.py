"""Simulated agents on a real API server, in a process of their own: `python -m bench.agents KUBECONFIG`.

Every write is made as its node's agent (impersonated, so the admission policies judge it). What is written is what the
real reconciler answers on a virtual kernel; nodes that are asked the same share one such answer, because thousands of
agents' work, which a fleet does on its nodes, would otherwise all be done by the two cores that are being measured. For
the same reason one watch serves them all. What one agent costs its node is `bench.agent`'s question.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import queue
import random
import ssl
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import urllib3

from agent.journal import Journal
from agent.reconcile import Reconciler
from clusters.fleet import FleetUnavailable, Gone
from clusters.kube.fleet import KubeFleet
from clusters.net.credentials import Credentials
from contract import names
from contract.nodetuning import Spec, Status
from simfleet.clock import WallClock
from simfleet.core import SimCluster
from simfleet.machines.hardware import Hardware
from simfleet.machines.machine import DiskJournal, Machine, VirtualHost

THREADS = 8
LEASE_SECONDS = 60.0
TUNINGS = f"/apis/{names.API_VERSION}/{names.PLURAL}"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases"
HARDWARE = Hardware(gpus=8)


class AgentWriter:
    """Writes to the API server as the agent of a node."""

    def __init__(self, given: Credentials) -> None:
        context = ssl.create_default_context(cadata=given.ca)
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
            pair.write(given.client_certificate + given.client_key)
            pair.flush()
            context.load_cert_chain(pair.name)
        self._pool = urllib3.PoolManager(maxsize=THREADS + 1, ssl_context=context, timeout=30, retries=False)
        self._server = given.server

    def write(self, node: str, method: str, path: str, body: Any, content_type: str = "application/json") -> int:
        """The HTTP status; 0 when there was no answer."""
        headers = [
            ("Content-Type", content_type),
            ("Impersonate-User", names.AGENT_USERNAME),
            ("Impersonate-Group", "system:authenticated"),
            ("Impersonate-Group", f"system:serviceaccounts:{names.NAMESPACE}"),
            ("Impersonate-Extra-authentication.kubernetes.io%2Fnode-name", node),
        ]
        several = urllib3.HTTPHeaderDict(headers)
        try:
            answer = self._pool.request(method, self._server + path, body=json.dumps(body).encode(), headers=several)
        except urllib3.exceptions.HTTPError:
            return 0
        return answer.status


class Kernel:
    """One virtual machine with the real reconciler, asked once for each different wish."""

    UID = "shared"

    def __init__(self) -> None:
        cluster = SimCluster(clock=WallClock())  # without a node: nothing restarts or reboots here
        machine = Machine(cluster, "shared", HARDWARE, "shared")
        journal = Journal(DiskJournal(machine))
        self._core = Reconciler(
            VirtualHost(machine), journal, time.time, node_uid=self.UID, agent_version=f"{names.RELEASE}-bench"
        )
        self._answers: dict[str, Status] = {}
        self._lock = threading.Lock()

    def answer(self, spec: Spec, uid: str, generation: int) -> dict[str, Any]:
        """The status of a node that is asked `spec`."""
        wish = dataclasses.replace(spec, node_uid=self.UID, step="", rollout="", attempt=0)
        key = json.dumps(wish.to_json(), sort_keys=True)
        with self._lock:
            if key not in self._answers:
                self._answers[key] = self._core.reconcile(wish, len(self._answers) + 1)
        status = dataclasses.replace(
            self._answers[key], node_uid=uid, observed_generation=generation, step=spec.step, attempt=spec.attempt
        )
        return {name: value for name, value in status.to_json().items() if value is not None}


class SimulatedAgent:
    def __init__(self, node: str, uid: str, door: AgentWriter, kernel: Kernel) -> None:
        self.node, self.uid, self._door, self._kernel = node, uid, door, kernel
        self._generation = -1
        self._lock = threading.Lock()
        self.lease_due = time.monotonic() + random.uniform(0, 5)
        self._has_lease = False

    def take(self, raw: dict[str, Any]) -> None:
        """Report on a new generation."""
        with self._lock:
            generation = raw["metadata"]["generation"]
            if generation <= self._generation:
                return
            status = self._kernel.answer(Spec.from_json(raw["spec"]), self.uid, generation)
            patch = [
                {"op": "test", "path": "/metadata/uid", "value": raw["metadata"]["uid"]},
                {"op": "add", "path": "/status", "value": status},
            ]
            path = f"{TUNINGS}/{self.node}/status"
            for _ in range(5):
                if (code := self._door.write(self.node, "PATCH", path, patch, "application/json-patch+json")) == 200:
                    self._generation = generation
                    return
                time.sleep(1)
            sys.stderr.write(f"{self.node}: status refused with {code}\n")

    def renew(self) -> None:
        self.lease_due = time.monotonic() + LEASE_SECONDS * random.uniform(0.9, 1.1)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        spec = {"holderIdentity": self.node, "leaseDurationSeconds": 180, "renewTime": stamp}
        path, merge = f"{LEASES}/{self.node}", "application/merge-patch+json"
        code = self._door.write(self.node, "PATCH", path, {"spec": spec}, merge) if self._has_lease else 404
        if code == 404:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.uid}
            metadata = {"name": self.node, "namespace": names.NAMESPACE, "ownerReferences": [owner]}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            code = self._door.write(self.node, "POST", LEASES, lease)
        self._has_lease = code in (200, 201, 409)


class Fleet:
    """All agents: one watch, THREADS threads that work, one that renews Leases."""

    def __init__(self, given: Credentials) -> None:
        from bench.stage import LOOPBACK

        self._fleet = KubeFleet(given, policy=LOOPBACK, timeout=60)
        self._door = AgentWriter(given)
        self._kernel = Kernel()
        self._agents: dict[str, SimulatedAgent] = {}
        self._work: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def run(self) -> None:
        for _ in range(THREADS):
            threading.Thread(target=self._carry_out, daemon=True).start()
        threading.Thread(target=self._renew, daemon=True).start()
        while True:
            try:
                self._follow()
            except (Gone, FleetUnavailable) as error:
                sys.stderr.write(f"watching again: {error}\n")
                time.sleep(1)

    def _follow(self) -> None:
        page = self._fleet.list("nodetunings", fresh=True)
        for raw in page.items:
            self._work.put(raw)
        version = page.resource_version
        while True:
            for event in self._fleet.watch("nodetunings", version, timeout=300):
                version = event.resource_version or version
                if event.type in ("ADDED", "MODIFIED"):
                    self._work.put(event.object)

    def _carry_out(self) -> None:
        while True:
            raw = self._work.get()
            node = raw["metadata"]["name"]
            agent = self._agents.get(node)
            if agent is None:
                agent = self._agents.setdefault(
                    node, SimulatedAgent(node, raw["spec"]["nodeUID"], self._door, self._kernel)
                )
            agent.take(raw)

    def _renew(self) -> None:
        while True:
            now = time.monotonic()
            for agent in list(self._agents.values()):
                if agent.lease_due <= now:
                    agent.renew()
            time.sleep(0.5)


def credentials(path: str) -> Credentials:
    """Read credentials from the control plane's own kubeconfig, which is JSON."""
    raw = json.loads(Path(path).read_text())
    cluster, user = raw["clusters"][0]["cluster"], raw["users"][0]["user"]

    def text(value: str) -> str:
        return base64.b64decode(value).decode()

    return Credentials(
        server=cluster["server"],
        ca=text(cluster["certificate-authority-data"]),
        client_certificate=text(user["client-certificate-data"]),
        client_key=text(user["client-key-data"]),
    )


if __name__ == "__main__":
    Fleet(credentials(sys.argv[1])).run()
