"""The other door: simulated clusters over HTTP(S) on the loopback, as far as Setpoint and helm v3 ask for anything.

    with Door(cluster, token="...", ssl_context=None) as door:
        door.url                                     # http://127.0.0.1:PORT; one door, and port, for each cluster

Paths, queries, statuses and bodies are a real API server's: lists with selectors and continue, watches with bookmarks,
merge, strategic and apply patches, dry runs, status, eviction, deletion by policy, access reviews, discovery. What it
does not serve is 404 page not found, 405 or 415.

It does not judge objects: schemas, quota, admission webhooks, pod security and RBAC are a real control plane's alone,
and unknown fields are kept. Nor does it serve pod logs, tables, JSON patches or deletion of whole collections.
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from http.server import ThreadingHTTPServer
from typing import Any

from simfleet.apiserver.callers import SETPOINT, Caller
from simfleet.apiserver.handler import Handler
from simfleet.core import SimCluster

LOOPBACK = "127.0.0.1"
IDLE_SECONDS = 120.0


class Door:
    """A cluster's HTTP server in threads of its own. A context manager."""

    def __init__(
        self,
        cluster: SimCluster,
        *,
        tokens: Mapping[str, Caller] | None = None,
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """`tokens`: the account of each bearer token. `ssl_context`: serve TLS with it."""
        self.cluster = cluster
        self.tokens = dict(tokens or {"sim": SETPOINT})
        self._ends: dict[str, float] = {}
        self._scheme = "https" if ssl_context else "http"
        self._server = Server((LOOPBACK, port), Handler)
        self._server.door, self._server.ssl_context = self, ssl_context
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name=f"door-{cluster.name}", daemon=True
        )

    @property
    def url(self) -> str:
        return f"{self._scheme}://{LOOPBACK}:{self._server.server_address[1]}"

    def admit(self, token: str, caller: Caller, *, until: float) -> None:
        """Let a token in until that time of the wall, in seconds since 1970."""
        self.tokens[token], self._ends[token] = caller, until

    def caller(self, token: str) -> Caller | None:
        """None: unknown, or its time is over."""
        return None if self._ends.get(token, time.time() + 1) <= time.time() else self.tokens.get(token)

    def start(self) -> Door:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._server.cut()
        self._thread.join(timeout=10)

    def cut(self) -> None:
        """Cut every open connection, watches included; new ones are welcome."""
        self._server.cut()

    def __enter__(self) -> Door:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    door: Door
    ssl_context: ssl.SSLContext | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands and answer in the connection's own thread, so that a slow TLS handshake blocks no other."""
        request.settimeout(IDLE_SECONDS)
        if self.ssl_context:
            request = self.ssl_context.wrap_socket(request, server_side=True)
        with self._open_lock:
            self._open.add(request)
        try:
            super().finish_request(request, client_address)
        finally:
            with self._open_lock:
                self._open.discard(request)
            if self.ssl_context:
                self.shutdown_request(request)

    def cut(self) -> None:
        with self._open_lock:
            connections = list(self._open)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections break in tests of broken connections; anything else is a bug and is printed."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)
