"""A pool of kwok nodes with agents that do something: a process of `many_agents`, with a token for each node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clusters import objects
from clusters.kube.fleet import KubeFleet
from contract import names
from tests.controlplane.admin import WAIT_SECONDS, Admin
from tests.controlplane.plane import LOOPBACK, Plane

ROOT = Path(__file__).resolve().parents[3]
ACCOUNT = "many-agents"


class KwokFleet:
    """`fleet.add("a", "b")` makes nodes labeled `pool=<pool>`. `close` ends its process and deletes its nodes."""

    def __init__(self, plane: Plane, admin: Admin, folder: Path, pool: str) -> None:
        self.plane, self.admin, self.folder, self.pool = plane, admin, folder, pool
        self.nodes: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._pods = KubeFleet(plane.admin, policy=LOOPBACK)
        for name in ("tokens", "state"):
            (folder / name).mkdir()
        (folder / "ca.crt").write_text(plane.authority.pem)
        self._give_account()

    def _give_account(self) -> None:
        """Give the fleet's account a kubelet's rights too, because it plays the kubelets."""
        if self.admin.find("serviceaccounts", ACCOUNT, names.NAMESPACE) is None:
            self.plane.kubectl("create", "serviceaccount", ACCOUNT, "-n", names.NAMESPACE)
            account = f"--serviceaccount={names.NAMESPACE}:{ACCOUNT}"
            self.plane.kubectl("create", "clusterrolebinding", ACCOUNT, "--clusterrole=cluster-admin", account)
        (self.folder / "token").write_text(self.admin.token(ACCOUNT))

    def add(self, *names_: str, **how: Any) -> None:
        """Nodes, Ready, each with its agent's token. Before `start`, or while it runs."""
        labels = {"pool": self.pool, "setpoint-test": "agents", **how.pop("labels", {})}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: self.admin.node(name, labels=labels, gpus=8, **how), names_))
            list(pool.map(self._give_token, names_))
        self.nodes += names_

    def _give_token(self, name: str) -> None:
        """Bound to the DaemonSet's own pod there, which no drain takes away."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not (pods := [pod for pod in self._pods.pods_on(name) if _is_agents(pod)]):
            assert time.monotonic() < deadline, f"no pod of the agents' DaemonSet on {name}"
            time.sleep(0.1)
        new = self.folder / f"{name}.token"
        new.write_text(self.admin.token(names.AGENT_SERVICE_ACCOUNT, pod=pods[0]))
        new.rename(self.folder / "tokens" / name)

    def replace(self, name: str) -> None:
        """The node goes, and another one joins under its name, with a disk of its own."""
        labels = self.admin.get("nodes", name)["metadata"]["labels"]
        self.admin.delete("nodes", name)
        self.admin.wait_gone("nodetunings", name)
        (self.folder / "state" / f"{name}.json").unlink(missing_ok=True)
        (self.folder / "tokens" / name).unlink()
        self.admin.node(name, labels=labels, gpus=8)
        self._give_token(name)

    def start(self) -> None:
        words = {
            "server": self.plane.url,
            "ca": self.folder / "ca.crt",
            "token": self.folder / "token",
            "tokens": self.folder / "tokens",
            "state": self.folder / "state",
            "threads": 4,
            "verify-seconds": 2,
            "lease-seconds": 20,
        }
        with (self.folder / "agents.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.full.harness.many_agents", *(f"--{k}={v}" for k, v in words.items())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9 of all agents at once."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def freeze(self) -> None:
        """Stop all agents in the middle of their work, until `thaw`."""
        assert self._process
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process
        os.killpg(self._process.pid, signal.SIGCONT)

    def log(self) -> str:
        return (self.folder / "agents.log").read_text(errors="replace")[-3000:]

    def close(self) -> None:
        self.kill()
        self.remove(*self.nodes)
        self._pods.close()

    def remove(self, *gone: str) -> None:
        for name in gone:
            self.admin.delete("nodes", name)


def _is_agents(pod: Mapping[str, Any]) -> bool:
    """A chart's DaemonSet may have its pod on the node, too."""
    return pod["metadata"]["namespace"] == names.NAMESPACE and objects.is_daemon(pod)
