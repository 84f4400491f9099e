"""Cost of one write to the API server: the two of a node's step, and kubectl's label, one after the other."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import closing

from bench.agents import TUNINGS, AgentWriter, Kernel
from bench.measure import Table, load, usage
from bench.rollout import SETTINGS
from bench.stage import LOOPBACK, Stage
from clusters.kube.fleet import KubeFleet
from contract.nodetuning import Mode, Spec, Wanted

NODES = 300
IDLE_SECONDS = 10.0
STEP = "00000000-0000-0000-0000-000000000000"


def measure(stage: Stage) -> list[Table]:
    table = Table(
        "One write",
        ["what", "object, KB", "wall, ms", "CPU of the API server, ms", "load"],
        f"{NODES} nodes, one after the other, without Setpoint's processes; what the API server uses when "
        "nobody asks is taken off. kubectl reads a node and patches it; the other two patch a NodeTuning.",
    )
    credentials = stage.plane.credentials(token=stage.admin.controller_token())
    with closing(KubeFleet(credentials, policy=LOOPBACK, timeout=60)) as fleet:
        writes = _Writes(stage, fleet)
        writes.prepare()
        time.sleep(IDLE_SECONDS)  # what the preparation left behind is done by then
        idle = writes.cost(lambda: time.sleep(IDLE_SECONDS))
        for what, resource, action in (
            ("kubectl labels a node", "nodes", writes.label),
            ("Setpoint writes the spec: ten settings", "nodetunings", writes.tune),
            ("the agent writes the status", "nodetunings", writes.answer),
        ):
            wall, cpu = writes.cost(action)
            cpu -= idle[1] / idle[0] * wall
            table.add(what, writes.size(resource), wall / NODES * 1000, cpu / NODES * 1000, load())
    return [table]


class _Writes:
    def __init__(self, stage: Stage, fleet: KubeFleet) -> None:
        self.stage, self.fleet = stage, fleet
        self.door, self.kernel = AgentWriter(stage.plane.admin), Kernel()
        self.uids: dict[str, str] = {}

    def prepare(self) -> None:
        """Nodes, each with a NodeTuning in mode observe that its agent has answered."""
        from profiles.catalog import known_settings

        self.observe = tuple(sorted(known_settings.observable_keys()))
        self.stage.grow(NODES)
        for raw in self.fleet.list("nodes").items:
            name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
            self.uids[name] = uid
            self.fleet.observe(name, uid, Spec(node_uid=uid, observe=self.observe))
            self._answer(name, Spec(node_uid=uid, observe=self.observe), 1)

    def cost(self, action: Callable[[], object]) -> tuple[float, float]:
        """Seconds by the clock, and of the API server's CPU."""
        pid = self.stage.plane.pids()["kube-apiserver"]
        cpu, began = usage(pid).cpu, time.perf_counter()
        action()
        return time.perf_counter() - began, usage(pid).cpu - cpu

    def size(self, resource: str) -> float:
        """KB of JSON of one object, with its field ownership."""
        name = next(iter(self.uids))
        raw = self.stage.plane.kubectl("get", resource, name, "-o", "json", "--show-managed-fields")
        return len(json.dumps(json.loads(raw), separators=(",", ":"))) / 1000

    def label(self) -> None:
        command = [str(self.stage.plane.bin / "kubectl"), f"--kubeconfig={self.stage.plane.kubeconfig}"]
        command += ["label", "nodes", "--all", "--overwrite", "bench.setpoint.dev/run=writes"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    def tune(self) -> None:
        for name in self.uids:
            self.fleet.tune(name, self._spec(name))

    def answer(self) -> None:
        for name in self.uids:
            self._answer(name, self._spec(name), 2)

    def _spec(self, name: str) -> Spec:
        settings = tuple(Wanted(key, "=", str(value + 1), str(value)) for key, value in SETTINGS.items())
        return Spec(
            node_uid=self.uids[name],
            mode=Mode.APPLY,
            rollout=STEP,
            step=STEP,
            attempt=1,
            revision="sha256:" + "0" * 64,
            settings=settings,
            observe=self.observe,
        )

    def _answer(self, name: str, spec: Spec, generation: int) -> None:
        status = self.kernel.answer(spec, self.uids[name], generation)
        patch = [{"op": "add", "path": "/status", "value": status}]
        code = self.door.write(name, "PATCH", f"{TUNINGS}/{name}/status", patch, "application/json-patch+json")
        if code != 200:
            raise RuntimeError(f"the status of {name} was refused with {code}")
