"""A plain OCI registry on loopback that keeps what helm pushes: enough of the distribution specification.

At two addresses: over TLS, which Setpoint wants of every registry, and without it, which helm wants of every one on
loopback.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.controlplane.pki import Authority


class Registry:
    def __init__(self, authority: Authority, folder: Path) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        """By `name:tag` and `name@digest`: media type and content."""
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, method: str) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with outer.lock:
                    kind = self.headers.get("Content-Type") or ""
                    status, body, headers = outer.answer(method, self.path, sent, kind)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if method != "HEAD":
                    self.wfile.write(body)

            def do_GET(self) -> None:
                self.answer("GET")

            def do_HEAD(self) -> None:
                self.answer("HEAD")

            def do_POST(self) -> None:
                self.answer("POST")

            def do_PUT(self) -> None:
                self.answer("PUT")

            def log_message(self, *_: Any) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        file = folder / "registry.pem"
        file.write_text("".join(authority.server(["127.0.0.1"])))
        context.load_cert_chain(file)
        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
        tls, plain = self._servers
        tls.socket = context.wrap_socket(tls.socket, server_side=True, do_handshake_on_connect=False)
        self.place, self.plain = (f"127.0.0.1:{server.server_address[1]}" for server in (tls, plain))
        for server in self._servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, method: str, path: str, sent: bytes, kind: str) -> tuple[int, bytes, dict[str, str]]:
        if path == "/v2/":
            return 200, b"{}", {}
        match = re.fullmatch(
            r"/v2/(?P<name>.+)/(?P<what>blobs|manifests|tags)/(?P<rest>[^?]+)(?:\?(?P<query>.*))?", path
        )
        if not match:
            return 404, b"", {}
        name, what, rest = match["name"], match["what"], match["rest"]
        if what == "tags":
            tags = [key.rpartition(":")[2] for key in self.manifests if key.startswith(f"{name}:")]
            return 200, f'{{"name": "{name}", "tags": {str(tags).replace(chr(39), chr(34))}}}'.encode(), {}
        digest = f"sha256:{hashlib.sha256(sent).hexdigest()}"
        if method == "POST":
            return 202, b"", {"Location": f"/v2/{name}/blobs/uploads/one"}
        if method == "PUT" and what == "blobs":
            self.blobs[digest] = sent
            return 201, b"", {"Location": f"/v2/{name}/blobs/{digest}", "Docker-Content-Digest": digest}
        if method == "PUT":
            self.manifests[f"{name}:{rest}"] = self.manifests[f"{name}@{digest}"] = (kind, sent)
            return 201, b"", {"Location": f"/v2/{name}/manifests/{digest}", "Docker-Content-Digest": digest}
        if what == "blobs":
            body = self.blobs.get(rest)
            return (404, b"", {}) if body is None else (200, body, {"Docker-Content-Digest": rest})
        known = self.manifests.get(f"{name}@{rest}" if rest.startswith("sha256:") else f"{name}:{rest}")
        if known is None:
            return 404, b"", {}
        content_digest = f"sha256:{hashlib.sha256(known[1]).hexdigest()}"
        return 200, known[1], {"Content-Type": known[0], "Docker-Content-Digest": content_digest}

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
