"""Preconditions of a rollout's writes (law 2): its plan is as approved, and no freeze is in effect.

Checked before a step starts, and again until its first write.
"""

from __future__ import annotations

from clusters.objects import selects
from jobs.calendars import targets
from jobs.calendars.open_times import Opening
from jobs.diffs.changes import ChangeKind
from jobs.diffs.node_diff import is_within
from jobs.engine.outcome import NodeView, StepOutcome, go
from jobs.models import Freeze, Rollout, Step
from jobs.planning import digests

Status = Step.Status

WRITES = (Status.ADMITTED, Status.CORDONING, Status.DRAINING, Status.APPLYING, Status.RESTARTING)
"""States whose next move may write to the cluster on behalf of the plan. Giving a node back is always allowed."""
FREEZES = (Status.ADMITTED, Status.CORDONING, Status.DRAINING, Status.APPLYING)
"""States in which the first disruptive write may still be to come."""


def altered_reason(rollout: Rollout) -> str:
    """Explain, in a sentence, why the plan is not what was approved; empty when it is. Computed once a slice."""
    memory = rollout.__dict__
    if "altered" not in memory:
        is_approved = digests.is_as_approved(rollout.plan)
        memory["altered"] = "" if is_approved else "The plan is not what was approved: its digest differs."
        if not rollout.is_genuine or rollout.digest != rollout.plan.digest:
            memory["altered"] = f"{rollout} is not what was approved: its row, or its plan's, was altered."
    return str(memory["altered"])


def freeze_reason(rollout: Rollout, opening: Opening) -> str:
    """The reason of a freeze that holds this rollout, one of the calendar included; empty when there is none, or a
    revert was told to pass it.
    """
    if rollout.status == Rollout.Status.REVERTING and rollout.freeze_override:
        return ""
    standing = Freeze.standing(rollout.cluster_id).first()
    if standing:
        return f"{targets.FREEZE_IS_ACTIVE} {standing.reason}"
    return targets.freeze_sentence(opening)


def return_to_queue(view: NodeView) -> StepOutcome | None:
    """A freeze came, or the window closed, after the step's start and before its first disruptive write: its turn
    comes again.

    Its node is given back as it was. One that an earlier attempt disturbed keeps cordon and slot (law 14).
    """
    step = view.step
    if not view.freeze or step.status not in FREEZES:
        return None
    if step.is_disrupted and step.status in (Status.DRAINING, Status.APPLYING):
        return None
    if step.status == Status.APPLYING and _has_written(view):
        return None
    if step.is_disrupted:
        out = go(Status.QUEUED, boot_id="")
    elif step.status == Status.ADMITTED or not view.worst.takes_slot:
        out = go(Status.QUEUED, boot_id="", has_applied=step.status == Status.APPLYING and _decorates(view))
        out.frees_slot = True
    else:
        # The cordon may or may not have been written: returning looks at the node and releases what is ours.
        has_applied = step.status == Status.APPLYING and _decorates(view)
        out = go(Status.RETURNING, ending=Status.QUEUED, boot_id="", has_applied=has_applied)
    return out.says(f"{view.freeze} Nothing has been disturbed yet, so this node waits.", "warn")


def _has_written(view: NodeView) -> bool:
    """A worker may have been killed between writing the spec and saying so: the object itself knows (law 6)."""
    spec = view.fleet.tuning(view.step.node_name).get("spec") or {}
    return (spec.get("step"), spec.get("attempt")) == (str(view.step.pk), view.step.attempt)


def _decorates(view: NodeView) -> bool:
    """Return whether labels, annotations or taints are written before the spec, so that some of them may be there."""
    marks = (view.target.labels, view.target.annotations, view.before.labels, view.before.annotations)
    return any(marks) or any(c.kind == ChangeKind.TAINT for c in view.changes.items)


def altered_step_reason(view: NodeView) -> str:
    """Explain, in a sentence, why this step is not the one of the plan that was approved; empty when it is."""
    step, row = view.step, view.planned
    if view.changes.digest != row.change_set_id:
        return "The plan's change set is not what was approved: its content was altered."
    if (step.worst_class, step.node_uid, view.node.uid) != (view.changes.worst_class, row.uid, row.uid):
        return "The step is not what was approved: its node or its class was altered."
    return _beyond_the_option(view) if row.batch == 0 else ""


def _beyond_the_option(view: NodeView) -> str:
    """Explain, in a sentence, why a node that joined is not what the plan's option covers; empty when it is.

    The digest does not name it: that it was unknown then, is of the pool and takes the revision live is judged here.
    """
    row, node = view.planned, view.node
    forward = view.before if view.is_revert else view.target
    if not view.joins_after or row.node_id <= view.joins_after:
        return f"{node.name} is not what was approved: it is not a node that joined since."
    if not is_within(view.changes, forward, enforce=view.strategy.enforce):
        return f"{node.name} is not what was approved: nodes that join get only live changes of the revision."
    if view.is_revert or view.step.status not in (Status.QUEUED, Status.APPLYING):
        return ""
    if not selects(view.selector, node.labels):
        return f"{node.name} is no longer in the pool, so the plan does not cover it."
    observed = view.tuning.observed if view.tuning else {}
    if there := [key for key in view.changes.unsupported if key in observed]:
        return f"{node.name} is not what was approved: it has {there[0]}, which its changes leave out."
    return ""
