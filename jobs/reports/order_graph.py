"""A rollout's order as a picture: node settings and components, each in the color of its status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from django.urls import reverse

from common.look import appearance
from components.catalog import graph
from jobs.diffs import dependency_graph
from jobs.models import Rollout, Step

SETTINGS = "node settings"
_WORST = ("failed", "held", "running", "queued", "skipped", "reverted", "succeeded")


def rollout_graph(rollout: Rollout, steps: Sequence[Step], nodes: Mapping[str, int]) -> graph.Graph | None:
    """`steps` are its components' with their part of the plan, `nodes` how many nodes are in each status."""
    if not steps:
        return None
    states = _nodes(nodes)
    here = {step.component for step in steps} | ({dependency_graph.NODES} if states else set())
    behind: dict[str, set[str]] = {SETTINGS: set()} if states else {}
    for step in steps:
        planned = step.plan_component
        assert planned is not None
        waited = {name for name in (*planned.requires, *planned.after) if name in here}
        behind[step.component] = {SETTINGS if name == dependency_graph.NODES else name for name in waited}
    words = {step.component: appearance("step", step.status).word for step in steps}
    drawn = graph.laid_out(behind, words | ({SETTINGS: _finished_text(states)} if states else {}))
    tones = {step.component: appearance("step", step.status).css for step in steps}
    if states:
        tones[SETTINGS] = appearance("operation", next(name for name in _WORST if states[name])).css
    ways = {step.component: reverse("jobs:step", args=(rollout.number, step.pk)) for step in steps}
    ways[SETTINGS] = reverse("jobs:rollout_nodes", args=(rollout.number,))
    boxes = tuple(replace(box, tone=tones[box.name], href=ways[box.name]) for box in drawn.boxes)
    sentence = "; ".join(f"{box.name}: {box.under}" for box in boxes)
    return replace(drawn, boxes=boxes, sentence=sentence)


def _nodes(counts: Mapping[str, int]) -> Counter[str]:
    """Count nodes by the words of the operation's axis; any status under way is running."""
    out: Counter[str] = Counter()
    for status, count in counts.items():
        out["running" if status in Step.ACTIVE else status] += count
    return out


def _finished_text(states: Counter[str]) -> str:
    """`4 of 6 succeeded`."""
    done = "reverted" if states["reverted"] else "succeeded"
    return f"{states[done]} of {states.total()} {done}"
