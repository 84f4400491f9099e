"""A receiver of webhooks on loopback, channels to it, and alerts."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from notices.channels import services
from notices.models import Alert

SECRET = "a secret of sixteen"


class Receiver:
    """A webhook's receiver on loopback: `answers` are the statuses of its next answers, then 200."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        mine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                mine.got.append((dict(self.headers), body))
                self.send_response(mine.answers.pop(0) if mine.answers else 200)
                self.send_header("Location", f"http://127.0.0.1:{mine.port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def bodies(self) -> list[dict]:
        return [json.loads(body) for _, body in self.got]


def hook(admin, url="https://chat.example/hook", **fields):
    wanted = {"name": "chat", "kind": "webhook", "url": url, "what": ["alerts"], "secret": SECRET} | fields
    return services.create(by=admin, **wanted)


def alert(cluster, subject="n1", **fields):
    fields = {"rule": "drift", "severity": "warning", "status": "open", "sentence": "It is amiss."} | fields
    return Alert.objects.create(cluster=cluster, subject_kind="node", subject=subject, subject_name=subject, **fields)
