"""Start of a step on a node: is this still what was approved (law 2), and can the node be asked?"""

from __future__ import annotations

from clusters import objects
from contract import names
from jobs.diffs.changes import ChangeKind
from jobs.diffs.staleness import is_moved
from jobs.engine.failure import hold, node_gone
from jobs.engine.outcome import POLL_SECONDS, NodeView, StepOutcome, go, wait
from jobs.models import Step

Status = Step.Status


def begin(view: NodeView) -> StepOutcome:
    """Queued: is this still what was approved (law 2), and can the node be asked?"""
    if unfit := _cannot_start(view):
        return unfit
    if view.worst.takes_slot:
        return go(Status.ADMITTED).says("Slot taken.")
    return go(Status.APPLYING, boot_id=view.node.boot_id, has_applied=True)


def _cannot_start(view: NodeView) -> StepOutcome | None:
    node, tuning = view.node, view.tuning
    if node.gone_at is not None:
        return node_gone(view, f"Node {node.name} with UID {node.uid[:8]} was deleted or replaced since the plan.")
    if tuning is None or tuning.protocol == 0:
        return wait("No agent has answered on this node yet.", again_in=POLL_SECONDS)
    skew = tuning.protocol - names.PROTOCOL
    if abs(skew) > names.MAX_SKEW:
        which = "the control plane" if skew > 0 else "the agent"
        return hold(
            view, f"Agent protocol {tuning.protocol} and ours, {names.PROTOCOL}, are too far apart: upgrade {which}."
        )
    if view.silent_since:
        return wait(f"Agent silent since {view.silent_since:%H:%M:%S} UTC.", again_in=POLL_SECONDS)
    if view.busy:
        return wait(view.busy, again_in=POLL_SECONDS)
    if node.is_driver_busy:
        return wait(f"An operator upgrades the driver of {node.name} ({node.driver_upgrade}).", again_in=POLL_SECONDS)
    if not view.is_revert:
        # A revert is how an ill node gets well, so it passes this gate; never the budget's.
        if not node.is_ready and not view.strategy.include_unavailable:
            return wait(
                f"{node.name} is not Ready: {node.ready_reason or 'the kubelet is silent'}.", again_in=POLL_SECONDS
            )
        if node.is_cordoned and not view.strategy.include_unavailable and node.cordoned_by != view.owner:
            return wait(f"{node.name} is cordoned by another party.", again_in=POLL_SECONDS)
        if not view.step.has_applied and not objects.selects(view.selector, node.labels):
            left = f"{node.name} left the pool since the plan: its labels no longer match the plan."
            return hold(view, f"{left} Skip it, or label it as it was and retry.")
        if moved := _moved_key(view):
            return hold(view, moved)
    if moved := _moved_taint(view):
        return hold(view, moved)
    return None


def _moved_taint(view: NodeView) -> str:
    """The first planned taint that is neither as the plan saw it nor as it wants it, whichever way the step goes."""
    there = {(t["key"], t["effect"]): t["value"] for t in view.node.taints}
    for change in view.changes.items:
        if change.kind == ChangeKind.TAINT:
            key, _, effect = change.key.rpartition(":")
            present = there.get((key, effect))
            if present not in (change.expect, change.value):
                return f"The taint {change.key} moved: it is {present if present is not None else 'absent'} now."
    return ""


def _moved_key(view: NodeView) -> str:
    """The first planned key with neither its before- nor its after-value."""
    assert view.tuning is not None
    for change in view.changes.settings():
        effective = view.tuning.observed.get(change.key)
        if is_moved(change, effective):
            return (
                f"{change.key} moved: it was {change.expect or 'absent'} in the plan and is {effective or 'absent'} "
                "now. Plan again."
            )
    return ""
