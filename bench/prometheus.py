"""`python -m bench.prometheus 40000`: a Prometheus of so many GPUs that answers the queries of one reading, over HTTP.

A process of its own, so that what it takes to make answers is nobody's cost. Every series has the labels that the GPU
Operator's ServiceMonitor gives it with `honorLabels: false`, in the order in which Prometheus prints them, and the
values of GPUs that are held change between two readings, as those of GPUs at work do.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

GPUS_A_NODE, HELD_A_NODE, NAMESPACES = 8, 6, 40
IDLE_EVERY = 12
"""Of the nodes: one in so many is held and does nothing."""
EXPORTERS = "gpu-operator"
DRIVER = "570.124.06"

_Value = Callable[[float, random.Random], str]
_DEV, _PROF = "DCGM_FI_DEV_", "DCGM_FI_PROF_"
VALUES: dict[str, _Value] = {
    # What the exporter's default list has of what Setpoint asks for: etc/default-counters.csv of 4.8; and SM_ACTIVE.
    f"{_DEV}SM_CLOCK": lambda busy, dice: str(1980 if busy else 345),
    f"{_DEV}MEM_CLOCK": lambda busy, dice: "2619",
    f"{_DEV}MEMORY_TEMP": lambda busy, dice: str(36 + int(busy * 40 + dice.random() * 3)),
    f"{_DEV}GPU_TEMP": lambda busy, dice: str(30 + int(busy * 40 + dice.random() * 3)),
    f"{_DEV}POWER_USAGE": lambda busy, dice: f"{70 + busy * 600 + dice.random():.6f}",
    f"{_DEV}TOTAL_ENERGY_CONSUMPTION": lambda busy, dice: str(int(time.monotonic() * 1e6 * (70 + busy * 600))),
    f"{_DEV}PCIE_REPLAY_COUNTER": lambda busy, dice: "0",
    f"{_DEV}GPU_UTIL": lambda busy, dice: str(int(busy * 100)),
    f"{_DEV}MEM_COPY_UTIL": lambda busy, dice: str(int(busy * 50)),
    f"{_DEV}XID_ERRORS": lambda busy, dice: "0",
    f"{_DEV}FB_FREE": lambda busy, dice: str(80000 - int(busy * 70000)),
    f"{_DEV}FB_USED": lambda busy, dice: str(int(busy * 70000)),
    f"{_DEV}FB_RESERVED": lambda busy, dice: "583",
    f"{_DEV}UNCORRECTABLE_REMAPPED_ROWS": lambda busy, dice: "0",
    f"{_DEV}CORRECTABLE_REMAPPED_ROWS": lambda busy, dice: "0",
    f"{_DEV}ROW_REMAP_FAILURE": lambda busy, dice: "0",
    f"{_PROF}GR_ENGINE_ACTIVE": lambda busy, dice: f"{busy * 0.98:.6f}",
    f"{_PROF}PIPE_TENSOR_ACTIVE": lambda busy, dice: f"{busy * 0.4:.6f}",
    f"{_PROF}DRAM_ACTIVE": lambda busy, dice: f"{busy * 0.5:.6f}",
    f"{_PROF}SM_ACTIVE": lambda busy, dice: f"{busy * 0.8:.6f}",
}


def node_name(node: int) -> str:
    return f"wide-gpu-{node:04d}"


def address(node: int) -> str:
    return f"10.{node // 65536}.{node // 256 % 256}.{node % 256}"


def exporter(node: int) -> str:
    return f"nvidia-dcgm-exporter-{node:05x}"


def holder(node: int) -> tuple[str, str]:
    """Namespace and pod: one pod holds six of a node's eight GPUs."""
    return f"team-{node % NAMESPACES:02d}", f"train-{node // NAMESPACES:03d}-worker-{node:04d}"


def _labels(node: int, index: int) -> tuple[str, str]:
    """JSON before and after the value of `__name__`."""
    namespace, pod = holder(node)
    held = {"exported_container": "main", "exported_namespace": namespace, "exported_pod": pod}
    labels = {
        "DCGM_FI_DRIVER_VERSION": DRIVER,
        "Hostname": node_name(node),
        "UUID": f"GPU-{uuid.UUID(int=(node << 64) + index * 7919 + 1)}",
        "__name__": "|",
        "container": "nvidia-dcgm-exporter",
        "device": f"nvidia{index}",
        "endpoint": "gpu-metrics",
        **(held if index < HELD_A_NODE else {}),
        "gpu": str(index),
        "instance": f"{address(node)}:9400",
        "job": "nvidia-dcgm-exporter",
        "modelName": "NVIDIA H100 80GB HBM3",
        "namespace": EXPORTERS,
        "pci_bus_id": f"00000000:{index * 16 + 27:02X}:00.0",
        "pod": exporter(node),
        "service": "nvidia-dcgm-exporter",
    }
    before, _, after = json.dumps({"metric": labels}, separators=(",", ":"))[:-1].partition("|")
    return before, after


class Fleet:
    def __init__(self, gpus: int) -> None:
        self.nodes = gpus // GPUS_A_NODE
        self.dice = random.Random(1)
        self.labels = [_labels(node, index) for node in range(self.nodes) for index in range(GPUS_A_NODE)]
        self.busy = [0.0] * len(self.labels)
        self.asked = 0
        self.forward()

    def forward(self) -> None:
        """The next reading finds other values."""
        self.asked = 0
        for number in range(len(self.busy)):
            node, index = divmod(number, GPUS_A_NODE)
            at_work = index < HELD_A_NODE and node % IDLE_EVERY
            self.busy[number] = self.dice.uniform(0.3, 1.0) if at_work else 0.0

    def answer(self, query: str) -> Iterator[str]:
        self.asked += 1
        at = f"{time.time():.3f}"
        yield '{"status":"success","data":{"resultType":"vector","result":['
        yield ",".join(self._targets(at, "timestamp" in query) if query[:1] != "{" else self._series(at, query))
        yield "]}}"

    def _targets(self, at: str, ages: bool) -> Iterator[str]:
        """Yield when each exporter was scraped (`ages`); or `up`, with the labels of the target."""
        for node in range(self.nodes):
            instance = f'"instance":"{address(node)}:9400"'
            if ages:
                yield f'{{"metric":{{{instance}}},"value":[{at},"{time.time() - 7:.3f}"]}}'
                continue
            yield (
                f'{{"metric":{{"__name__":"up","container":"nvidia-dcgm-exporter","endpoint":"gpu-metrics",{instance},'
                f'"job":"nvidia-dcgm-exporter","namespace":"{EXPORTERS}","pod":"{exporter(node)}",'
                f'"service":"nvidia-dcgm-exporter"}},"value":[{at},"1"]}}'
            )

    def _series(self, at: str, query: str) -> Iterator[str]:
        names = re.search(r'__name__=~"([^"]*)"', query)
        for name in names[1].split("|") if names else ():
            if (value := VALUES.get(name)) is not None:
                for (before, after), busy in zip(self.labels, self.busy, strict=True):
                    yield f'{before}{name}{after},"value":[{at},"{value(busy, self.dice)}"]}}'


def main() -> None:
    fleet = Fleet(int(sys.argv[1]))

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/forward":
                body = str(fleet.asked).encode()
                fleet.forward()
            else:
                body = "".join(fleet.answer(parse_qs(parts.query)["query"][0])).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
