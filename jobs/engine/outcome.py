"""Input and result of a stage: plain data, so that stages can run in threads without a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from clusters.fleet import Fleet
from clusters.models import Node, NodeTuning
from common.clock import now
from jobs.diffs.changes import Changes, Disruption
from jobs.diffs.node_diff import Target
from jobs.forecast.strategy import Strategy
from jobs.models import PlanNode, Step

POLL_SECONDS = 3.0
"""How soon a step looks again at what sends no event, such as pods that are ending or blocked."""


class LeaseSpent(Exception):
    """Too little of the lease is left for another call: another worker may own the step before it returns."""


@dataclass(slots=True, kw_only=True)
class StepView:
    """One step with what every stage may look at. Rows are copies; nothing here is saved."""

    step: Step
    strategy: Strategy
    lease_until: datetime
    call_timeout: float
    unfit: str = ""
    """Why nothing at all may be written, as rows tell it: an altered revision, an object newer than the database."""
    freeze: str = ""
    """Why nothing more may be disturbed now, as a sentence."""

    @property
    def is_revert(self) -> bool:
        return self.step.direction == Step.Direction.REVERT

    def before_write(self) -> None:
        """No external write starts with less lease left than its timeout. Raises LeaseSpent."""
        if now() + timedelta(seconds=self.call_timeout) > self.lease_until:
            raise LeaseSpent


@dataclass(slots=True, kw_only=True)
class NodeView(StepView):
    """A node's step."""

    node: Node
    planned: PlanNode
    tuning: NodeTuning | None
    changes: Changes
    target: Target
    """What the step brings the node to: the revision, or on the way back what it ran before."""
    before: Target
    """What it leaves behind."""
    originals: Mapping[str, str | None]
    fleet: Fleet
    owner: str
    """`<installation>/<step id>`: the value of our cordon annotation."""
    revision_digest: str
    rollout: str
    observe: tuple[str, ...]
    silent_since: datetime | None
    """When the agent was last heard, once that is too long ago."""
    selector: Mapping[str, Any] = field(default_factory=dict)
    """Of the plan."""
    busy: str = ""
    """A sentence: what a room above does on the node now, while the step has not started."""
    joins_after: int | None = None
    """Nodes with a greater key are covered by the plan's option; None: it has none."""

    @property
    def worst(self) -> Disruption:
        return Disruption(self.step.worst_class)

    @property
    def restart(self) -> str:
        """The restart grant that the step needs; its most disruptive change may be one that restarts nothing."""
        return self.changes.restart


@dataclass(slots=True)
class StepOutcome:
    """Result to be committed for one step."""

    to: str = ""
    """New status; empty: it stays and waits."""
    fields: dict[str, Any] = field(default_factory=dict)
    log: list[tuple[str, str]] = field(default_factory=list)
    """(level, text)"""
    waits_for: str = ""
    is_patient: bool = False
    """It waits for others of this rollout, which have deadlines of their own: no deadline of its own counts."""
    again_in: float = 0.0
    """Seconds until it is worth looking again; 0: whenever something wakes the rollout."""
    frees_slot: bool = False
    is_gone: bool = False
    """The node itself is no more: nothing of it can be asked or given back."""
    raw_node: dict[str, Any] | None = None
    """The node as a write returned it, so that its row need not wait for the watch."""
    raw_tuning: dict[str, Any] | None = None

    def says(self, text: str, level: str = "info") -> StepOutcome:
        self.log.append((level, text))
        return self


def wait(sentence: str, *, again_in: float = 0.0, is_patient: bool = False, **fields: Any) -> StepOutcome:
    return StepOutcome(waits_for=sentence, again_in=again_in, is_patient=is_patient, fields=fields)


def go(to: str, **fields: Any) -> StepOutcome:
    return StepOutcome(to=to, fields=fields)
