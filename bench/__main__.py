"""`python -m bench [scenario ...]`: prints Markdown tables for docs/performance/.

Needs the built control plane (`make controlplane`), PostgreSQL's and Redis' server programs, and minutes.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable

from bench import (
    agent,
    components,
    designs,
    drift,
    heatmap,
    inventory,
    latency,
    month,
    pages,
    paint,
    planning,
    pods,
    power,
    quiet,
    real_charts,
    rollout,
    telemetry,
    writes,
)
from bench.measure import Table, machine
from bench.stage import Stage

USUAL = [500, 1000, 5000]
PAGES = [54, 500, 5000]
PAINT = [54, 5000]
HEATMAP = [125, 5000]
PLANNING = [500, 5000]
TELEMETRY = [125, 625, 5000]
MONTH = [5000]
PODS = [5000]

SCENARIOS: dict[str, Callable[[Stage, argparse.Namespace], list[Table]]] = {
    "inventory": lambda stage, given: inventory.measure(stage, given.nodes),
    "rollout": lambda stage, given: rollout.measure(stage, given.nodes),
    "components": lambda stage, given: components.measure(stage),
    "real-charts": lambda stage, given: real_charts.measure(stage, given.turns),
    "writes": lambda stage, given: writes.measure(stage),
    "latency": lambda stage, given: latency.measure(stage, given.nodes),
    "drift": lambda stage, given: drift.measure(stage, given.nodes),
    "quiet": lambda stage, given: quiet.measure(stage, given.nodes, given.minutes),
    "agent": lambda stage, given: agent.measure(stage, given.minutes),
}
ALONE: dict[str, Callable[[argparse.Namespace], list[Table]]] = {
    "pages": lambda given: pages.measure(given.nodes if given.nodes != USUAL else PAGES),
    "heatmap": lambda given: heatmap.measure(given.nodes if given.nodes != USUAL else HEATMAP),
    "planning": lambda given: planning.measure(given.nodes if given.nodes != USUAL else PLANNING),
    "telemetry": lambda given: telemetry.measure(given.nodes if given.nodes != USUAL else TELEMETRY),
    "month": lambda given: month.measure(given.nodes if given.nodes != USUAL else MONTH),
    "pods": lambda given: pods.measure(given.nodes if given.nodes != USUAL else PODS),
    "power": lambda given: [*power.measure(), *designs.measure()],
    "paint": lambda given: paint.measure(given.nodes if given.nodes != USUAL else PAINT),
}
"""Scenarios that need neither control plane nor brokers."""
DATABASE = {"quiet": {"full_page_writes": "on"}}
"""What is measured in bytes is measured with what a real database writes."""


def numbers(text: str) -> list[int]:
    return sorted(int(word) for word in text.split(","))


def main() -> int:
    names = [*SCENARIOS, *ALONE]
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=f"of {', '.join(names)}; default: all")
    parser.add_argument(
        "--nodes",
        type=numbers,
        default=USUAL,
        help="default: 500,1000,5000; of pages 54,500,5000, of paint 54,5000, of heatmap 125,5000, "
        "of planning 500,5000, of telemetry 125,625,5000, of month and pods 5000",
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="how long the agent, or a fleet at rest, is watched")
    parser.add_argument("--turns", type=int, default=10, help="of each real chart, by Setpoint and by helm")
    given = parser.parse_args()
    if unknown := set(given.scenarios) - set(names):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    names = given.scenarios or names
    if len(names) > 1:
        # Each on a stage of its own: what one scenario leaves, the nodes above all, would be measured with the next.
        nodes = ",".join(map(str, given.nodes))
        command = [sys.executable, "-m", "bench", f"--nodes={nodes}", f"--minutes={given.minutes}"]
        command.append(f"--turns={given.turns}")
        ended = [subprocess.run([*command, name], check=False).returncode for name in names]
        return int(any(ended))  # one that a signal killed has a negative status
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything that was started is stopped
    print(f"Measured on {machine()}.\n", flush=True)
    if names[0] in ALONE:
        for table in ALONE[names[0]](given):
            print(table, flush=True)
        return 0
    with Stage(**DATABASE.get(names[0], {})) as stage:
        for table in SCENARIOS[names[0]](stage, given):
            print(table, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
