"""Exporters' pods, found by their labels and read one by one through the API server's proxy.

A service would answer with one pod of many, so each is asked itself. So many at once as the API server bears, and no
more texts in memory than those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from clusters import objects
from clusters.fleet import Backend, Fleet, FleetError, Forbidden
from gpus.metrics import amd
from gpus.metrics.samples import ExporterPod, Series
from gpus.telemetry import exporter_pods, exposition
from gpus.telemetry.source import Gathering, Unreadable

PORT, PORT_NAME = "9400", "metrics"
CALL_SECONDS = 8.0
"""An exporter answers in milliseconds; one that waits for a driver that hangs, never."""
MOST_BYTES = 8 * 1024 * 1024
"""Of one exporter: 16 GPUs in 7 instances with 60 families are 3 MB."""
MEND = "apply deploy/setpoint-gpus.yaml for its namespace (deploy/README.md)"


class Scraping:
    """Fills gpus.telemetry.source.Telemetry for NVIDIA's dcgm-exporter and AMD's device-metrics-exporter."""

    def __init__(self, fleet: Fleet, *, at_once: int, namespace: str = "") -> None:
        self._fleet, self._at_once, self._namespace = fleet, at_once, namespace

    def close(self) -> None:
        """The fleet belongs to the caller."""

    def series(self, into: Gathering) -> Iterator[Series]:
        try:
            pods = exporter_pods.listed(self._fleet, self._namespace)
        except FleetError as error:
            raise Unreadable(f"The exporters' pods could not be listed: {error}.") from error
        into.asked = len(pods)
        ready = []
        for pod in pods:
            into.exporters.append(known := exporter_pods.known(pod))
            if (phase := (pod.get("status") or {}).get("phase")) == "Running":
                ready.append((known, _backend(pod)))
            else:
                into.missed(_title(known), f"The pod is {phase or 'not started'}.")
        for exporter, text in self._texts(ready, into):
            yield from exposition.parse(text, findings=into.findings, exporter=_title(exporter))

    def _texts(self, pods: list[tuple[ExporterPod, Backend]], into: Gathering) -> Iterator[tuple[ExporterPod, str]]:
        """Yield exporters' answers as they arrive. Once a namespace is forbidden, no further pod of it is asked."""
        waiting = iter(pods)
        forbidden: dict[str, str] = {}
        with ThreadPoolExecutor(max_workers=self._at_once, thread_name_prefix="exporters") as pool:
            open_: dict[Future[str], ExporterPod] = {}
            while True:
                while len(open_) < self._at_once and (next_pod := next(waiting, None)):
                    exporter, backend = next_pod
                    if why := forbidden.get(exporter.namespace):
                        into.missed(_title(exporter), why)
                    elif not into.left:
                        into.missed(_title(exporter), "It was not asked: the time for one reading was over.")
                    else:
                        open_[pool.submit(self._text, backend, min(CALL_SECONDS, into.left))] = exporter
                if not open_:
                    return
                for done in wait(open_, return_when=FIRST_COMPLETED).done:
                    exporter = open_.pop(done)
                    try:
                        yield exporter, done.result()
                    except Forbidden as error:
                        forbidden[exporter.namespace] = f"Setpoint {error}: {MEND}."
                        into.missed(_title(exporter), forbidden[exporter.namespace])
                    except (FleetError, _Refused) as error:
                        into.missed(_title(exporter), f"{error}.")

    def _text(self, backend: Backend, timeout: float) -> str:
        reply = self._fleet.through(backend, "metrics", limit=MOST_BYTES, timeout=timeout)
        if reply.status != 200:
            raise _Refused(f"The exporter answered {reply.status}")
        return reply.body.decode(errors="replace")


class _Refused(Exception):
    """The exporter itself said no."""


def _backend(pod: Mapping[str, Any]) -> Backend:
    ports = [
        port for container in (pod.get("spec") or {}).get("containers") or () for port in container.get("ports") or ()
    ]
    usual = amd.PORT if exporter_pods.is_amd(pod) else PORT
    named = next((str(port["containerPort"]) for port in ports if port.get("name") == PORT_NAME), usual)
    meta = objects.meta(pod)
    return Backend("pods", str(meta.get("namespace")), str(meta.get("name")), named)


def _title(pod: ExporterPod) -> str:
    return f"{pod.namespace}/{pod.name}"
