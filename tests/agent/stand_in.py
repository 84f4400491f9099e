"""A stand-in for the API server, for an agent that runs where no real one can be reached."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import threading
from collections.abc import Iterator

from contract import key_lists
from contract.nodetuning import Spec


class Answers(http.server.BaseHTTPRequestHandler):
    """A stand-in for the API server: one object, one endless watch, and what the agent writes."""

    protocol_version = "HTTP/1.1"
    tuning: dict
    written: dict[str, dict]
    has_written: threading.Event
    over: threading.Event

    def do_GET(self):
        if "watch=1" in self.path:
            self.send_response(200)
            self.end_headers()
            self.over.wait(30)
            self.close_connection = True
            return
        page = {"metadata": {"resourceVersion": "1"}, "items": [self.tuning]}
        self.answer(page if "fieldSelector" in self.path else self.tuning)

    def do_PATCH(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/status"):
            self.written["status"] = body[1]["value"]
            self.has_written.set()
        self.answer({})

    def answer(self, raw):
        data = json.dumps(raw).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def answering() -> Iterator[http.server.ThreadingHTTPServer]:
    """Serve on a free port of the loopback address; the handler class keeps the requests."""

    class Mine(Answers):
        written: dict = {}
        has_written, over = threading.Event(), threading.Event()
        spec = Spec("uid-1", observe=tuple(sorted(key_lists.ALLOWED))).to_json()
        tuning = {"metadata": {"name": "node-1", "uid": "object-1", "generation": 1}, "spec": spec}

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mine)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        Mine.over.set()
        server.shutdown()
        server.server_close()


def token() -> str:
    """Says of itself, as a pod's own does, to which node it is bound."""
    claims = {"kubernetes.io": {"node": {"name": "node-1", "uid": "uid-1"}}}
    return f"x.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.x"
