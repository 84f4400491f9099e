"""One step's turn: its stage looks and answers, and every way in which the cluster can fail becomes an outcome.

No database for nodes, so that many can have their turn at once, in threads.
"""

from __future__ import annotations

from clusters import objects
from clusters.fleet import (
    Conflict,
    FleetError,
    FleetRefused,
    FleetUnavailable,
    Forbidden,
    NotFound,
    Replaced,
    Throttled,
)
from common.clock import now
from components.helm.errors import HelmError, HelmUnauthorized
from jobs.engine import withdrawal
from jobs.engine.deadlines import after_failed_call, after_refused_call, backoff, within_deadline
from jobs.engine.failure import fail, hold, node_gone
from jobs.engine.outcome import LeaseSpent, NodeView, StepOutcome, StepView, wait
from jobs.engine.stages import component_stages, node_stages
from jobs.engine.stages.component_stages import ComponentView


def decide(view: StepView) -> StepOutcome:
    """One stage's outcome, with every way the cluster can fail translated (law 4: nothing waits in silence)."""
    step = view.step
    try:
        out = _decided(view)
    except LeaseSpent:
        out = wait("Waiting for the next turn.", again_in=0.001)
    except HelmUnauthorized as error:
        out = after_failed_call(step, error)
    except HelmError as error:
        out = fail(view, str(error)) if error.is_final else wait(str(error), again_in=backoff(step, now()))
    except Throttled as error:
        out = wait(f"The API server asks to wait {error.retry_after:.0f} s: {error}", again_in=error.retry_after)
    except FleetUnavailable as error:
        out = after_failed_call(step, error)
    except Replaced as error:
        if not isinstance(view, NodeView):
            return fail(view, f"The object of this step was replaced meanwhile: {error}")
        return node_gone(view, f"{step.node_name} was replaced meanwhile: {error}")
    except NotFound as error:
        out = _not_there(view, error)
    except Conflict as error:
        out = hold(view, f"Another field manager or controller owns what this step would write: {error}")
    except Forbidden as error:
        out = after_refused_call(view, error, waited_for=step.waiting_for)
    except FleetRefused as error:
        out = fail(view, f"The API server refused: {error}") if error.is_final else after_failed_call(step, error)
    out = out if out.to else within_deadline(view, out)
    return withdrawal.withdraw_before_end(view, out) if isinstance(view, NodeView) else out


def _decided(view: StepView) -> StepOutcome:
    if isinstance(view, ComponentView):
        return component_stages.guard(view) or component_stages.STAGES[view.step.status](view)
    assert isinstance(view, NodeView)
    return node_stages.guard(view) or node_stages.STAGES[view.step.status](view)


def _not_there(view: StepView, error: NotFound) -> StepOutcome:
    """The node, or another object that belongs to it: only a node that is gone gives its slot back."""
    if not isinstance(view, NodeView):
        return fail(view, f"What this step needs is not there: {error}")
    try:
        uid = objects.meta(view.fleet.node(view.step.node_name)).get("uid")
    except NotFound:
        return node_gone(view, f"{view.step.node_name} is gone: {error}")
    except FleetError as unknown:
        return after_failed_call(view.step, unknown)
    if uid != view.step.node_uid:
        return node_gone(view, f"{view.step.node_name} was replaced meanwhile: {error}")
    return fail(view, f"What this step needs is not there: {error}")
