"""The glossary of counts about plans and rollouts: each says exactly what it counts, and every page that shows the
number takes it from here. Of nodes and their compliance it is in compliance.selectors; of nodes unavailable now, in
jobs.engine.ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from jobs.models import Rollout, Step

DONE = (Step.Status.SUCCEEDED, Step.Status.REVERTED)
WAIT_FOR_A_PERSON = ("stopped", "held", "paused")
"""States in which nothing goes on by itself, the worst first."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Rollouts that have not ended, by what is the case."""

    under_way: int
    """Running, aborting or reverting, and not held: something changes, or is about to. As Rollout.is_under_way."""
    stopped: int
    held: int
    """Running, aborting or reverting, but each step that is left waits for a person, or for one that does."""
    paused: int
    queued: int
    """Started for a later time."""

    @property
    def sentence(self) -> str:
        """`2 rollouts under way, 1 stopped, 1 held`; empty where there are none."""
        rest = [(getattr(self, name), name) for name in (*WAIT_FOR_A_PERSON, "queued")]
        said = [f"{count} {name}" for count, name in rest if count]
        if self.under_way or not said:
            said.insert(0, f"{self.under_way} rollout{'' if self.under_way == 1 else 's'} under way")
        else:
            head, _, name = said[0].partition(" ")
            said[0] = f"{head} rollout{'' if head == '1' else 's'} {name}"
        return ", ".join(said)


def standing(rollouts: Iterable[Rollout]) -> Standing:
    """Of rows that `with_state` read; those that ended do not count."""
    states: Counter[str] = Counter()
    under_way = 0
    for rollout in rollouts:
        under_way += rollout.is_under_way
        states[rollout.state] += 1
    return Standing(under_way, states["stopped"], states["held"], states["paused"], states["queued"])


@dataclass(frozen=True, slots=True)
class Done:
    """What of a rollout is done. Nodes and parts of the cluster are never added up."""

    nodes: int
    """Steps of nodes that succeeded or were put back."""
    of_nodes: int
    parts: int
    """Steps of components, and of groups of policy objects, that succeeded or were put back."""
    of_parts: int


def done(by_kind: Mapping[tuple[str, str], int]) -> Done:
    """From steps counted by (kind, status)."""
    totals: Counter[tuple[bool, bool]] = Counter()
    for (kind, status), count in by_kind.items():
        totals[kind == Step.Kind.NODE, status in DONE] += count
    return Done(
        nodes=totals[True, True],
        of_nodes=totals[True, True] + totals[True, False],
        parts=totals[False, True],
        of_parts=totals[False, True] + totals[False, False],
    )


def steps_by_kind(rollout: Rollout) -> dict[tuple[str, str], int]:
    """Steps by (kind, status), in one query."""
    rows: Any = rollout.steps.order_by().values_list("kind", "status").annotate(Count("pk"))
    return {(kind, status): count for kind, status, count in rows}
