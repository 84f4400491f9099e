"""Servers at an address such as pods have, which no network knows: the API server's proxy dials no loopback address."""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_NEWNET = 0x40000000  # CLONE_NEWNET, linux/sched.h
SLOTS = 64
"""Networks of four addresses in 198.51.100.0/24."""


class PodHost:
    """A network namespace behind a pair of virtual interfaces, with an address of TEST-NET-2 (RFC 5737). Needs root.

    Only this machine reaches it, and it reaches only this machine.
    """

    def __init__(self) -> None:
        self._lock, slot = _claim()
        self.namespace, self._outside = f"setpoint-pods-{slot}", f"sp-pods-{slot}"
        base = 4 * slot
        self.address = f"198.51.100.{base + 2}"
        self._servers: list[ThreadingHTTPServer] = []
        _ip_if_there("netns", "delete", self.namespace)  # of a process that was killed: its route would be in the way
        _ip_if_there("link", "delete", self._outside)
        _ip("netns", "add", self.namespace)
        try:
            _ip("link", "add", self._outside, "type", "veth", "peer", "name", "pods", "netns", self.namespace)
            _ip("addr", "add", f"198.51.100.{base + 1}/30", "dev", self._outside)
            _ip("link", "set", self._outside, "up")
            _ip("-n", self.namespace, "addr", "add", f"{self.address}/30", "dev", "pods")
            _ip("-n", self.namespace, "link", "set", "pods", "up")
        except BaseException:
            self.close()
            raise

    def serve(self, handler: type[BaseHTTPRequestHandler]) -> int:
        """Its port. Ends with the host."""
        made: list[ThreadingHTTPServer] = []
        self._inside(lambda: made.append(ThreadingHTTPServer((self.address, 0), handler)))
        server = made[0]
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self._servers.append(server)
        return server.server_port

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        _ip_if_there("link", "delete", self._outside)  # its peer goes with it
        _ip("netns", "delete", self.namespace)
        os.close(self._lock)

    def _inside(self, do: Callable[[], object]) -> None:
        """Open sockets in a thread of the namespace: they stay in it, whichever thread uses them."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                with Path("/run/netns", self.namespace).open() as file:
                    if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
                do()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]


def _claim() -> tuple[int, int]:
    """A locked file, and the network that no other process has until that file is closed or the process ends."""
    for slot in range(SLOTS):
        lock = os.open(Path(tempfile.gettempdir(), f"setpoint-pods-{slot}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return lock, slot
    raise RuntimeError(f"{SLOTS} networks are in use: more tests run on this machine than it has addresses for pods")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _ip_if_there(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
