"""Remaining time of a rollout: the plan's forecast for what is left, corrected by the times of its own nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count

from jobs.diffs import dependency_graph
from jobs.engine.event_log import kinds_sentence
from jobs.forecast import estimates, schedule
from jobs.forecast.strategy import Strategy
from jobs.models import Rollout, Step

SAMPLE = 200
"""Nodes done last, whose times are compared with the forecast."""
ENOUGH = 3
"""Nodes done before their times say anything about the others."""
ENDED = (Step.Status.SUCCEEDED, Step.Status.SKIPPED, Step.Status.REVERTED, Step.Status.FAILED)


@dataclass(frozen=True, slots=True)
class RemainingTime:
    seconds: int | None
    """Left; None where it is unknown, and `why` has the reason."""
    why: str
    """What the number rests on, or why there is none."""
    ratio: float = 1.0
    """Real times of its own nodes to those that were planned."""
    ends: datetime | None = None


def remaining_time(
    rollout: Rollout,
    strategy: Strategy,
    counts: Mapping[str, int],
    by_batch: Mapping[int, Mapping[str, int]] | None = None,
) -> RemainingTime:
    """Estimate the remaining time, in two queries at most. `by_batch`: steps by status of each batch, where known."""
    if rollout.status in (Rollout.Status.PAUSED, Rollout.Status.STOPPED):
        return RemainingTime(None, "Waiting for an operator.")
    if rollout.status in (Rollout.Status.REVERTING, Rollout.Status.ABORTING):
        return RemainingTime(None, "No forecast for a revert or an abort.")
    if counts.get(Step.Status.HELD):
        return RemainingTime(None, "A held node waits for an operator; time unknown.")
    planned, soaks = _seconds_left(rollout, strategy, by_batch)
    parts, besides = _components_left(rollout)
    ratio, sample = _ratio(rollout)
    basis = (rollout.plan.summary.get("estimate") or {}).get("basis", "")
    soaking = soaks * strategy.soak_seconds
    if ratio is None:
        return RemainingTime(
            _seconds_with_components(rollout, planned + soaking, parts),
            f"As planned{f' ({basis})' if basis else ''}; too few nodes are done for a better estimate.{besides}",
        )
    nodes = f"the last {sample:,} nodes" if sample > 1 else "one node"
    seconds = _seconds_with_components(rollout, planned * ratio + soaking, parts)
    return RemainingTime(seconds, f"By {nodes} done, which took {ratio:.1f} × what was planned.{besides}", ratio)


def _components_left(rollout: Rollout) -> tuple[set[str], str]:
    """Return the parts beside the nodes that have not ended, and a sentence on them.
    No query where the plan has none.
    """
    if not rollout.plan.has_parts:
        return set(), ""
    left = list(rollout.steps.of_components().exclude(status__in=ENDED).values_list("kind", "component"))
    if not left:
        return set(), ""
    basis = (rollout.plan.summary.get("parts") or {}).get("basis", "")
    parts = kinds_sentence(Counter(kind for kind, _ in left))
    return {name for _, name in left}, f" {parts} left{f' ({basis})' if basis else ''}."


def _seconds_with_components(rollout: Rollout, nodes: float, left: set[str]) -> int:
    """Return the seconds of nodes and remaining components together, each after what it waits for."""
    parts = rollout.plan.summary.get("parts") or {}
    seconds = {name: took for name, took in parts.get("seconds", {}).items() if name in left}
    return int(schedule.longest_path_seconds(parts.get("before", {}), {**seconds, dependency_graph.NODES: nodes}))


def _seconds_left(
    rollout: Rollout, strategy: Strategy, by_batch: Mapping[int, Mapping[str, int]] | None
) -> tuple[float, int]:
    """Planned seconds of what has not ended, without soaking; and how many batches have yet to soak."""
    open_: dict[int, int]
    if by_batch is None:
        rows = rollout.steps.of_nodes().exclude(status__in=ENDED).values_list("batch").annotate(Count("pk"))
        open_ = dict(rows.order_by())
    else:
        lefts = {batch: sum(n for s, n in counts.items() if s not in ENDED) for batch, counts in by_batch.items()}
        open_ = {batch: left for batch, left in lefts.items() if left}
    seconds = 0.0
    for batch in rollout.plan.summary.get("batches", ()):
        left = open_.get(batch["number"], 0)
        if left:
            share = min(1.0, left / batch["nodes"])
            seconds += share * max(0, batch["seconds"] - strategy.soak_seconds)
    return seconds, len(open_)


def _ratio(rollout: Rollout) -> tuple[float | None, int]:
    """Return the ratio of the nodes' real times to their forecasts; None when too few are done."""
    done = (
        rollout.steps.of_nodes()
        .filter(status=Step.Status.SUCCEEDED, direction=Step.Direction.FORWARD)
        .order_by("-entered_at", "-pk")
    )
    rows = list(done.values_list("worst_class", "stages")[:SAMPLE])
    timed = [
        (estimates.planned_seconds(rollout.plan.summary, worst), estimates.active_seconds(stages))
        for worst, stages in rows
        if stages
    ]
    if len(timed) < ENOUGH:
        return None, len(timed)
    return sum(took for _, took in timed) / sum(planned for planned, _ in timed), len(timed)
