"""Findings of a plan in the order `measured`: what it holds back, and what keeps it from measuring an effect."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import ceil

from jobs.forecast import randomization
from jobs.forecast.findings import PlanFinding, node_count
from jobs.forecast.schedule import Candidate
from jobs.forecast.strategy import MEASURED, Strategy

FEWEST_MEASURED = 5
"""Nodes in each arm, as gpus.effects.estimation asks for an interval; a test keeps them equal."""


DRAINED = (
    "What emptying a node does to its jobs, such as a new start or other work, is part of the difference: it is that "
    "of the change and of the drain together."
)


def measured_order_findings(candidates: Sequence[Candidate], strategy: Strategy) -> list[PlanFinding]:
    """List what the order `measured` will do, and where it cannot measure an effect."""
    workers = [c for c in candidates if not c.is_control_plane]
    control = randomization.control_group(workers, strategy)
    out = [
        PlanFinding(
            "note",
            "measured",
            f"{node_count(len(control))} held back as the control",
            f"Chosen at random, by the seed {strategy.seed}, so the draw is reproducible. They are changed once "
            f"{strategy.measure_hours} h of what the others did are measured, {strategy.settle_minutes} min after the "
            "last of them; an operator can continue earlier.",
            sorted(control),
        )
    ]
    arms = {"held back": len(control), "changed first": len(workers) - len(control)}
    if few := [name for name, count in arms.items() if count < FEWEST_MEASURED]:
        out.append(
            PlanFinding(
                "warn",
                "measured-few",
                f"Too few nodes are {' and '.join(few)} to measure an interval",
                f"It takes {FEWEST_MEASURED} on each side; with fewer, the effect has none. Nodes that share "
                "one job count as one.",
                [],
            )
        )
    drained = [c.name for c in workers if c.worst.drains and c.name not in control]
    if drained and control:
        out.append(
            PlanFinding("warn", "measured-drains", "Changed nodes are drained, the control is not", DRAINED, drained)
        )
    if not any(c.gpus for c in workers):
        out.append(
            PlanFinding("warn", "measured-no-gpus", "None of these nodes has GPUs", "Nothing can be measured.", [])
        )
    return out


def seed_findings(strategy: Strategy) -> list[PlanFinding]:
    """`strategy` as it was asked for. Of twenty seeds, the one with the best arms makes a false verdict likely."""
    if strategy.order != MEASURED or not strategy.seed:
        return []
    return [
        PlanFinding(
            "warn",
            "measured-seed",
            f"The seed {strategy.seed} was given, not drawn",
            "The person who gives a seed can choose who is held back, and then the comparison proves little. Leave it "
            "out (0), so that it is drawn when the plan is made, unless a draw has to be repeated.",
            [],
        )
    ]


def retention_findings(seconds: float, strategy: Strategy, days: int) -> list[PlanFinding]:
    """`seconds` is what the whole rollout is estimated to take, the control's waiting included; `days` is how long
    what each GPU did is kept."""
    needed = timedelta(seconds=seconds, hours=strategy.measure_hours)
    if needed <= timedelta(days=days):
        return []
    hours = ceil(needed / timedelta(hours=1))
    return [
        PlanFinding(
            "warn",
            "measured-too-long",
            "It will take too long to be measured",
            f"From the first window's start to the second's end pass about {hours:,} h, and what each GPU did is kept "
            f"for {days} days (SETPOINT_GPU_BUCKET_DAYS). Plan fewer nodes or larger batches, or keep it longer.",
            [],
        )
    ]
