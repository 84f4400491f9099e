"""Agents for many kwok nodes in one process: the real reconciler and journal, on a virtual kernel for each node.

They speak to the real API server as agents do: with their own pods' tokens where `--tokens` has one for each node, else
all with one token. `--state` keeps each machine (kernel, disk, journal) in a file, so that kill -9 of this process is
what it is for agents: their nodes do not notice. Benchmarks leave both out.

    python -m tests.full.harness.many_agents --server URL --ca FILE --token FILE [--tokens DIR] [--state DIR] ...
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import queue
import random
import signal
import sys
import threading
import time
import traceback
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.client import Client, RequestRefused, Unavailable
from agent.journal import Journal
from agent.reconcile import Reconciler
from agent.restarts import Confirmed
from clusters.fleet import FleetError, Gone
from clusters.kube.apiserver import MERGE, ApiServer, Call
from clusters.kube.fleet import KubeFleet
from clusters.net.credentials import Credentials
from clusters.net.egress import Policy
from contract.nodetuning import Malformed, Spec, Status
from simfleet.machines.hardware import CPU_SERVER, Hardware
from simfleet.machines.kernel import VirtualKernel
from simfleet.machines.machine import DiskJournal, VirtualHost

VERSION = "0.1.0-many"
RETRY_SECONDS = 0.5
TOKEN_SECONDS = 0.2
"""Between two looks for the token of a node that has an object already: Setpoint may be faster than its kubelet."""
LOOPBACK = Policy.of(["127.0.0.0/8"])


class Standing:
    """One node's machine. What the kernel and the disk hold is in `file`, if there is one, before a write returns."""

    hardware: Hardware = CPU_SERVER

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.drives: dict[str, dict[int, bytes]] = {}
        self.mounts: dict[str, tuple[str, str]] = {}
        self._changed: dict[str, str] = {}
        self.kernel = VirtualKernel(self.hardware, lambda: str(uuid.uuid4()))
        self.kubelet_runs = 1
        self.has_restarted = False
        """The kubelet or the machine; the test that plays the cluster's side of it sets it back."""
        if file and file.exists():
            self._load(json.loads(file.read_text()))
        else:
            self.save()  # its boot must outlive this process, too
        self._play_kubelet()
        self.kernel.watchers.append(self._note)

    def save(self) -> None:
        if self._file is None:
            return
        state = {
            "boot_id": self.kernel.boot_id,
            "kubelet_runs": self.kubelet_runs,
            "cmdline": self.kernel.read("/proc/cmdline"),
            "next_cmdline": self.kernel.next_cmdline,
            "disk": self.kernel.disk,
            "changed": self._changed,
        }
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(state))
        os.replace(new, self._file)

    def _load(self, state: Mapping[str, Any]) -> None:
        self.kernel.disk.update(state["disk"])
        self.kernel.boot_id, self.kubelet_runs = state["boot_id"], state["kubelet_runs"]
        self.kernel.next_cmdline = state["next_cmdline"]
        self.kernel.set("/proc/cmdline", state["cmdline"])
        for path, text in state["changed"].items():
            self._changed[path] = text
            if path.endswith("/nr_hugepages"):
                self.kernel.write(path, text)
            else:
                self.kernel.set(path, text)

    def _note(self, path: str) -> None:
        self._changed[path] = self.kernel.read(path) or ""
        self.save()

    def _play_kubelet(self) -> None:
        self.kernel.set("/proc/923/comm", "kubelet")
        self.kernel.set("/proc/923/stat", f"923 (kubelet) S 1 {'0 ' * 17}{1000 * self.kubelet_runs} 0")

    def drive_serial(self, name: str) -> str:
        return f"S6{zlib.crc32(str(self._file).encode()):08x}{name}"

    def reload_units(self) -> None:
        """No unit has a drop-in that this machine's services would start with."""

    def restart_containerd(self) -> None:
        self.restart_kubelet()

    def restart_kubelet(self) -> None:
        self.kubelet_runs += 1
        self.has_restarted = True
        self._play_kubelet()
        self.save()

    def reboot(self) -> None:
        self._changed.clear()
        self.kernel.boot()
        self._play_kubelet()
        self.has_restarted = True
        self.save()


class Disk(DiskJournal):
    """The journal is on the machine's disk, and the disk in the machine's file."""

    def __init__(self, machine: Standing) -> None:
        super().__init__(machine)
        self._machine = machine

    def save(self, text: str) -> None:
        super().save(text)
        self._machine.save()


class Member:
    """One node's agent. Used by one thread only, that of its shard."""

    def __init__(self, world: World, name: str, client: Client) -> None:
        self._world = world
        self.name = name
        self._client = client
        self.machine = Standing(world.state / f"{name}.json" if world.state else None)
        self._object: Mapping[str, Any] | None = None
        self._reconciler: Reconciler | None = None
        self._known: tuple[str, int] = ("", 0)
        self._published: dict[str, Any] = {}
        self._uid = ""
        self._is_due = False
        """The object's present generation has not been carried out and reported yet."""

    def arrive(self, raw: Mapping[str, Any] | None) -> None:
        if raw is None:
            self._object, self._known = None, ("", 0)
            return
        known = (str(raw["metadata"]["uid"]), int(raw["metadata"]["generation"]))
        if known[0] != self._known[0]:
            self._published, self._reconciler = dict(raw.get("status") or {}), None
            self._uid = str(raw["spec"].get("nodeUID"))
        self._object = raw
        if known != self._known:
            self._known, self._is_due = known, True
        if self._is_due:
            self._work()

    def look(self) -> None:
        if self._object is not None:
            self._work()

    def renew(self) -> None:
        if self._object is not None and self._uid:
            now = time.time()
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
            self._client.renew_lease(self.name, self._uid, int(self._world.lease_seconds * 3), stamp)

    def _join(self) -> Reconciler:
        """Tell the Node which boot this is, as a kubelet does, and begin with the journal that is on the disk."""
        self._world.say(self.name, self.machine)
        return Reconciler(
            VirtualHost(self.machine),
            Journal(Disk(self.machine)),
            time.time,
            node_uid=self._uid,
            agent_version=VERSION,
        )

    def _work(self) -> None:
        raw = self._object
        assert raw is not None
        if self._reconciler is None:
            self._reconciler, self._is_due = self._join(), True
        core = self._reconciler
        generation = int(raw["metadata"]["generation"])
        try:
            spec = Spec.from_json(raw["spec"])
        except Malformed as error:
            self._publish(core.refuse("BadSpec", str(error), generation))
            return
        self._publish(core.reconcile(spec, generation) if self._is_due else core.verify(observe=False))
        self._is_due = False
        after = core.restart(self._confirm, self._publish)
        if self.machine.has_restarted:
            self.machine.has_restarted, self._reconciler = False, None
            self._reconciler = self._join()
            after = self._reconciler.reconcile(spec, generation)
        if after is not None:
            self._publish(after)

    def _confirm(self) -> Confirmed | None:
        tuning, date = self._client.tuning(self.name)
        is_same = tuning is not None and tuning["metadata"]["uid"] == self._known[0]
        return Confirmed(Spec.from_json(tuning["spec"]), date) if tuning and is_same else None

    def _publish(self, status: Status) -> None:
        fresh = {key: value for key, value in status.to_json().items() if value is not None}
        if fresh != self._published:
            self._client.write_status(self.name, self._known[0], fresh)
            self._published = fresh


class Shard(threading.Thread):
    """Some of the nodes, and the only thread that works on them."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(name=f"shard-{number}", daemon=True)
        self._world = world
        self._client = Client(world.server, token_file=world.token_file, ca_file=world.ca_file)
        self._members: dict[str, Member] = {}
        self._without_agent: dict[str, Mapping[str, Any]] = {}
        """The objects of nodes that have no token, which may be given to them later."""
        self._due: list[tuple[float, int, str, str]] = []
        self._serial = itertools.count()
        self.arrivals: queue.SimpleQueue[tuple[str, Mapping[str, Any] | None]] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            try:
                self._next()
            except Exception:  # one node's trouble must not silence all the others of this shard
                traceback.print_exc()

    def _next(self) -> None:
        wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else 60.0
        try:
            name, raw = self.arrivals.get(timeout=wait)
        except queue.Empty:
            if self._due:
                _, _, name, what = heapq.heappop(self._due)
                self._do(name, what)
        else:
            self._arrive(name, raw)

    def _arrive(self, name: str, raw: Mapping[str, Any] | None) -> None:
        if name not in self._members:
            if raw is None:
                self._without_agent.pop(name, None)
                return
            if not self._world.has_agent(name):
                if name not in self._without_agent:
                    self._later(TOKEN_SECONDS, name, "token")
                self._without_agent[name] = raw
                return
            self._without_agent.pop(name, None)
            own = self._world.client_of(name)
            self._members[name] = Member(self._world, name, own or self._client)
            self._later(random.uniform(0, 1), name, "renew")
            if self._world.verify_seconds:
                self._later(self._world.verify_seconds, name, "look")
        self._attempt(name, raw)

    def _attempt(self, name: str, raw: Mapping[str, Any] | None) -> None:
        try:
            self._members[name].arrive(raw)
        except (Unavailable, RequestRefused, FleetError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            self._later(RETRY_SECONDS, name, "again")

    def _do(self, name: str, what: str) -> None:
        if what == "token":
            if raw := self._without_agent.pop(name, None):
                self._arrive(name, raw)
            return
        member = self._members[name]
        try:
            if what == "renew":
                self._later(self._world.lease_seconds * random.uniform(0.9, 1.1), name, "renew")
                member.renew()
            elif what == "look":
                self._later(self._world.verify_seconds, name, "look")
                member.look()
            else:
                member.look()
        except (Unavailable, RequestRefused, FleetError, OSError) as error:
            print(f"{name}: {what}: {error}", file=sys.stderr, flush=True)
            if what == "again":
                self._later(RETRY_SECONDS, name, "again")

    def _later(self, seconds: float, name: str, what: str) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._serial), name, what))


class World:
    """All agents of this process, and what they share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.server, self.ca_file, self.token_file = options.server, options.ca, options.token
        self.tokens: Path | None = options.tokens
        self.state: Path | None = options.state
        self.verify_seconds: float = options.verify_seconds
        self.lease_seconds: float = options.lease_seconds
        token, ca = Path(options.token).read_text().strip(), Path(options.ca).read_text()
        self._fleet = KubeFleet(Credentials(server=self.server, ca=ca, token=token), policy=LOOPBACK)
        self._cluster = ApiServer(Credentials(server=self.server, ca=ca, token=token), policy=LOOPBACK, timeout=10)
        self._shards = [Shard(self, number) for number in range(options.threads)]

    def has_agent(self, node: str) -> bool:
        return self.tokens is None or (self.tokens / node).exists()

    def client_of(self, node: str) -> Client | None:
        """The client with the node's own token, if tokens are by node."""
        if self.tokens is None:
            return None
        return Client(self.server, token_file=str(self.tokens / node), ca_file=self.ca_file)

    def say(self, node: str, machine: Standing) -> None:
        """Report what a kubelet reports at its start: its machine's boot, and the huge pages it found."""
        path = f"/api/v1/nodes/{node}"
        info = self._cluster.get(Call("get", "nodes", node), path, "Node")["status"].get("nodeInfo") or {}
        kernel = machine.kernel
        pages = {
            f"hugepages-{name}": f"{kernel.huge_pages(kb) * kb}Ki" for name, kb in (("2Mi", 2048), ("1Gi", 1 << 20))
        }
        status = {
            "nodeInfo": {**info, "bootID": machine.kernel.boot_id},
            "capacity": pages,
            "allocatable": pages,
        }
        call = Call("patch", "nodes/status", node)
        self._cluster.ask(call, "PATCH", f"{path}/status", body={"status": status}, content_type=MERGE).object()

    def run(self) -> None:
        for shard in self._shards:
            shard.start()
        while True:
            try:
                page = self._fleet.list("nodetunings", fresh=True)
                for raw in page.items:
                    self._hand_out(raw, raw)
                self._follow(page.resource_version)
            except Gone:
                continue
            except FleetError as error:
                print(f"watch: {error}", file=sys.stderr, flush=True)
                time.sleep(RETRY_SECONDS)

    def _follow(self, version: str) -> None:
        while True:
            for event in self._fleet.watch("nodetunings", version, timeout=60):
                version = str(event.object["metadata"]["resourceVersion"])
                if event.type != "BOOKMARK":
                    self._hand_out(event.object, None if event.type == "DELETED" else event.object)

    def _hand_out(self, raw: Mapping[str, Any], now: Mapping[str, Any] | None) -> None:
        name = str(raw["metadata"]["name"])
        self._shards[zlib.crc32(name.encode()) % len(self._shards)].arrivals.put((name, now))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca", required=True, help="file")
    parser.add_argument("--token", required=True, help="file: may watch NodeTunings and write nodes' status")
    parser.add_argument("--tokens", type=Path, help="folder with a file for each node; the others have no agent")
    parser.add_argument("--state", type=Path, help="folder that keeps machines over kill -9")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--verify-seconds", type=float, default=0.0, help="0: never")
    parser.add_argument("--lease-seconds", type=float, default=60.0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    World(parser.parse_args(arguments)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
