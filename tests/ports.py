"""Loopback ports for servers that a test starts, and starts again. Standard library only.

Not what binding to port 0 gives: that is of the range from which every outgoing connection takes its own port. Such a
port is taken again by any connection while a server is on its way up; and a client of one that is down connects
to itself in the end (RFC 9293, simultaneous open) and keeps it.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST = 10_000
"""Below are the ports of what a machine serves."""
_random = random.SystemRandom()


def free_port() -> int:
    """Return a port on which no server listens and which no outgoing connection gets.

    A start still fails loudly if another server takes it.
    """
    outgoing = int(OUTGOING.read_text().split()[0]) if OUTGOING.exists() else 32_768
    if outgoing <= FIRST:
        raise RuntimeError(f"{OUTGOING} begins at {outgoing}: tests need ports from {FIRST} below it")
    for port in _random.sample(range(FIRST, outgoing), 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"a hundred ports between {FIRST} and {outgoing} are all taken")
