"""Latency of drift from a node's kernel to the node's page, on the real control plane.

A value changes at a random moment between two looks of the node's agent; the agent's report goes through the API
server, the watch and the database; and the page asks again every few seconds, as the browser does. Each of these waits
is real time here; what is simulated is that the report is written by this process, as that node's agent.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from agent.__main__ import OPTIONS
from bench.agents import TUNINGS, AgentWriter, credentials
from bench.measure import Table, median
from bench.rollout import Campaign
from bench.stage import Stage
from contract.nodetuning import SettingStatus

CHANGES = 60
AT_ONCE = 6
KEY = "vm.swappiness"
VALUE = "77"
PAGE_SECONDS = 3.0
"""The page's own `hx-trigger`; tests/compliance/test_latency.py reads it off the page."""
TIMEOUT_SECONDS = 60.0


def measure(stage: Stage, counts: Sequence[int]) -> list[Table]:
    verify = float(OPTIONS["verify-seconds"][0])
    table = Table(
        "Drift on a node to its page",
        ["nodes", "changes", "report to row, median, ms", "report to row, 95th percentile, ms",
         "kernel to page, median, s", "kernel to page, 95th percentile, s", "longest, s"],
        f"{AT_ONCE} nodes at once, in an otherwise quiet cluster. The agent looks every {verify:.0f} s and the page "
        f"asks every {PAGE_SECONDS:.0f} s, at moments that have nothing to do with the change.",
    )  # fmt: skip
    door = AgentWriter(credentials(str(stage.plane.kubeconfig)))
    with Campaign(stage) as campaign:
        for count in counts:
            campaign.run(count)
            nodes = random.sample(_settled(campaign), min(CHANGES, count))
            with ThreadPoolExecutor(AT_ONCE) as pool:
                took = list(pool.map(partial(_latencies, campaign, door, verify), nodes))
            rows, pages = [row * 1000 for row, _ in took], [page for _, page in took]
            table.add(count, len(nodes), median(rows), _late(rows), median(pages), _late(pages), max(pages))
    return [table]


def _late(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def _settled(campaign: Campaign) -> list[Any]:
    """Nodes whose setting is as desired."""
    from clusters.models import Node

    rows = Node.objects.present().filter(cluster=campaign.cluster, settings__key=KEY, settings__state="compliant")
    return list(rows.order_by("pk"))


def _latencies(campaign: Campaign, door: AgentWriter, verify: float, node: Any) -> tuple[float, float]:
    """Seconds from the agent's report to the row, and from the change in the kernel to the page."""
    from django.db import connection

    try:
        changed = time.perf_counter()
        page_asks = changed + random.uniform(0, PAGE_SECONDS)
        time.sleep(random.uniform(0, verify))  # until the agent looks
        reported = _report(campaign.stage, door, node.name)
        row = _until_row(node.pk) - reported
        while True:
            time.sleep(max(0.0, page_asks - time.perf_counter()))
            if _is_on_page(campaign.operator, node):
                return row, time.perf_counter() - changed
            page_asks += PAGE_SECONDS
    finally:
        connection.close()  # of this thread


def _report(stage: Stage, door: AgentWriter, name: str) -> float:
    """Write, as the node's agent, that the kernel answers another value. Returns when it was sent."""
    status = stage.admin.get("nodetunings", name)["status"]
    for report in status["settings"]:
        if report["key"] == KEY:
            report |= {"effective": VALUE, "state": SettingStatus.DRIFTED, "reason": f"the kernel answers {VALUE}"}
    sent = time.perf_counter()
    patch = [{"op": "add", "path": "/status", "value": status}]
    code = door.write(name, "PATCH", f"{TUNINGS}/{name}/status", patch, "application/json-patch+json")
    if code != 200:
        raise RuntimeError(f"{name}: the report was refused with {code}")
    return sent


def _until_row(node_pk: int) -> float:
    from compliance.models import SettingState

    deadline = time.perf_counter() + TIMEOUT_SECONDS
    while time.perf_counter() < deadline:
        if SettingState.objects.filter(node=node_pk, key=KEY, state="drifted").exists():
            return time.perf_counter()
        time.sleep(0.02)
    raise RuntimeError(f"no row says within {TIMEOUT_SECONDS:.0f} s that {KEY} drifted")


def _is_on_page(user: Any, node: Any) -> bool:
    """Return whether the node's page shows the drift when it asks again."""
    from compliance.hooks.panels import node_settings

    return bool(node_settings(user, node)["counts"]["drifted"])
