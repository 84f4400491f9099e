"""`python -m agent`: the node agent. Runs until SIGTERM."""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import sys
import threading
import time
from typing import Any

from agent import VERSION
from agent.client import Client
from agent.hold import Hold
from agent.host import LinuxHost
from agent.identity import NotHere, check_namespaces, from_token
from agent.journal import FileStore, Journal
from agent.kinds.lifeline import ANSWER_SECONDS, Lifeline
from agent.loop import Loop, Watcher, log
from agent.reconcile import Reconciler

IN_CLUSTER = "/var/run/secrets/kubernetes.io/serviceaccount"

OPTIONS = {
    "node": (os.environ.get("NODE_NAME", ""), "name this node must have by its token (NODE_NAME)"),
    "server": ("", "URL of the API server; default: the pod's environment"),
    "token-file": (f"{IN_CLUSTER}/token", "bound token of the agent's pod"),
    "ca-file": (f"{IN_CLUSTER}/ca.crt", "certificate authority of the API server"),
    "host-root": ("/host", "where the node's own file system is mounted; / on the node itself"),
    "proc": ("/proc", "the node's /proc"),
    "sys": ("/sys", "the node's /sys"),
    "journal": ("/var/lib/setpoint", "folder for the journal, on the node's own disk"),
    "init-pid": ("1", "the node's first process, whose namespaces are the node's"),
    "nsenter": ("yes", "enter that process's namespaces to run commands: yes or no"),
    "verify-seconds": ("5", "seconds between two looks at the settings"),
    "lease-seconds": ("60", "seconds between two renewals of the node's Lease"),
}


DEADMAN_SECONDS = 3600
"""Longer than every command of the longest step together. See `alive`."""


class BadOption(Exception):
    pass


def seconds_since_boot() -> float:
    """Return the seconds since boot, sleep included; changes of the wall clock do not affect them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def alive() -> None:
    """Called at each turn of the loop. Without a turn for DEADMAN_SECONDS the kernel ends this process, and the kubelet
    starts another, which continues from the journal. A probe would start a program on every node every minute to find
    that out; and until then the Lease that is not renewed says so."""
    signal.alarm(DEADMAN_SECONDS)


def parse(arguments: list[str]) -> dict[str, str]:
    """`--name value` or `--name=value`. Raises BadOption. Not argparse: that costs memory on every node."""
    values = {name: default for name, (default, _) in OPTIONS.items()}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).removeprefix("--").partition("=")
        if name not in OPTIONS:
            raise BadOption(f"no such option: {name}")
        if not equals:
            if not rest:
                raise BadOption(f"--{name} needs a value")
            value = rest.pop(0)
        values[name] = value
    return values


def usage() -> str:
    return "python -m agent\n" + "".join(f"  --{n} ({d or 'none'}): {text}\n" for n, (d, text) in OPTIONS.items())


def server_of(values: dict[str, str]) -> str:
    if values["server"]:
        return values["server"]
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise BadOption("--server is needed outside a pod")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def hold_lock(folder: str) -> int:
    """Wait until no other agent works on this node: while a DaemonSet rolls over there may be two for a moment."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log("waiting for another agent on this node to end")
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def main(arguments: list[str]) -> int:
    if "--help" in arguments:
        sys.stdout.write(usage())
        return 0
    try:
        values = parse(arguments)
        server = server_of(values)
        verify_seconds, lease_seconds = float(values["verify-seconds"]), float(values["lease-seconds"])
        init_pid = int(values["init-pid"])
    except (BadOption, ValueError) as error:
        sys.stderr.write(f"{error}\n{usage()}")
        return 2
    stopping = threading.Event()
    arrivals: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def stop(*_: object) -> None:
        stopping.set()
        arrivals.put(None)

    try:
        check_namespaces(values["proc"], init_pid)
        clients = [Client(server, token_file=values["token-file"], ca_file=values["ca-file"] or None) for _ in range(2)]
        identity = from_token(clients[0].token())
        if values["node"] and values["node"] != identity.node:
            raise NotHere(f"the token is for node {identity.node}, and --node says {values['node']}")
    except (NotHere, OSError) as error:
        log("refusing to start", error=str(error))
        return 3
    hold_lock(values["journal"])  # released by the end of the process, however it ends
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    host = LinuxHost(
        root=values["host-root"],
        proc=values["proc"],
        sys=values["sys"],
        init_pid=init_pid if values["nsenter"] == "yes" else None,
    )
    journal = Journal(FileStore(os.path.join(values["journal"], "journal")))
    probe = Client(server, token_file=values["token-file"], ca_file=values["ca-file"] or None, timeout=ANSWER_SECONDS)
    reconciler = Reconciler(
        host,
        journal,
        time.time,
        node_uid=identity.uid,
        agent_version=VERSION,
        steady=seconds_since_boot,
        lifeline=Lifeline(lambda: probe.reaches(identity.node), time.sleep),
    )
    if taken_back := reconciler.recover():
        log("put network cards back, because an agent was killed while it changed them", places=taken_back)
    log("started", node=identity.node, uid=identity.uid, version=VERSION, journal=journal.corrupt or "fine")
    Watcher(clients[1], identity.node, arrivals).start()
    hold = Hold(clients[0], identity, FileStore(os.path.join(values["journal"], "hold")))
    loop = Loop(clients[0], reconciler, identity, verify_seconds=verify_seconds, lease_seconds=lease_seconds, hold=hold)
    loop.run(arrivals, stopping, alive)
    log("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
