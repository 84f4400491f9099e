"""The glossary of counts about plans and rollouts: each says exactly what it counts, and every page that shows the
number takes it from here. Of nodes and their compliance it is in
compliance.reports.selectors; of nodes unavailable now, in jobs.forecast.slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from common.look import WHAT_HAPPENS
from jobs.diffs.changes import Disruption
from jobs.engine.event_log import kinds_sentence
from jobs.models import Rollout, Step
from jobs.rollouts.possible_actions import CAN_BE_PUT_BACK

DONE = (Step.Status.SUCCEEDED, Step.Status.REVERTED)
WAIT_FOR_A_PERSON = ("stopped", "held", "paused")
"""States in which nothing continues by itself, the worst first."""


@dataclass(frozen=True, slots=True)
class RolloutCounts:
    """Rollouts that have not ended, by what is the case."""

    under_way: int
    """Running, aborting or reverting, and not held: something changes, or is about to. As Rollout.is_under_way."""
    stopped: int
    held: int
    """Running, aborting or reverting, but each step that is left waits for an operator, or for one that does."""
    paused: int
    queued: int
    """Started for a later time."""

    @property
    def sentence(self) -> str:
        """`2 rollouts under way, 1 stopped, 1 held`; empty where there are none."""
        rest = [(getattr(self, name), name) for name in (*WAIT_FOR_A_PERSON, "queued")]
        phrases = [f"{count} {name}" for count, name in rest if count]
        if self.under_way or not phrases:
            phrases.insert(0, f"{self.under_way} rollout{'' if self.under_way == 1 else 's'} in progress")
        else:
            head, _, name = phrases[0].partition(" ")
            phrases[0] = f"{head} rollout{'' if head == '1' else 's'} {name}"
        return ", ".join(phrases)


def count_rollouts(rollouts: Iterable[Rollout]) -> RolloutCounts:
    """Count rows that `with_state` read; those that ended do not count."""
    states: Counter[str] = Counter()
    under_way = 0
    for rollout in rollouts:
        under_way += rollout.is_under_way
        states[rollout.state] += 1
    return RolloutCounts(under_way, states["stopped"], states["held"], states["paused"], states["queued"])


@dataclass(frozen=True, slots=True)
class FinishedSteps:
    """Finished steps of a rollout. Nodes and parts of the cluster are never added up."""

    nodes: int
    """Steps of nodes that succeeded or were reverted."""
    of_nodes: int
    parts: int
    """Steps of components, and of groups of policy objects, that succeeded or were reverted."""
    of_parts: int


def finished_steps(by_kind: Mapping[tuple[str, str], int]) -> FinishedSteps:
    """Return the finished steps, from steps counted by (kind, status)."""
    totals: Counter[tuple[bool, bool]] = Counter()
    for (kind, status), count in by_kind.items():
        totals[kind == Step.Kind.NODE, status in DONE] += count
    return FinishedSteps(
        nodes=totals[True, True],
        of_nodes=totals[True, True] + totals[True, False],
        parts=totals[False, True],
        of_parts=totals[False, True] + totals[False, False],
    )


@dataclass(frozen=True, slots=True)
class ActionConsequences:
    """Consequences of Abort or Revert all for a rollout as its steps are now."""

    nodes: int
    """Steps of nodes and parts that it acts upon; what has ended and stays so does not count."""
    sentences: tuple[str, ...]


def action_consequences(rollout: Rollout, verb: str, in_flight: str = "finish") -> ActionConsequences:
    """Return the consequences of `abort` or `revert`, in one query."""
    columns = ("kind", "status", "worst_class", "has_applied")
    rows: Any = rollout.steps.order_by().values_list(*columns).annotate(Count("pk"))
    groups = [StepGroup(*row) for row in rows]
    done_to = _aborted(groups, in_flight) if verb == "abort" else _put_back(groups)
    sentences = [(kinds_sentence(kinds), text) for kinds, text in done_to if kinds]
    return ActionConsequences(
        nodes=sum(sum(kinds.values()) for kinds, text in done_to if not text.startswith(STAYS)),
        sentences=tuple(f"{names} {text}" for names, text in sentences),
    )


STAYS = "stay as they are"


@dataclass(frozen=True, slots=True)
class StepGroup:
    """Steps that are alike."""

    kind: str
    status: str
    worst_class: str
    has_applied: bool
    count: int


def _kinds(groups: Iterable[StepGroup]) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for group in groups:
        kinds[group.kind] += group.count
    return kinds


def _aborted(groups: Sequence[StepGroup], in_flight: str) -> list[tuple[Counter[str], str]]:
    queued = _kinds(g for g in groups if g.status == Step.Status.QUEUED)
    active = _kinds(g for g in groups if g.status in Step.ACTIVE)
    held = _kinds(g for g in groups if g.status == Step.Status.HELD)
    over = _kinds(g for g in groups if g.status in (Step.Status.SUCCEEDED, Step.Status.FAILED))
    goes = "in progress: reverted to what was recorded." if in_flight == "revert" else "in progress: finish the change."
    return [
        (queued, "queued: skipped, nothing is done there."),
        (active, goes),
        (held, "held: given up; disturbed nodes stay cordoned and count as failed."),
        (over, f"{STAYS}: changed values stay changed. Revert all restores them."),
    ]


def _put_back(groups: Sequence[StepGroup]) -> list[tuple[Counter[str], str]]:
    back = [g for g in groups if g.has_applied and g.status in CAN_BE_PUT_BACK]
    nodes = [g for g in back if g.kind == Step.Kind.NODE]
    out = []
    for each in reversed(Disruption):
        some = _kinds(g for g in nodes if g.worst_class == each)
        out.append((some, f"reverted: {WHAT_HAPPENS[each]}."))
    out.append(
        (_kinds(g for g in back if g.kind != Step.Kind.NODE), "restored to their previous state, or removed if new.")
    )
    waits = _kinds(g for g in groups if g.status == Step.Status.QUEUED and not g.has_applied)
    out.append((waits, "queued: skipped, nothing is done there."))
    untouched = _kinds(g for g in groups if not g.has_applied and g.status in Step.RESTING)
    out.append((untouched, f"{STAYS}: nothing was written there."))
    return out
