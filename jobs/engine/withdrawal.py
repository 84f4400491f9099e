"""Withdrawal of what a step asked of its node, before the step ends or gives its node back (laws 1 and 14).

A spec outlives its step in the node's object, and an agent that was cut off carries out what it finds when it is back:
a grant that was forgotten there would reboot a node that is in service again. So the grant goes first, then the cordon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from clusters import objects
from clusters.fleet import FleetError, NotFound
from common.clock import now
from contract.nodetuning import Malformed, Mode, Spec
from jobs.engine.deadlines import backoff
from jobs.engine.outcome import LeaseSpent, NodeView, StepOutcome, wait
from jobs.models import Step

Status = Step.Status

SETTLES_SECONDS = 60.0
"""How long an agent may still carry out a grant that it has confirmed already: twice the agent's CONFIRMED_SECONDS,
after which it does not."""
POLL_SECONDS = 3.0


def withdraw_before_end(view: NodeView, out: StepOutcome) -> StepOutcome:
    """This outcome, once nothing is asked of the node any more; until then the step stays where it is, and says why.

    A node under our own cordon that keeps its slot may end first: nothing runs there that a late restart could hurt,
    and the worker that takes the step up again withdraws the grant before the node is given back.
    """
    step = view.step
    if out.is_gone or out.to not in (Status.FAILED, Status.HELD) or not _may_stand(view):
        return out
    try:
        there = view.fleet.tuning(step.node_name)
        raw = _withdraw(view, there, is_over=bool(step.ending))
    except NotFound:
        return out
    except LeaseSpent:
        return wait("Waiting for the next turn.", again_in=0.001)
    except FleetError as error:
        if _keeps_its_place(view, out):
            return out
        text = f"What was asked of {step.node_name} must be withdrawn before its step ends: {error}"
        pause = backoff(step, now())
        # Its own time may be over: it is looked at again as soon as it is worth trying, and says so until it works.
        until = now() + timedelta(seconds=pause)
        return wait(text, again_in=pause, deadline_at=max(step.deadline_at or until, until))
    if raw is not None:
        out.raw_tuning = raw
        if _grant(there):
            out.fields["withdrawn_at"] = now()
    return out


def withdraw_before_return(view: NodeView) -> StepOutcome | None:
    """Return what the step must still wait for before its node is given back unfinished; None when it may be.

    A node with a grant waits until its agent has seen that it is gone, or cannot carry it out any more.

    Raises FleetError.
    """
    step = view.step
    if not step.ending or not _may_stand(view):
        return None
    try:
        raw = view.fleet.tuning(step.node_name)
    except NotFound:
        return None
    has_grant = _grant(raw)
    written = _withdraw(view, raw, is_over=True)
    raw = written or raw
    was_granted = has_grant or step.granted_at is not None or step.withdrawn_at is not None
    if not (view.restart and was_granted) or _has_seen(raw):
        return None
    since = now() if has_grant or step.withdrawn_at is None else step.withdrawn_at
    if (now() - since).total_seconds() >= SETTLES_SECONDS:
        return None
    text = f"The restart grant of {step.node_name} is withdrawn; waiting for its agent to see that."
    out = wait(text, again_in=POLL_SECONDS, is_patient=True, withdrawn_at=since)
    out.raw_tuning = written
    return out


def _may_stand(view: NodeView) -> bool:
    """Return whether a spec of this step may be in the object."""
    return view.step.has_applied or view.is_revert


def _keeps_its_place(view: NodeView, out: StepOutcome) -> bool:
    fields = out.fields
    is_ours = fields.get("is_ours_to_uncordon", view.step.is_ours_to_uncordon)
    return bool(view.worst.takes_slot and view.step.is_disrupted and is_ours and not out.frees_slot)


def _withdraw(view: NodeView, raw: Mapping[str, Any], *, is_over: bool) -> dict[str, Any] | None:
    """Take grant and spec out of the object `raw`; returns it as written, None where nothing of this step is there.

    What the agent has dealt with is done, and only reported: unless the step is over (`is_over`), only its grant goes.
    Written at the very version that was read. Raises FleetError, LeaseSpent.
    """
    step, stored_spec = view.step, raw.get("spec") or {}
    if stored_spec.get("step") != str(step.pk):
        return None
    is_earlier = stored_spec.get("attempt") != step.attempt
    # Of a step that was to be reverted and never began to be, the spec is what the node still runs.
    goes_whole = not (is_earlier and view.is_revert) and (is_over or not _is_dealt_with(view, raw))
    goes_whole = goes_whole and stored_spec.get("mode") != Mode.OBSERVE
    if not goes_whole and not stored_spec.get("restart"):
        return None
    try:
        spec = Spec.from_json(stored_spec)
    except Malformed:
        spec = Spec(step.node_uid, step=str(step.pk), attempt=step.attempt, observe=view.observe)
        goes_whole = True
    view.before_write()
    left = replace(spec, mode=Mode.OBSERVE if goes_whole else spec.mode, restart=None)
    return view.fleet.tune(step.node_name, left, version=str(objects.meta(raw).get("resourceVersion") or ""))


def _is_dealt_with(view: NodeView, raw: Mapping[str, Any]) -> bool:
    status = raw.get("status") or {}
    answers = (status.get("step"), status.get("attempt")) == (str(view.step.pk), view.step.attempt)
    return answers and _has_seen(raw)


def _grant(raw: Mapping[str, Any]) -> bool:
    return bool((raw.get("spec") or {}).get("restart"))


def _has_seen(raw: Mapping[str, Any]) -> bool:
    """Return whether the agent's answer is about the object as it is."""
    seen = (raw.get("status") or {}).get("observedGeneration")
    return isinstance(seen, int) and seen >= int(objects.meta(dict(raw)).get("generation") or 0)
