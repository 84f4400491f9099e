"""A chart repository and an OCI registry on loopback, over TLS, that say what a test wants."""

from __future__ import annotations

import hashlib
import json
import ssl
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.controlplane.pki import Authority

AUTHORITY = Authority()
LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


class ChartServer:
    """`routes`: path to (status, body, headers). Every request's path and Authorization is kept in `asked`."""

    def __init__(self, authority: Authority = AUTHORITY, names: tuple[str, ...] = ("127.0.0.1", "localhost")) -> None:
        self.routes: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.asked: list[tuple[str, str]] = []
        self.wanted: dict[str, str] = {}
        """By path: the Authorization without which it answers 401 with `challenge`."""
        self.challenge = 'Basic realm="charts"'
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, self.headers.get("Authorization", "")))
                status, body, headers = outer._answer(self.path, self.headers.get("Authorization", ""))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # whoever hung up, meant to
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "server.pem")
            file.write_text("".join(authority.server(list(names))))
            context.load_cert_chain(file)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def _answer(self, path: str, authorization: str) -> tuple[int, bytes, dict[str, str]]:
        if self.wanted.get(path, authorization) != authorization:
            return 401, b"", {"WWW-Authenticate": self.challenge}
        return self.routes.get(path) or self.routes.get(path.partition("?")[0]) or (404, b"nothing here", {})

    def url(self, path: str = "", host: str = "127.0.0.1") -> str:
        return f"https://{host}:{self.port}{path}"

    def oci(self, path: str = "", host: str = "127.0.0.1") -> str:
        return f"oci://{host}:{self.port}{path}"

    def say(self, path: str, body: bytes | str | Any = b"", status: int = 200, **headers: str) -> None:
        raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.routes[path] = (status, raw, headers)

    def index(self, content: bytes, *, url: str = "tiny-1.2.3.tgz", path: str = "/charts", **entry: Any) -> None:
        """An index.yaml that offers tiny 1.2.3, and the archive beside it."""
        offered = {"name": "tiny", "version": "1.2.3", "urls": [url], "digest": hashlib.sha256(content).hexdigest()}
        older = offered | {"version": "1.2.2", "urls": ["tiny-1.2.2.tgz"]}
        self.say(f"{path}/index.yaml", {"apiVersion": "v1", "entries": {"tiny": [offered | entry, older]}})
        self.say(f"{path}/tiny-1.2.3.tgz", content)

    def artifact(self, content: bytes, *, tag: str = "1.2.3", path: str = "/charts/tiny", media: str = LAYER) -> str:
        """Manifest, blob and tags of an OCI artifact; answers the blob's digest."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        layer = {"mediaType": media, "digest": digest, "size": len(content)}
        self.say(f"/v2{path}/manifests/{tag}", {"schemaVersion": 2, "layers": [layer]})
        self.say(f"/v2{path}/blobs/{digest}", content)
        self.say(f"/v2{path}/tags/list", {"name": path[1:], "tags": ["1.2.2", tag]})
        return digest

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
