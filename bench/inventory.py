"""First inventory of a cluster, into rows, against kubectl reading the same nodes and doing nothing with them."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Sequence

from bench.measure import MIB, Table, load, median, seconds
from bench.stage import LOOPBACK, Stage

PADDED_BYTES = 25_000
RUNS = 3


def measure(stage: Stage, counts: Sequence[int]) -> list[Table]:
    from clusters.inventory import store
    from clusters.kube.fleet import KubeFleet
    from clusters.models import Cluster

    table = Table(
        "First inventory",
        ["nodes", "JSON, MB", "`kubectl get nodes -o json`, s", "list, s", "rows, s", "together, s", "ratio", "load"],
        f"Nodes of about {PADDED_BYTES // 1000} KB; medians of {RUNS} runs, alternating; a new connection and a "
        "new cluster each run. Both read pages of 500 nodes; kubectl prints them, Setpoint writes rows.",
    )
    for count in counts:
        stage.grow(count, padding=PADDED_BYTES)
        kubectl, listed, stored, size = [], [], [], 0
        for _ in range(RUNS):
            spent, size = _kubectl(stage)
            kubectl.append(spent)
            fresh = str(uuid.uuid4())
            cluster = Cluster.objects.create(uid=fresh, name=f"bench-{fresh}", server=stage.plane.url, credential=b"")
            fleet = KubeFleet(stage.plane.admin, policy=LOOPBACK, timeout=60)
            began = time.perf_counter()
            page = fleet.list("nodes")
            listed.append(time.perf_counter() - began)
            stored.append(seconds(lambda: store.observe_nodes(cluster, page.items, complete=True)))  # noqa: B023
            assert cluster.nodes.count() == count
            fleet.close()
        together = median([list_seconds + other for list_seconds, other in zip(listed, stored, strict=True)])
        table.add(
            count,
            size / MIB,
            median(kubectl),
            median(listed),
            median(stored),
            together,
            f"{together / median(kubectl):.2f}",
            load(),
        )
    return [table]


def _kubectl(stage: Stage) -> tuple[float, int]:
    command = [str(stage.plane.bin / "kubectl"), f"--kubeconfig={stage.plane.kubeconfig}", "get", "nodes", "-o", "json"]
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return time.perf_counter() - began, len(done.stdout)
