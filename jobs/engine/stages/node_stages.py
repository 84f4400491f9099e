"""One function a state: look, perhaps call the cluster once or twice, answer an Outcome. No database here.

Each can run twice or be killed between any two lines: what was written is found again on the next look (law 6).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from clusters import objects
from clusters.fleet import Taint
from common.clock import now
from jobs.diffs.changes import ChangeKind
from jobs.engine import preconditions, spec, withdrawal
from jobs.engine.event_log import clock_time
from jobs.engine.failure import fail, hold, node_gone, success_status
from jobs.engine.outcome import POLL_SECONDS, NodeView, StepOutcome, go, wait
from jobs.engine.stages import node_marks, node_taints
from jobs.engine.stages.agent_report import refusal
from jobs.engine.stages.node_drain import draining
from jobs.engine.stages.node_restart import restarting
from jobs.engine.stages.node_start import begin
from jobs.engine.stages.node_verification import not_yet, verifying
from jobs.models import Step

Status = Step.Status


def admitted(view: NodeView) -> StepOutcome:
    return go(Status.CORDONING, boot_id=view.step.boot_id or view.node.boot_id)


def cordoning(view: NodeView) -> StepOutcome:
    """Cordon, unless the node was cordoned before: then the cordon stays another's (law 5)."""
    after, begins = (Status.DRAINING, {}) if view.worst.drains else (Status.APPLYING, {"has_applied": True})
    view.before_write()
    # Another step of this installation can only have rested: its slot on this node came over, and its cordon does, too.
    ours = view.owner.rpartition("/")[0] + "/"
    node = view.fleet.cordon(view.step.node_name, view.step.node_uid, view.owner, instead_of=ours)
    if objects.cordon_owner(node) != view.owner:
        out = go(after, was_cordoned=True, is_ours_to_uncordon=False, **begins)
        return _with_node(out.says("Already cordoned by others; Setpoint does not take that cordon over."), node)
    return _with_node(go(after, is_ours_to_uncordon=True, was_cordoned=False, **begins).says("Cordoned."), node)


def applying(view: NodeView) -> StepOutcome:
    """Labels, annotations and taints, then the spec. Originals are in the database since the move into this state."""
    node = None
    labels, annotations = dict(view.target.labels), dict(view.target.annotations)
    if pods := node_taints.unplanned_evictions(view):
        return hold(view, pods)
    if moved := node_marks.write_labels(view):
        return hold(view, moved)
    if labels or annotations or view.before.labels or view.before.annotations:
        view.before_write()
        node = view.fleet.decorate(view.step.node_name, view.step.node_uid, labels=labels, annotations=annotations)
    add, remove = _taints(view)
    if add or remove:
        view.before_write()
        node = view.fleet.taint(view.step.node_name, view.step.node_uid, add=add, remove=remove)
    view.before_write()
    raw = view.fleet.tune(view.step.node_name, spec.build(view))
    generation = int(objects.meta(raw).get("generation") or 0)
    after = Status.RESTARTING if view.restart else Status.VERIFYING
    out = go(after, generation=generation, has_applied=True)
    if view.worst.takes_slot:
        out.fields["is_disrupted"] = True
    out.raw_tuning = raw
    return _with_node(out, node) if node else out


def _taints(view: NodeView) -> tuple[list[Taint], list[Taint]]:
    add, remove = [], []
    for change in view.changes.items:
        if change.kind != ChangeKind.TAINT:
            continue
        key, _, effect = change.key.rpartition(":")
        value = change.expect if view.is_revert else change.value
        if value is None:
            remove.append(Taint(key, "", effect))
        else:
            add.append(Taint(key, value, effect))
    return add, remove


def returning(view: NodeView) -> StepOutcome:
    """Release what is ours, keep what is others', and give the slot back once the node is seen schedulable."""
    node = view.fleet.node(view.step.node_name)
    if lost := _identity(view, node):
        return lost
    if waits := withdrawal.withdraw_before_return(view):
        return waits
    out = _after_return(view)
    out.frees_slot = True
    if objects.cordon_owner(node) == view.owner:
        was_cordoned = objects.is_cordoned(node)
        view.before_write()
        # Also where another party uncordoned it: a mark that outlives its cordon would make the next person's ours.
        node = view.fleet.uncordon(view.step.node_name, view.step.node_uid, view.owner)
        if objects.is_cordoned(node):
            return _with_node(out.says("Kept cordoned on request: Setpoint no longer owns the cordon."), node)
        if was_cordoned:
            out.says("Uncordoned.")
    if objects.is_cordoned(node):
        return _with_node(out.says("Stays cordoned: that cordon is not Setpoint's."), node)
    if not view.step.ending and not objects.is_ready(node):
        return _with_node(wait(f"{view.node.name} is not Ready yet.", again_in=POLL_SECONDS), node)
    return _with_node(out, node)


def _after_return(view: NodeView) -> StepOutcome:
    free = {"is_ours_to_uncordon": False, "is_disrupted": False}  # the next attempt begins with an untouched node
    if view.step.ending:
        return go(view.step.ending, ending="", **free)
    if view.strategy.soak_seconds and not view.is_revert:
        return go(Status.SOAKING, **free)
    return go(success_status(view), **free)


def soaking(view: NodeView) -> StepOutcome:
    """The node must stay well for a while before the next batch starts."""
    if not view.node.is_ready:
        return fail(view, f"{view.node.name} became not Ready while soaking: {view.node.ready_reason}.")
    if bad := refusal(view, ()):
        return bad
    left = view.strategy.soak_seconds - (now() - view.step.entered_at).total_seconds()
    if left > 0:
        # Looked at whenever the node changes: one that is ill for a while in between is what soaking is there to see.
        end = clock_time(view.step.entered_at + timedelta(seconds=view.strategy.soak_seconds))
        return wait(f"Soaking {view.node.name} until {end}.")
    reported = view.tuning.status.get("bootID") if view.tuning else ""
    if reported and view.node.boot_id and reported != view.node.boot_id:
        return wait(f"{view.node.name} has booted (boot {view.node.boot_id[:8]}); waiting for its agent to answer.")
    if changed := not_yet(view):
        return fail(view, f"It was as planned when the soak began, and is not at its end: {changed}")
    return go(success_status(view))


def _identity(view: NodeView, node: dict[str, object]) -> StepOutcome | None:
    uid = objects.meta(node).get("uid")
    if uid != view.step.node_uid:
        return node_gone(view, f"{view.step.node_name} has UID {str(uid)[:8]} now: another node under the same name.")
    return None


def _with_node(out: StepOutcome, node: dict[str, object]) -> StepOutcome:
    out.raw_node = node
    return out


JUDGED = (Status.QUEUED, *preconditions.WRITES, Status.VERIFYING)
"""States in which what was approved must still stand."""


def guard(view: NodeView) -> StepOutcome | None:
    """Handle what can happen to a node in any active stage: deleted, replaced, or uncordoned by others."""
    step, node = view.step, view.node
    if node.gone_at is not None:
        return node_gone(view, f"{node.name} was deleted or replaced while {step.status}.")
    if step.status in JUDGED and (unfit := view.unfit or preconditions.altered_step_reason(view)):
        return hold(view, unfit)
    if stays := preconditions.return_to_queue(view):
        return stays
    holds = step.is_ours_to_uncordon and step.status in (
        Status.DRAINING,
        Status.APPLYING,
        Status.RESTARTING,
        Status.VERIFYING,
    )
    if not holds or node.is_cordoned:
        return None
    fresh = view.fleet.node(step.node_name)
    if lost := _identity(view, fresh):
        return lost
    if objects.is_cordoned(fresh):
        return None
    if step.recordoned:
        if objects.cordon_owner(fresh) == view.owner:
            view.before_write()
            fresh = view.fleet.uncordon(step.node_name, step.node_uid, view.owner)  # takes our mark away
        out = hold(view, f"{node.name} was uncordoned twice externally while Setpoint worked on it.")
        out.fields["is_ours_to_uncordon"] = False
        return _with_node(out, fresh)
    view.before_write()
    fresh = view.fleet.cordon(step.node_name, step.node_uid, view.owner)
    ours = objects.cordon_owner(fresh) == view.owner
    out = StepOutcome(
        waits_for="Cordoned again.", again_in=0.001, fields={"recordoned": 1, "is_ours_to_uncordon": ours}
    )
    return _with_node(out.says("The node was uncordoned externally; cordoned again, once.", "warn"), fresh)


STAGES: dict[str, Callable[[NodeView], StepOutcome]] = {
    Status.QUEUED: begin,
    Status.ADMITTED: admitted,
    Status.CORDONING: cordoning,
    Status.DRAINING: draining,
    Status.APPLYING: applying,
    Status.RESTARTING: restarting,
    Status.VERIFYING: verifying,
    Status.RETURNING: returning,
    Status.SOAKING: soaking,
}
