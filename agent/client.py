"""The few requests the agent makes of the API server, over the standard library's HTTP client.

A client belongs to one thread. Every request has a timeout; the token is read again when its file changes.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit

from contract.clock import of_header
from contract.names import API_VERSION, NAMESPACE, PLURAL, lease_name

TIMEOUT_SECONDS = 10.0
WATCH_SECONDS = 240
WATCH_GRACE_SECONDS = 30.0
"""A watch that the server has not ended this long after its time is a dead connection."""
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A watch whose server or firewall has forgotten it ends after 60 s: meanwhile the Lease, on another connection, is
renewed, and the control plane waits for an agent that seems to be there."""
LARGEST_ANSWER = 8 << 20
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
TUNINGS = f"/apis/{API_VERSION}/{PLURAL}"
NODES = "/api/v1/nodes"


class Unavailable(Exception):
    """Timeout, refused connection, TLS failure, 429, 5xx, or no JSON: the request may succeed later."""


class RequestRefused(Exception):
    """The API server said no. `code` is the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


def _metadata(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = raw.get("metadata", {})
    if not isinstance(metadata, dict):
        raise Unavailable("the answer's metadata is no object")
    return metadata


def _checked(raw: Any) -> dict[str, Any]:
    """An object with the UID and the generation that the agent goes by. Raises Unavailable."""
    if not isinstance(raw, dict):
        raise Unavailable("the answer is no object")
    metadata = _metadata(raw)
    if not isinstance(metadata.get("uid"), str) or type(metadata.get("generation")) is not int:
        raise Unavailable("the object has no UID, or no generation")
    return raw


@cache
def _tls(ca_file: str | None) -> ssl.SSLContext:
    """One for all clients: its certificates and tables are most of what a connection costs in memory."""
    return ssl.create_default_context(cafile=ca_file)


class Client:
    def __init__(self, server: str, *, token_file: str, ca_file: str | None, timeout: float = TIMEOUT_SECONDS) -> None:
        parts = urlsplit(server)
        self._https = parts.scheme == "https"
        self._address = (parts.hostname or "", parts.port or (443 if self._https else 80))
        self._tls = _tls(ca_file) if self._https else None
        self._token_file = token_file
        self._timeout = timeout
        self._token = ("", 0.0)
        self._connection: http.client.HTTPConnection | None = None
        self._date: float | None = None
        """Of the latest answer."""

    def token(self) -> str:
        """Raises OSError."""
        changed = os.stat(self._token_file).st_mtime
        if self._token[1] != changed:
            with open(self._token_file, encoding="ascii", errors="replace") as file:
                self._token = (file.read().strip(), changed)
        return self._token[0]

    # ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────────
    def tuning(self, name: str) -> tuple[dict[str, Any] | None, float | None]:
        """The NodeTuning, past every cache, and when the API server said so by its own clock (s since the epoch).

        None for the object if there is none, and for the time without a Date. Raises Unavailable, Refused.
        """
        try:
            return _checked(self._json("GET", f"{TUNINGS}/{quote(name)}")), self._date
        except RequestRefused as error:
            if error.code == 404:
                return None, None
            raise

    def reaches(self, name: str) -> bool:
        """Return whether the API server answers a question about this object now, also where it refuses."""
        try:
            self.tuning(name)
        except RequestRefused:
            return True
        except (Unavailable, OSError):
            return False
        finally:
            self.close()  # the next question takes a new connection: a kept one would hide what has changed
        return True

    def list_one(self, name: str) -> tuple[dict[str, Any] | None, str]:
        """The NodeTuning if there is one, and the resource version to watch from. Raises Unavailable, Refused."""
        page = self._json("GET", f"{TUNINGS}?fieldSelector=metadata.name%3D{quote(name)}")
        items = page.get("items") or []
        if not isinstance(items, list):
            raise Unavailable("the list has no items")
        return (_checked(items[0]) if items else None), str(_metadata(page).get("resourceVersion", ""))

    def watch_one(self, name: str, resource_version: str) -> Iterator[dict[str, Any]]:
        """Events of that one object until the server ends the watch. Raises Unavailable, Refused (410: list again)."""
        path = (
            f"{TUNINGS}?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
            f"&fieldSelector=metadata.name%3D{quote(name)}&resourceVersion={quote(resource_version)}"
        )
        try:
            response = self._send("GET", path, None, {}, WATCH_SECONDS + WATCH_GRACE_SECONDS)
            self._raise_for(response)
            while line := response.readline(LARGEST_ANSWER):
                event = json.loads(line)
                received = event.get("object") if isinstance(event, dict) else None
                if not isinstance(received, dict):
                    raise Unavailable("watch: an event has no object")
                if event.get("type") == "ERROR":
                    code = received.get("code")
                    raise RequestRefused(code if isinstance(code, int) else 0, str(received.get("message", ""))[:300])
                _metadata(received)
                yield (
                    event if event.get("type") not in ("ADDED", "MODIFIED") else event | {"object": _checked(received)}
                )
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise Unavailable(f"watch: {error}") from error
        finally:
            self.close()

    def write_status(self, name: str, uid: str, status: Mapping[str, Any]) -> None:
        """Replace the status as a whole, only on the object of that UID. Raises Unavailable, Refused."""
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/status", "value": {k: v for k, v in status.items() if v is not None}},
        ]
        self._json("PATCH", f"{TUNINGS}/{quote(name)}/status", patch, "application/json-patch+json")

    def renew_lease(self, node: str, node_uid: str, seconds: int, now: str) -> None:
        """Say that the agent lives; `now` is RFC 3339 with microseconds. Raises Unavailable, Refused."""
        name = lease_name(node)
        spec = {"holderIdentity": node, "leaseDurationSeconds": seconds, "renewTime": now}
        try:
            self._json("PATCH", f"{LEASES}/{quote(name)}", {"spec": spec}, "application/merge-patch+json")
        except RequestRefused as error:
            if error.code != 404:
                raise
            owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
            metadata = {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner]}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            self._json("POST", LEASES, lease, "application/json")

    def node(self, name: str) -> tuple[dict[str, Any], float | None]:
        """The Node, and when the API server said so (s since the epoch). Raises Unavailable, Refused."""
        return self._json("GET", f"{NODES}/{quote(name)}"), self._date

    def untaint(self, name: str, uid: str, place: int, taint: Mapping[str, Any]) -> None:
        """Remove this taint from the Node of that UID, if it is still in its place. Raises Unavailable, Refused."""
        path, same_node = f"/spec/taints/{place}", {"op": "test", "path": "/metadata/uid", "value": uid}
        patch = [
            same_node,
            {"op": "test", "path": path, "value": taint},
            {"op": "remove", "path": path},
        ]
        self._json("PATCH", f"{NODES}/{quote(name)}", patch, "application/json-patch+json")

    # ── how ───────────────────────────────────────────────────────────────────────────────────────────────────────
    def _json(self, method: str, path: str, body: Any = None, content_type: str = "") -> dict[str, Any]:
        headers = {"Content-Type": content_type} if content_type else {}
        data = None if body is None else json.dumps(body).encode()
        try:
            response = self._send(method, path, data, headers, self._timeout)
            self._raise_for(response)
            self._date = of_header(response.getheader("Date"))
            answer = json.loads(response.read(LARGEST_ANSWER))
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            self.close()
            raise Unavailable(f"{method} {path.partition('?')[0]}: {error}") from error
        if not isinstance(answer, dict):
            raise Unavailable(f"{method} {path.partition('?')[0]}: the answer is no object")
        return answer

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout: float
    ) -> http.client.HTTPResponse:
        """One request; a kept connection that the server has closed meanwhile is reopened once."""
        everything = {"Authorization": f"Bearer {self.token()}", "Accept": "application/json", **headers}
        kept = self._connection is not None
        while True:
            connection = self._connection or self._connect(timeout)
            try:
                if connection.sock is None:
                    connection.connect()
                for option in KEEPALIVE:
                    connection.sock.setsockopt(*option)
                connection.sock.settimeout(timeout)  # a kept connection may have served a shorter request
                connection.request(method, path, body, everything)
                return connection.getresponse()
            except (http.client.RemoteDisconnected, ConnectionError, http.client.CannotSendRequest):
                self.close()
                if not kept:
                    raise
                kept = False

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._address
        if self._tls:
            self._connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=timeout)
        return self._connection

    def _raise_for(self, response: http.client.HTTPResponse) -> None:
        if response.status < 300:
            return
        text = response.read(65536).decode(errors="replace")
        try:
            message = str(json.loads(text).get("message", ""))
        except (ValueError, AttributeError, RecursionError):
            message = text
        if response.status == 429 or response.status >= 500:
            raise Unavailable(f"{response.status}: {message[:300]}")
        raise RequestRefused(response.status, message[:300])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
