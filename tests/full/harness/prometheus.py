"""Debian's Prometheus on loopback with exporters to scrape; its data is in the directory that goes away."""

from __future__ import annotations

import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import URLError

import yaml

from tests.full.harness.servers import Server, ServerMissing


@dataclass(frozen=True)
class Job:
    name: str
    text: str
    """What its one target says."""
    honors_labels: bool
    labels: Mapping[str, str]
    """Of the target, as a ServiceMonitor's relabeling sets them."""


class Prometheus(Server):
    kind = "prometheus"

    def __init__(self, jobs: Sequence[Job], history: str = "") -> None:
        """`history`: OpenMetrics text with times, which it has already when it starts."""
        super().__init__()
        self._history = history
        self.url = f"http://127.0.0.1:{self.port}"
        self._jobs = jobs
        self._exporters = exporters({f"/{job.name}": job.text for job in jobs})

    def _prepare(self) -> None:
        at = f"127.0.0.1:{self._exporters.server_port}"
        scraped = [
            {
                "job_name": job.name,
                "honor_labels": job.honors_labels,
                "metrics_path": f"/{job.name}",
                "static_configs": [{"targets": [at], "labels": {"instance": job.name, **job.labels}}],
            }
            for job in self._jobs
        ]
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": scraped}
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        if self._history:
            (self.folder / "history.om").write_text(self._history)
            command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "history.om", "data"]
            subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

    def _command(self) -> list[str]:
        program = shutil.which("prometheus")
        if program is None:
            raise ServerMissing("prometheus is not on PATH")
        return [
            program,
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def close(self) -> None:
        super().close()
        self._exporters.shutdown()
        self._exporters.server_close()


def serving(texts: Mapping[str, str]) -> type[BaseHTTPRequestHandler]:
    """Answers as an exporter does, by path."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

        def do_GET(self) -> None:
            body = texts[self.path].encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def exporters(texts: Mapping[str, str]) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), serving(texts))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server
