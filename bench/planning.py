"""Cost of making a plan, by what the pool's nodes have and what the revision asks, on both databases.

Nodes and their agents' answers are copies of one that a simulated agent gave. A process of its own makes the plans.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from bench.crowd import Time
from bench.measure import Table, load
from bench.pages import _empty as empty
from bench.pages import _run as run

LIVE = {
    "vm.swappiness": "10",
    "vm.max_map_count": "262144",
    "vm.dirty_ratio": "10",
    "fs.aio-max-nr": "1048576",
    "fs.inotify.max_user_watches": "1048576",
    "kernel.pid_max": "4194304",
    "net.core.rmem_max": ">= 134217728",
    "net.core.wmem_max": ">= 134217728",
    "net.core.somaxconn": ">= 4096",
    "net.ipv4.tcp_mtu_probing": "1",
}
REBOOT = LIVE | {"cmdline.iommu": "pt"}
GPU_PODS_A_NODE = 2
TIMES = 3


def measure(counts: Sequence[int]) -> list[Table]:
    table = Table(
        "Making a plan",
        ["plan", "database", "nodes", "queries", "CPU, s", "CPU a node, ms", "wall, s", "process' peak, MiB", "load"],
        f"The least of {TIMES}, of CPU and of seconds. CPU is that of the process that makes it: SQLite with it, and "
        "PostgreSQL not. The peak is that of the process with everything loaded, after the plan; it only rises.",
    )
    for database in ("SQLite", "PostgreSQL"):
        for count in counts:
            with empty(database) as environment:
                made = json.loads(run("bench.planning", str(count), environment=environment))
            for row in made:
                each = 1000 * row["cpu"] / count
                table.add(
                    row["plan"], database, count, row["queries"], row["cpu"], each, row["wall"], row["peak"], load()
                )
    return [table]


# ── in the process that plans ─────────────────────────────────────────────────────────────────────────────────────────
def fill(count: int) -> Any:
    """Fill a cluster with so many nodes, each with pods that hold its GPUs; the fleet itself has one of them."""
    from clusters.models import Cluster, GpuPod, Node
    from common.clock import now
    from tests.jobs.conftest import World
    from tests.jobs.rows import more_nodes

    world = World(Time())
    more_nodes(world, count - 1)
    later = now() + timedelta(days=1)  # nothing watches, and nothing may look silent meanwhile
    Cluster.objects.update(observed_at=later, leases_at=later)
    GpuPod.objects.bulk_create(
        (
            GpuPod(
                cluster=world.cluster, uid=f"{name}-{number}", namespace=f"team-{number}", name=f"job-{name}-{number}",
                node_name=name, gpus=4, owner_kind="Job", owner_name=f"job-{name[:3]}", started_at=now(),
            )
            for name in Node.objects.values_list("name", flat=True)
            for number in range(GPU_PODS_A_NODE)
        ),
        batch_size=500,
    )  # fmt: skip
    return world


def each_plan(world: Any) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return the name, revision and strategy of plans for nodes that ran no revision before."""
    return [
        ("ten live settings", world.revision(LIVE), {}),
        ("the same and a reboot", world.revision(REBOOT), {"order": "idle-first"}),
    ]


def settled(world: Any) -> tuple[str, Any, dict[str, Any]]:
    """Let all nodes run a revision, and return a plan that takes half of its settings back."""
    from clusters.models import Node
    from compliance.models import SettingState
    from tests import crowd

    first = world.revision(LIVE)
    crowd.settle(list(Node.objects.filter(cluster=world.cluster)), first, list(LIVE))
    SettingState.objects.update(has_original=True, original="60", written="10")
    fewer = dict(list(LIVE.items())[:5])
    return "five of ten settings go back", world.revision(fewer), {}


def differing(world: Any) -> tuple[str, Any, dict[str, Any]]:
    """Let each node answer another value."""
    from clusters.models import NodeTuning

    rows = list(NodeTuning.objects.order_by("pk"))
    for number, row in enumerate(rows):
        row.observed = row.observed | {"vm.swappiness": str(number + 11)}
    NodeTuning.objects.bulk_update(rows, ["observed"], batch_size=500)
    return "each node with another value", world.revision(LIVE), {}


def timed(world: Any, name: str, revision: Any, strategy: dict[str, Any]) -> dict[str, Any]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from jobs.forecast.strategy import parse
    from jobs.models import Plan
    from jobs.planning import planner

    cpu, wall = [], []
    for _ in range(TIMES):
        Plan.objects.all().delete()
        began, used = time.perf_counter(), time.process_time()
        planner.make(pool=world.pool, revision=revision, strategy=parse(strategy), by=world.operator)
        cpu.append(time.process_time() - used)
        wall.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    Plan.objects.all().delete()
    with CaptureQueriesContext(connection) as seen:
        planner.make(pool=world.pool, revision=revision, strategy=parse(strategy), by=world.operator)
    return {"plan": name, "queries": len(seen), "cpu": min(cpu), "wall": min(wall), "peak": peak}


def plan_all(count: int) -> list[dict[str, Any]]:
    import django
    from django.core.management import call_command
    from django.db import connection

    django.setup()
    call_command("migrate", interactive=False, verbosity=0)
    world = fill(count)
    if connection.vendor == "postgresql":
        connection.cursor().execute("ANALYZE")  # as its autovacuum does within a minute
    out = [timed(world, *plan) for plan in each_plan(world)]
    return [*out, timed(world, *settled(world)), timed(world, *differing(world))]


if __name__ == "__main__":
    json.dump(plan_all(int(sys.argv[1])), sys.stdout)
