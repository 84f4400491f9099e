"""Server on loopback that answers as a Prometheus does, or as one that is wrong."""

from __future__ import annotations

import json
import ssl
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from gpus.models import TelemetrySource
from gpus.telemetry import prometheus
from tests.controlplane.pki import Authority

Kind, Auth, State = TelemetrySource.Kind, TelemetrySource.Auth, TelemetrySource.State
AUTHORITY = Authority()
QUERIES = len(prometheus.queries())
Say = Callable[[str], "tuple[int, bytes]"]


class Server:
    """TLS on loopback; `say` answers a query with status and body. A client certificate is asked for, not required."""

    def __init__(self, say: Say) -> None:
        self.say, self.authorizations, self.peers = say, [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                outer.authorizations.append(self.headers.get("Authorization"))
                outer.peers.append(dict(entry[0] for entry in (self.connection.getpeercert() or {}).get("subject", ())))
                query = parse_qs(urlsplit(self.path).query).get("query", [""])[0]
                status, body = outer.say(query)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "server.pem").write_text("".join(AUTHORITY.server(["127.0.0.1"])))
            context.load_cert_chain(Path(folder, "server.pem"))
        context.load_verify_locations(cadata=AUTHORITY.pem)
        context.verify_mode = ssl.CERT_OPTIONAL
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def vector(*series: tuple[dict[str, str], object], at: float = 1_790_000_000.0) -> bytes:
    result = [{"metric": labels, "value": [at, str(value)]} for labels, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def gpu(name: str = "DCGM_FI_DEV_GPU_UTIL", uuid: str = "GPU-1", **more: str) -> dict[str, str]:
    return {"__name__": name, "gpu": "0", "UUID": uuid, "Hostname": "n1", "instance": "n1:9400", **more}


def asks_for(name: str, query: str) -> bool:
    """Return whether a query asks for the values of this metric, and not only for the sources that report it."""
    return f"{name}|" in query and "timestamp" not in query and not query.startswith("up and")


def good(query: str) -> tuple[int, bytes]:
    values = {"DCGM_FI_DEV_GPU_UTIL": 80, "DCGM_FI_DEV_FB_USED": 1024}
    return 200, vector(*((gpu(name), value) for name, value in values.items() if asks_for(name, query)))


def failing(status: int, error: str = "") -> Say:
    return lambda _: (status, json.dumps({"status": "error", "errorType": "x", "error": error}).encode())
