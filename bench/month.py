"""The funnel and a month of state bands of 40,000 GPUs in one cluster: server time by part, on both databases.

Rows are as readings write them: for each hour one of the cluster, of each pool, model and namespace, and of each node.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from bench.measure import Table, load, median
from bench.pages import _empty as empty
from bench.pages import _run as run

GPUS_A_NODE, POOLS, MODELS, NAMESPACES = 8, 10, 3, 100
HOURS = 31 * 24
REQUESTS, WARM_UPS = 10, 2
MOST_MS = 200


def measure(counts: Sequence[int]) -> list[Table]:
    table = Table(
        "The funnel and thirty days of state bands",
        ["GPUs", "database", "rows of bands", "what", "queries", "p50 / slowest, ms", "CPU p50 / most, ms", "load"],
        f"One cluster with {POOLS} pools, {MODELS} models and {NAMESPACES} namespaces, and its nodes' rows of "
        f"{HOURS // 24} days beside. In-process, {REQUESTS} times after {WARM_UPS} that do not count. CPU is "
        "the web process', SQLite with it.",
    )  # fmt: skip
    for database in ("SQLite", "PostgreSQL"):
        for nodes in counts:
            with empty(database) as environment:
                measured = json.loads(run("bench.month", str(nodes), environment=environment))
            for question in measured["asked"]:
                wall, cpu = (f"{median(question[clock]):.0f} / {max(question[clock]):.0f}" for clock in ("wall", "cpu"))
                gpus = nodes * GPUS_A_NODE
                table.add(gpus, database, measured["rows"], question["what"], question["queries"], wall, cpu, load())
    return [table]


# ── in the process that serves ────────────────────────────────────────────────────────────────────────────────────────
def fill(count: int) -> tuple[Any, Any]:
    from django.core.management import call_command
    from django.db import connection

    from accounts.models import User
    from clusters.models import Cluster, Node, Pool
    from common.clock import now
    from gpus.models import NodeTally, TelemetrySource

    call_command("migrate", verbosity=0)
    person = User.objects.create_superuser("bench", "bench@example.com", "x" * 32)
    cluster = Cluster.objects.create(name="wide", uid="wide", server="https://wide.example:6443")
    TelemetrySource.objects.create(cluster=cluster, state="well", read_at=now() + timedelta(hours=1))
    for number in range(POOLS):
        Pool.objects.create(cluster=cluster, name=f"pool-{number}", selector={"matchLabels": {"pool": str(number)}})
    Node.objects.bulk_create(
        (
            Node(
                cluster=cluster, uid=str(number), name=f"wide-{number:04d}", is_ready=True, gpu_count=GPUS_A_NODE,
                gpu_allocated=6, gpu_product=f"NVIDIA-H{number % MODELS}00", labels={"pool": str(number % POOLS)},
            )
            for number in range(count)
        ),
        batch_size=500,
    )  # fmt: skip
    NodeTally.objects.bulk_create(
        (NodeTally(node=node, effective=3, low=2, held=1, free=2) for node in Node.objects.all()), batch_size=500
    )
    _bands(cluster, count)
    if connection.vendor == "postgresql":
        connection.cursor().execute("ANALYZE")
    return person, cluster


def _bands(cluster: Any, nodes: int) -> None:
    """One hour through the product's own model, the others as its copies, in SQL."""
    from django.db import connection, transaction

    from common.clock import now
    from gpus.models import GpuBand

    dice, hour = random.Random(1), now().replace(minute=0, second=0, microsecond=0)
    whole = nodes * GPUS_A_NODE
    scopes = [("cluster", [""], whole), ("pool", [f"pool-{n}" for n in range(POOLS)], whole / POOLS)]
    scopes += [("model", [f"NVIDIA H{n}00" for n in range(MODELS)], whole / MODELS)]
    scopes += [("namespace", [f"team-{n:03d}" for n in range(NAMESPACES)], whole / NAMESPACES)]
    scopes += [("node", [f"wide-{n:04d}" for n in range(nodes)], GPUS_A_NODE)]
    GpuBand.objects.bulk_create(
        (
            GpuBand(
                cluster=cluster, scope=scope, name=name, seconds=3600, start=hour, recorded=3600, joules=gpus * 1e6,
                effective=gpus * 1800, low=gpus * dice.random() * 600, held=gpus * 300, free=gpus * 900,
            )
            for scope, names, gpus in scopes
            for name in names
        ),
        batch_size=500,
    )  # fmt: skip
    copied = [str(field.column) for field in GpuBand._meta.fields if field.name not in ("id", "start")]
    names, began = ", ".join(copied), time.perf_counter()
    with transaction.atomic(), connection.cursor() as cursor:
        for number in range(1, HOURS):
            then = GpuBand._meta.get_field("start").get_db_prep_value(hour - timedelta(hours=number), connection)
            first = GpuBand._meta.get_field("start").get_db_prep_value(hour, connection)
            cursor.execute(
                f"INSERT INTO gpus_gpuband ({names}, start) SELECT {names}, %s FROM gpus_gpuband WHERE start = %s",
                [then, first],
            )
    sys.stderr.write(f"a month of rows made in {time.perf_counter() - began:.0f} s\n")


def ask(count: int) -> dict[str, Any]:
    import django

    django.setup()
    from django.test import Client

    from gpus.models import GpuBand
    from gpus.reports import ranges, selectors
    from gpus.web import context

    person, cluster = fill(count)
    client = Client()
    client.force_login(person)
    sources = {source.cluster_id: source for source in selectors.sources(person)}
    month = ranges.BANDS.preset("30d")
    timings = [_timed("funnel", lambda: context.funnel(person, sources, {cluster.pk: cluster}))]
    timings += [
        _timed(f"30 days by {by}", partial(context.over_time, person, month, by))
        for by in ("cluster", "pool", "model", "namespace")
    ]
    timings.append(_timed("30 days of one cluster", lambda: context.over_time(person, month, "namespace", cluster)))
    addresses = ("/gpus/?window=30d&by=namespace", "/api/v1/gpus/usage?window=30d&by=namespace")
    timings += [_timed(page, partial(_page, client, page)) for page in addresses]
    return {"asked": timings, "rows": GpuBand.objects.count()}


def _page(client: Any, page: str) -> None:
    answer = client.get(page)
    if answer.status_code != 200:
        raise RuntimeError(f"{page} answers {answer.status_code}")


def _timed(what: str, action: Any) -> dict[str, Any]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    for _ in range(WARM_UPS):
        action()
    with CaptureQueriesContext(connection) as seen:
        action()
        queries = len(seen)
    wall, cpu = [], []
    for _ in range(REQUESTS):
        began, used = time.perf_counter(), time.process_time()
        action()
        wall.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - used))
    sys.stderr.write(f"{what}: {queries} queries, {median(wall):.0f} ms, CPU {median(cpu):.0f}\n")
    return {"what": what, "queries": queries, "wall": wall, "cpu": cpu}


if __name__ == "__main__":
    json.dump(ask(int(sys.argv[1])), sys.stdout)
