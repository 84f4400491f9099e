"""This machine as a node: the real agent as a process, on the real kernel, in a network namespace of its own.

Settings that belong to a network namespace are written in that namespace, which goes away; all others are the machine's
and are put back by `close` in every case. kwok keeps the Node object Ready; a script called `systemctl` under the
agent's host root represents the kubelet and offers the huge pages that the kernel really has.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane

ROOT = Path(__file__).resolve().parents[3]
THP = Path("/sys/kernel/mm/transparent_hugepage")
HUGE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
_serial = itertools.count(1)


def machines_own(key: str) -> Path | None:
    """The kernel's file behind a key; None for keys that belong to the network namespace."""
    if key == "hugepages-2Mi":
        return HUGE
    if key.startswith("transparent_hugepage."):
        return THP / key.partition(".")[2]
    return None if key.startswith("net.") else Path("/proc/sys") / key.replace(".", "/")


def other(value: str, *choices: str) -> str:
    return next(choice for choice in choices if choice != value)


class Machine:
    """Node object for this machine, and its agent. `keys`: everything a test may change."""

    def __init__(self, plane: Plane, admin: Admin, folder: Path, keys: tuple[str, ...], **labels: str) -> None:
        self.admin = admin
        self.folder = folder
        self.keys = keys
        self.name = f"this-machine-{next(_serial)}"
        self.namespace = f"setpoint-{os.getpid()}-{next(_serial)}"
        self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self._url, self._port = plane.url, urlsplit(plane.url).port
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        own = [path for path in map(machines_own, keys) if path]
        self._restore = {path: path.read_text() for path in own}
        # Of a coupled pair the one that is not zero goes first: it makes the other one zero.
        self._restore = dict(sorted(self._restore.items(), key=lambda item: item[1].strip() == "0"))
        self._over = threading.Event()
        self._kubelet = threading.Thread(target=self._play_kubelet, daemon=True)
        (folder / "ca.crt").write_text(plane.authority.pem)
        self.restarts = folder / "kubelet.restarts"
        subprocess.run(["ip", "netns", "add", self.namespace], check=True)
        try:
            self._join(labels)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends everything, puts the machine's values back, deletes the node."""
        self._over.set()
        for name in list(self._processes):
            self._kill(name)
        for path, value in self._restore.items():
            if path.read_text() != value:  # a zero that its coupled key brings cannot be written
                path.write_text(_writable(value))
        subprocess.run(["ip", "netns", "delete", self.namespace], check=False)
        self.admin.delete("nodes", self.name)

    # ── the node ──────────────────────────────────────────────────────────────────────────────────────────────────
    def _join(self, labels: dict[str, str]) -> None:
        node = self.admin.node(self.name, labels=labels, gpus=8)
        self.uid = node["metadata"]["uid"]
        self.admin.set_boot_id(self.name, self.boot_id)
        self._offer_pages()
        (self.folder / "token").write_text(self.admin.agent_token(self.name))
        systemctl = self.folder / "root/usr/bin/systemctl"
        systemctl.parent.mkdir(parents=True)
        systemctl.write_text(f'#!/bin/sh\necho "$*" >> {self.restarts}\n')
        systemctl.chmod(0o755)
        self._run("namespace-up", "ip", "-n", self.namespace, "link", "set", "lo", "up")
        self._processes["namespace-up"].wait()
        bridge = self.folder / "bridge"
        self._run("outside", "socat", f"UNIX-LISTEN:{bridge},fork", f"TCP:127.0.0.1:{self._port}")
        inside = f"TCP-LISTEN:{self._port},bind=127.0.0.1,fork,reuseaddr"
        self._run("inside", *self._within(), "socat", inside, f"UNIX-CONNECT:{bridge}")
        self._kubelet.start()
        self.start_agent()

    def _play_kubelet(self) -> None:
        """Reads how many huge pages there are only when it is restarted, as the kubelet does."""
        seen = 0
        while not self._over.wait(0.1):
            restarts = len(self.restarts.read_text().splitlines()) if self.restarts.exists() else 0
            if restarts != seen:
                seen = restarts
                self._offer_pages()

    def _offer_pages(self) -> None:
        pages = f"{int(HUGE.read_text()) * 2}Mi"
        offered = {"capacity": {"hugepages-2Mi": pages}, "allocatable": {"hugepages-2Mi": pages}}
        self.admin.patch("nodes", self.name, {"status": offered}, subresource="status")

    # ── the agent ─────────────────────────────────────────────────────────────────────────────────────────────────
    def start_agent(self) -> None:
        """Start the agent with a first process of its own beside it, in place of the node's."""
        options = {
            "server": self._url,
            "token-file": self.folder / "token",
            "ca-file": self.folder / "ca.crt",
            "host-root": self.folder / "root",
            "journal": self.folder / "journal",
            "nsenter": "no",
            "verify-seconds": "1",
            "lease-seconds": "20",
            "node": self.name,
        }
        outer = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", '"$@" & wait $!', "sh"]
        words = [f"--{name}={value}" for name, value in options.items()]
        self._run("agent", *self._within(), *outer, sys.executable, "-m", "agent", *words)

    def kill_agent(self) -> None:
        """kill -9, of the process and of the namespace around it."""
        self._kill("agent")

    def agent_says(self) -> str:
        return (self.folder / "agent.log").read_text()[-3000:]

    # ── the kernel, read directly ─────────────────────────────────────────────────────────────────────────────────
    def value(self, key: str) -> str:
        """Read the kernel's current value here, without the agent."""
        path = machines_own(key)
        if path is None:
            file = "/proc/sys/" + key.replace(".", "/")
            done = subprocess.run([*self._within(), "cat", file], capture_output=True, text=True, check=True)
            return " ".join(done.stdout.split())
        return " ".join(_writable(path.read_text()).split())

    def values(self) -> dict[str, str]:
        return {key: self.value(key) for key in self.keys}

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────
    def _within(self) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.namespace}"]

    def _run(self, name: str, *command: Any) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(word) for word in command],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        if name == "agent":
            time.sleep(0.1)  # its namespace's processes die a moment after the one that made it


def _writable(text: str) -> str:
    """The chosen word of a file like `always [madvise] never`; any other text as it is."""
    return text.partition("[")[2].partition("]")[0] if "[" in text else text
