"""An API server whose answers are up to the test, and scripts of them."""

from __future__ import annotations

import json
import re
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from clusters.fleet import (
    ObjectRef,
    PodRef,
)
from clusters.net.egress import Policy
from tests.controlplane.pki import Authority

HERE = Policy.of(["127.0.0.0/8"])
AUTHORITY = Authority()
TIMEOUT = 0.5
"""For tests of the timeout itself."""
PATIENCE_SECONDS = 20.0
"""For all others: a busy machine takes longer than TIMEOUT for an answer."""
POD = PodRef("default", "p", "uid-1")
QUOTA = ObjectRef("v1", "ResourceQuota", "gpus", "team-a")
NODE = {"kind": "Node", "metadata": {"name": "n1", "resourceVersion": "5", "managedFields": [1]}}
Script = Callable[[ssl.SSLSocket, str], None]


class Server:
    """TLS on 127.0.0.1; what it says to each request is up to the test."""

    def __init__(self, say: Script, host: str = "127.0.0.1") -> None:
        self.say = say
        self.requests: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "server.pem")
            path.write_text("".join(AUTHORITY.server([host])))
            self._context.load_cert_chain(path)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(plain,), daemon=True).start()

    def _talk(self, plain: socket.socket) -> None:
        try:
            with self._context.wrap_socket(plain, server_side=True) as connection:
                while request := self._request(connection):
                    self.requests.append(request)
                    self.say(connection, request)
        except OSError:
            plain.close()

    def _request(self, connection: ssl.SSLSocket) -> str:
        data = b""
        while b"\r\n\r\n" not in data:
            if not (chunk := connection.recv(65536)):
                return ""
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        while length and len(body) < int(length[1]):  # else what is left of it would begin the next request
            body += connection.recv(65536)
        return head.split(b"\r\n")[0].decode()

    def close(self) -> None:
        self._listener.close()


def answer(status: int, body: object, **headers: str) -> Script:
    text = body if isinstance(body, str) else json.dumps(body)
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())

    def say(connection: ssl.SSLSocket, request: str) -> None:
        raw = text.encode()
        connection.sendall(f"HTTP/1.1 {status} Said\r\nContent-Length: {len(raw)}\r\n{head}\r\n".encode() + raw)

    return say


def status(code: int, message: str = "said so", **details: object) -> dict[str, object]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "message": message, "details": details}
