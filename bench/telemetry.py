"""Cost of one reading of a cluster's GPUs, with its history: seconds of CPU, memory, queries and statements.

A Prometheus of the bench answers (bench/prometheus.py), Setpoint reads it as its worker does: the same claim, the same
rows. Only the clock is moved by hand, so that steps of five minutes and of an hour end when the bench wants them to.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

from bench import prometheus
from bench.measure import TICKS, Table, load
from bench.pages import ROOT
from bench.pages import _empty as empty
from bench.pages import _run as run

BEGAN = datetime(2026, 11, 22, 12, 53, 40, tzinfo=UTC)
FIRST, USUAL, FIVE, HOUR = "the first", "a usual one", "five minutes end", "an hour ends"
SCRIPT = [(0, FIRST), (30, USUAL), (60, USUAL), (90, FIVE), (120, USUAL), (290, ""), (390, HOUR)]
"""Seconds after the beginning; what has no name is not told of."""
PATIENCE_SECONDS = 1800.0
POOLS = ("train", "serve", "dev", "spot")


def measure(counts: Sequence[int]) -> list[Table]:
    table = Table(
        "One reading",
        ["GPUs", "database", "what ends", "CPU, s", "of it to read", "to store", "of history", "CPU a GPU, ms",
         "PostgreSQL's CPU, s", "queries", "statements", "of them a 1,000 GPUs", "peak RSS, MiB", "load"],
        "20 series a GPU with 16 to 19 labels; between two readings the values of two in three GPUs change. CPU of the "
        "process that reads, SQLite's with it. Statements as Django sends them; one for many rows is one. RSS is the "
        "highest of the process until then, with all of Setpoint loaded.",
    )  # fmt: skip
    for database in ("SQLite", "PostgreSQL"):
        for gpus in (nodes * prometheus.GPUS_A_NODE for nodes in counts):
            with empty(database) as environment, _prometheus(gpus, environment) as url:
                readings = json.loads(run("bench.telemetry", str(gpus), url, environment=environment))
            for reading in readings:
                each = reading["statements"] / gpus * 1000
                table.add(
                    gpus, database, reading["name"], reading["cpu"], reading["read"], reading["stored"],
                    reading["history"], reading["cpu"] / gpus * 1000,
                    reading["server"] if database == "PostgreSQL" else "", reading["queries"],
                    reading["statements"], each, reading["rss"], load(),
                )  # fmt: skip
    return [table]


@contextmanager
def _prometheus(gpus: int, environment: dict[str, str]) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.prometheus", str(gpus)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


# ── in the process that reads ─────────────────────────────────────────────────────────────────────────────────────────
class Pods:
    """Exporters' pods: all that a reading of Prometheus asks of a cluster."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    def labeled_pods(self, selector: str) -> list[dict[str, Any]]:
        if selector != "app=nvidia-dcgm-exporter":
            return []
        return [_pod(node) for node in range(self._nodes)]


def _pod(node: int) -> dict[str, Any]:
    meta = {"namespace": prometheus.EXPORTERS, "name": prometheus.exporter(node), "uid": f"exporter-{node}"}
    image = "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.2-4.8.1-ubuntu22.04"
    return {
        "metadata": meta,
        "spec": {"nodeName": prometheus.node_name(node), "containers": [{"name": "exporter", "image": image}]},
        "status": {"phase": "Running", "podIP": prometheus.address(node)},
    }


def fill(gpus: int, url: str) -> Any:
    """A cluster with so many GPUs, of which three in four are held, and its source."""
    from django.core.management import call_command

    from clusters.models import Cluster, GpuPod, Node, Pool
    from gpus.models import TelemetrySource

    call_command("migrate", verbosity=0)
    cluster = Cluster.objects.create(name="wide", uid="wide", server="https://wide.example:6443")
    nodes = range(gpus // prometheus.GPUS_A_NODE)
    Node.objects.bulk_create(
        (
            Node(
                cluster=cluster, uid=str(node), name=prometheus.node_name(node), is_ready=True,
                gpu_count=prometheus.GPUS_A_NODE, gpu_allocated=prometheus.HELD_A_NODE,
                gpu_product="NVIDIA-H100-80GB-HBM3", labels={"pool": POOLS[node % len(POOLS)]},
            )
            for node in nodes
        ),
        batch_size=500,
    )  # fmt: skip
    GpuPod.objects.bulk_create(
        (
            GpuPod(
                cluster=cluster, uid=f"pod-{node}", namespace=prometheus.holder(node)[0],
                name=prometheus.holder(node)[1], node_name=prometheus.node_name(node), gpus=prometheus.HELD_A_NODE,
                owner_kind="Job", owner_name=f"train-{node // 40}",
            )
            for node in nodes
        ),
        batch_size=500,
    )  # fmt: skip
    for pool in POOLS:
        Pool.objects.create(cluster=cluster, name=pool, selector={"matchLabels": {"pool": pool}})
    return TelemetrySource.objects.create(cluster=cluster, kind=TelemetrySource.Kind.PROMETHEUS, url=url)


class Meter:
    """CPU by part of a reading, and statements."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = defaultdict(float)
        self.statements = 0

    def timed(self, name: str, function: Any) -> Any:
        def measured(*given: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return function(*given, **named)
            finally:
                self.parts[name] += time.process_time() - began

        return measured

    def counted(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.statements += 1
        return execute(sql, params, many, context)


def tick_all(gpus: int, url: str) -> list[dict[str, Any]]:
    import django

    django.setup()
    from django.db import connection
    from django.utils import timezone

    from clusters.connection import registry
    from config import memory
    from gpus.models import TelemetrySource
    from gpus.services import polling
    from gpus.storage import devices, rollups
    from gpus.telemetry import prometheus as asking

    source = fill(gpus, url)
    names = {"read": (polling, "read"), "stored": (devices, "store"), "history": (rollups, "store")}
    originals = {name: getattr(*place) for name, place in names.items()}
    # A machine that does other work besides makes it slow, not different.
    originals["read"], asking.CALL_SECONDS = partial(polling.read, seconds=PATIENCE_SECONDS), PATIENCE_SECONDS
    readings: list[dict[str, Any]] = []
    memory.freeze()  # as a worker does when it is ready
    with registry.override(source.cluster_id, cast("Any", Pods(gpus // prometheus.GPUS_A_NODE))):
        for seconds, name in SCRIPT:
            at = BEGAN + timedelta(seconds=seconds)
            timezone.now = partial(datetime.astimezone, at)
            TelemetrySource.objects.update(due_at=at)
            if name == HOUR:
                _rest_of_the_hour(source.cluster_id, at)
            meter = Meter()
            for part, (module, attribute) in names.items():
                setattr(module, attribute, meter.timed(part, originals[part]))
            cpu, server = time.process_time(), _server()
            with connection.execute_wrapper(meter.counted):
                assert polling.tick(source.pk)
            used, served = time.process_time() - cpu, _server() - server
            source.refresh_from_db()
            assert (source.state, source.devices) == ("well", gpus), source.sentence
            queries = int(urllib.request.urlopen(f"{url}/forward").read())
            rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            shown = {"name": name, "cpu": used, "server": served, "queries": queries, "rss": rss}
            readings.append(shown | {part: meter.parts[part] for part in names} | {"statements": meter.statements})
            sys.stderr.write(f"{gpus} {shown} {dict(meter.parts)} {meter.statements}\n")
    usual = [reading for reading in readings if reading["name"] == USUAL]
    rest = [reading for reading in readings if reading["name"] and reading["name"] != USUAL]
    usual.sort(key=lambda reading: reading["cpu"])
    return [*rest[:1], usual[len(usual) // 2], *rest[1:]]


def _server() -> float:
    """Seconds of CPU that this connection's own process of PostgreSQL used so far; 0 of SQLite."""
    from django.db import connection

    if connection.vendor != "postgresql":
        return 0.0
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    with open(f"/proc/{pid}/stat") as stat:
        words = stat.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def _rest_of_the_hour(cluster_id: Any, at: datetime) -> None:
    """Its other fives are copies of the last one, so that an hour ends that is as full as an hour is."""
    from gpus.models import GpuPacked

    rows = list(GpuPacked.objects.filter(cluster=cluster_id, seconds=300))
    (start,) = {row.start for row in rows}
    hour = start.replace(minute=0)
    for number in range(10):
        GpuPacked.objects.bulk_create(
            (
                GpuPacked(
                    cluster_id=cluster_id, seconds=300, start=hour + timedelta(minutes=5 * number), of=row.of,
                    shard=row.shard, data=bytes(row.data),
                )
                for row in rows
            ),
            batch_size=100,
        )  # fmt: skip


if __name__ == "__main__":
    json.dump(tick_all(int(sys.argv[1]), sys.argv[2]), sys.stdout)
