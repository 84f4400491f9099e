"""Latency of a change on a node to its row: a label is set, and the row is read until it has it."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from functools import partial

from bench.measure import Table, load, median
from bench.rollout import Campaign
from bench.stage import Stage

CHANGES = 60
LABEL = "bench.setpoint.dev/change"
POLL_SECONDS = 0.005
TIMEOUT_SECONDS = 30.0


def measure(stage: Stage, counts: Sequence[int]) -> list[Table]:
    table = Table(
        "Change on a node to row in the database",
        ["nodes", "changes", "median, ms", "95th percentile, ms", "longest, ms", "load"],
        "A label of a random node, one at a time in an otherwise quiet cluster, from the sending of the patch until "
        f"the row has it; rows are asked every {POLL_SECONDS * 1000:.0f} ms.",
    )
    quiet = Table(
        "At rest",
        ["nodes", "process", "RSS, MiB", "PSS, MiB", "CPU, % of a core"],
        "While those labels were set, about two a second; nodes renew their Leases every 40 s, agents theirs every "
        "minute. Others: everything else on the machine, this measurement with it.",
    )
    with Campaign(stage) as campaign:
        for count in counts:
            campaign.grow(count)
            took: list[float] = []
            spent, cpu, processes = campaign.measured(partial(_change, stage, count, took))
            late = statistics.quantiles(took, n=20)[-1]
            table.add(count, CHANGES, *(value * 1000 for value in (median(took), late, max(took))), load())
            for name, used in processes.items():
                quiet.add(count, name, used.rss, used.pss, cpu[name] / spent * 100)
            quiet.add(count, "others", "", "", cpu["others"] / spent * 100)
    return [table, quiet]


def _change(stage: Stage, count: int, took: list[float]) -> None:
    """Appends to `took` the seconds of each change."""
    took.extend(_latency(stage, f"node-{random.randrange(count):05d}", f"v{number}") for number in range(CHANGES))


def _latency(stage: Stage, node: str, value: str) -> float:
    from clusters.models import Node

    time.sleep(random.uniform(0.2, 0.6))  # at no fixed moment of the writer's gathering
    began = time.perf_counter()
    stage.admin.patch("nodes", node, {"metadata": {"labels": {LABEL: value}}})
    while time.perf_counter() - began < TIMEOUT_SECONDS:
        labels = Node.objects.filter(name=node, gone_at=None).values_list("labels", flat=True).get()
        if labels.get(LABEL) == value:
            return time.perf_counter() - began
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"the row of {node} did not change within {TIMEOUT_SECONDS:.0f} s")
