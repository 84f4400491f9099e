"""Failure outcomes of a step (law 14).

Before the first disruptive write its node is given back: our cordon released, the slot returned. After it, the node
stays cordoned and keeps its slot until an operator, or the strategy, decides.
"""

from __future__ import annotations

from jobs.engine.outcome import NodeView, StepOutcome, StepView, go
from jobs.models import Step

Status = Step.Status


def fail(view: StepView, why: str) -> StepOutcome:
    return _end(view, Status.FAILED, why)


def hold(view: StepView, why: str) -> StepOutcome:
    """Hold the step, which is not a failure: an operator must decide before it continues."""
    return _end(view, Status.HELD, why)


def _end(view: StepView, ending: str, why: str) -> StepOutcome:
    step = view.step
    stage = step.failed_in or step.status
    level = "bad" if ending == Status.FAILED else "warn"
    fields = {"error": why[:1000], "failed_in": stage}
    if step.status == Status.RETURNING:
        # What must be given back could not be. Its place stays taken until an operator retries it.
        return go(ending, ending="", **fields).says(f"{ending} while {stage}: {why}", level)
    if step.is_disrupted:
        return go(ending, **fields).says(f"{ending} while {stage}: {why}", level)
    if step.is_ours_to_uncordon or step.status == Status.CORDONING:
        # The cordon may or may not have been written: returning looks at the node and releases what is ours.
        return go(Status.RETURNING, ending=ending, **fields).says(f"{why} Giving the node back.", level)
    out = go(ending, **fields).says(f"{ending} while {stage}: {why}", level)
    out.frees_slot = True
    return out


def node_gone(view: NodeView, why: str) -> StepOutcome:
    """The node itself is no more: nothing to give back (law 9)."""
    if view.step.ending == Status.SKIPPED:  # a person had given it up already
        out = go(Status.SKIPPED, ending="").says(why, "warn")
    else:
        out = go(Status.FAILED, error=why[:1000], failed_in=view.step.status).says(why, "bad")
    out.frees_slot = out.is_gone = True
    return out


def success_status(view: StepView) -> str:
    """The status of success in this direction."""
    return Status.REVERTED if view.is_revert else Status.SUCCEEDED
