"""Order of components and node settings: one graph a plan, forwards and, reversed, backwards.

Its vertices are the components, the groups of policy objects, and `nodes`, all node steps together. What one
`requires` must have succeeded; what it comes `after` must have ended, with any result. So a failure stops what
requires it, and nothing else. Node steps that give no value, and only tell agents to watch for drift, are no
prerequisite: what comes after the node settings does not wait for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Count

from common.errors import Invalid
from jobs.diffs.changes import Changes
from jobs.models import ChangeSet, PlanNode, Rollout, Step

NODES = "nodes"
"""In a component's `after` or `requires`: the node settings of the same plan."""

Status = Step.Status
FORWARD, REVERT = Step.Direction.FORWARD, Step.Direction.REVERT
_FINE = (Status.SUCCEEDED, Status.SKIPPED)
"""Skipping a component means that it is not needed, or is there already."""
_DOING = {
    Status.QUEUED: "has not begun",
    Status.APPLYING: "is being {verb}",
    Status.VERIFYING: "is getting ready",
    Status.HELD: "is held",
    Status.FAILED: "failed",
    Status.REVERTED: "was reverted",
}
_VERBS = {"install": "installed", "upgrade": "upgraded", "adopt": "adopted", "remove": "removed", "apply": "applied"}
MOST_IDLE = 20
"""Change sets of one plan that might all give no value."""
_MANY = {"has": "have", "is": "are", "was": "were"}


@dataclass(frozen=True, slots=True)
class DependencyWait:
    on: str
    """What for, as a clause: `cert-manager, which is being installed`."""
    is_for_good: bool = False
    """Only an operator can end it: the other failed, is held, or was reverted."""


@dataclass(frozen=True, slots=True)
class _Vertex:
    status: str
    direction: str
    action: str

    @property
    def doing(self) -> str:
        if self.direction == REVERT and self.status in (Status.APPLYING, Status.VERIFYING):
            activity = "is being reverted"
        else:
            activity = _DOING[Status(self.status)].format(verb=_VERBS.get(self.action, "carried out"))
        verb, _, more = activity.partition(" ")
        return f"{_MANY.get(verb, verb)} {more}".rstrip() if self.is_many else activity

    @property
    def is_many(self) -> bool:
        """Its name is a plural: `policy objects`."""
        return self.action == "apply"


class StepOrder:
    """Order of one rollout's steps, by their present state. Three queries; read again for each slice."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        rows = rollout.plan.components.filter(left_out="")
        edges = list(rows.values_list("component", "requires", "after", "action"))
        self.requires: dict[str, tuple[str, ...]] = {name: tuple(first) for name, first, _, _ in edges}
        self.after: dict[str, tuple[str, ...]] = {name: tuple(then) for name, _, then, _ in edges}
        actions = {name: action for name, _, _, action in edges}
        steps = rollout.steps.of_components().values_list("component", "status", "direction")
        self._steps = {name: _Vertex(status, way, actions.get(name, "")) for name, status, way in steps}
        self._nodes: Counter[tuple[str, str]] = Counter()
        nodes = rollout.steps.of_nodes().values_list("status", "direction")
        for status, way, count in nodes.annotate(Count("pk")).order_by():
            self._nodes[status, way] += count

    def wait(self, step: Step) -> DependencyWait | None:
        """Return what this queued component waits for; None: it may begin."""
        waits = self._backwards(step.component) if step.direction == REVERT else self._forwards(step.component)
        blocking = list(waits)
        return next((w for w in blocking if w.is_for_good), blocking[0] if blocking else None)

    def _forwards(self, name: str) -> Iterator[DependencyWait]:
        for other in self.requires.get(name, ()):
            if other == NODES:
                yield from self._node_settings(must_succeed=True)
            elif (there := self._steps.get(other)) and (there.status not in _FINE or there.direction == REVERT):
                for_good = there.status in (Status.FAILED, Status.HELD, Status.REVERTED)
                yield DependencyWait(f"{other}, which {there.doing}", for_good)
        for other in self.after.get(name, ()):
            if other == NODES:
                yield from self._node_settings(must_succeed=False) if self._gives_values else ()
            elif (there := self._steps.get(other)) and there.status not in Step.RESTING:
                yield DependencyWait(f"{other}, which {there.doing}", there.status == Status.HELD)

    def _node_settings(self, *, must_succeed: bool) -> Iterator[DependencyWait]:
        left = sum(count for (status, _), count in self._nodes.items() if status not in Step.RESTING)
        failed = sum(count for (status, _), count in self._nodes.items() if status == Status.FAILED)
        if left:
            held = sum(count for (status, _), count in self._nodes.items() if status == Status.HELD)
            yield DependencyWait(f"the node settings: {_nodes(left)} still to do", held == left)
        elif failed and must_succeed:
            yield DependencyWait(f"the node settings, which failed on {_nodes(failed)}", True)

    @cached_property
    def _gives_values(self) -> bool:
        """Return whether any node's change is more than what its agent does about drift.

        Judged by the change sets, which the plan's digest covers. There are two that give none, and their like where a
        node cannot take a key; of more than a few, some do.
        """
        of_plan = PlanNode.objects.filter(plan=self._rollout.plan_id).exclude(change_set=None).values("change_set")
        few = ChangeSet.objects.filter(pk__in=of_plan).order_by("pk").values_list("content", flat=True)[: MOST_IDLE + 1]
        change_sets = [Changes.from_json(content) for content in few]
        return len(change_sets) > MOST_IDLE or any(
            not change.is_watch for changes in change_sets for change in changes.items
        )

    def _backwards(self, name: str) -> Iterator[DependencyWait]:
        """Turned round: what requires this, or came after it, goes back first."""
        for other in self.dependants(name):
            there = self._steps[other]
            if there.direction != REVERT:
                if there.status not in Step.RESTING:
                    yield DependencyWait(f"{other}, which {there.doing}", there.status == Status.HELD)
            elif there.status in (Status.FAILED, Status.HELD) and name in self.requires[other]:
                yield DependencyWait(
                    f"{other}, which require{'' if there.is_many else 's'} it and could not be reverted", True
                )
            elif there.status not in Step.RESTING:
                yield DependencyWait(f"{other}, which {'go' if there.is_many else 'goes'} back first")

    def dependants(self, name: str) -> list[str]:
        """Components with a step here that require this one or come after it."""
        return [other for other in self._steps if name in (*self.requires.get(other, ()), *self.after.get(other, ()))]

    def standing_on(self, name: str) -> list[str]:
        """Components that require this one and stand: it cannot go back alone."""
        return [
            other
            for other in self.dependants(name)
            if name in self.requires[other]
            and (self._steps[other].status, self._steps[other].direction) == (Status.SUCCEEDED, FORWARD)
        ]

    def nodes_wait(self) -> DependencyWait | None:
        """Return what the node settings wait for when reverted; None: they may start.
        Forwards they wait for nothing.
        """
        return next(self._backwards(NODES), None)

    def stuck(self) -> DependencyWait | None:
        """Required decisions before any of the queued components can begin; None while something can move."""
        queued = {name for name, v in self._steps.items() if v.status == Status.QUEUED and v.direction == FORWARD}
        if not queued or self._is_busy():
            return None
        roots = [w for name in sorted(queued) for w in self._forwards(name) if w.is_for_good]
        can_move = [name for name in queued if not any(True for _ in self._forwards(name))]
        return roots[0] if roots and not can_move else None

    def failed(self) -> str:
        """The first component that failed forwards, once everything else rests; empty before that, or without one."""
        if self._is_busy() or any(v.status == Status.QUEUED for v in self._steps.values()):
            return ""
        return next((n for n, v in self._steps.items() if (v.status, v.direction) == (Status.FAILED, FORWARD)), "")

    def _is_busy(self) -> bool:
        """Return whether a component is under way or held, or a node has not come to rest."""
        if any(v.status in (*Step.ACTIVE, Status.HELD) for v in self._steps.values()):
            return True
        return any(count and status not in Step.RESTING for (status, _), count in self._nodes.items())


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def topological_order(requires: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> list[str]:
    """Names in an order in which each comes after all that it waits for; by name where that says nothing.

    Raises Invalid, naming who waits for whom, on a circle. `nodes` and names of others count as there.
    """
    left = {name: {o for o in (*requires.get(name, ()), *after.get(name, ())) if o in requires} for name in requires}
    out: list[str] = []
    while left:
        free = sorted(name for name, others in left.items() if not others - set(out))
        if not free:
            raise Invalid(f"Components wait for each other in a circle: {' → '.join(_circle(left))}.")
        out.append(free[0])
        del left[free[0]]
    return out


def _circle(left: Mapping[str, Collection[str]]) -> Iterable[str]:
    name = min(left)
    seen: list[str] = []
    while name not in seen:
        seen.append(name)
        name = min(other for other in left[name] if other in left)
    return [*seen[seen.index(name) :], name]


def step_order(rollout: Rollout) -> StepOrder | None:
    """None, without a query, where the plan does nothing beside its nodes: then there is nothing to wait for."""
    return StepOrder(rollout) if rollout.plan.has_parts else None
