"""What a component's step does in each state, next to `stages` for nodes: look, answer an Outcome.

helm itself runs elsewhere, see `carrying`. No cordon, drain or slot: a component takes no node out of service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from clusters.models import Cluster
from components import work
from jobs.engine import order
from jobs.engine.ending import done, fail, hold
from jobs.engine.order import Order, Wait
from jobs.engine.outcome import Outcome, StepView, go, wait
from jobs.models import PlanComponent, Rollout, Step
from jobs.strategy import Strategy

Status = Step.Status

LOOK_SECONDS = 3.0
"""How soon readiness is looked at again; nothing tells of it."""
WAITS_FOR_HELM = "Waiting for a worker to run helm."
JUDGED = (Status.QUEUED, Status.APPLYING, Status.VERIFYING)


@dataclass(slots=True, kw_only=True)
class ComponentView(StepView):
    """A component's step."""

    cluster: Cluster
    planned: PlanComponent
    prepared: work.Prepared
    waits: Wait | None = None
    """What has to come first; None: it may begin."""


def views(
    rollout: Rollout, steps: Sequence[Step], strategy: Strategy, until: datetime, graph: Order | None = None
) -> list[ComponentView]:
    if graph is None and any(s.status == Status.QUEUED for s in steps):
        graph = order.of(rollout)
    return [_view(rollout, step, strategy, until, graph) for step in steps]


def _view(rollout: Rollout, step: Step, strategy: Strategy, until: datetime, graph: Order | None) -> ComponentView:
    planned = step.plan_component
    assert planned is not None
    prepared = work.Prepared.from_json(planned.prepared)
    view = ComponentView(
        step=step,
        strategy=strategy,
        lease_until=until,
        call_timeout=settings.SETPOINT_CALL_TIMEOUT_SECONDS,
        cluster=rollout.cluster,
        planned=planned,
        prepared=prepared,
        unfit=altered(step, planned, prepared),
    )
    if graph is not None and step.status == Status.QUEUED:
        view.waits = graph.wait(step)
    return view


def release_of(cluster: Cluster, namespace: str, release: str) -> str:
    """What no two live steps may share: Step.release."""
    return f"{cluster.pk}/{namespace}/{release}"


def altered(step: Step, planned: PlanComponent, prepared: work.Prepared) -> str:
    """Why this is not the component of the plan that was approved, as a sentence; empty when it is (law 2)."""
    if prepared.digest != planned.digest:
        return f"What was prepared of {planned.component} is not what was approved: its content was altered."
    named = (prepared.component, prepared.namespace, prepared.release)
    if named != (planned.component, planned.namespace, planned.release) or step.component != planned.component:
        return f"The step is not what was approved: it is about {step.component}, the plan about {prepared.component}."
    return ""


def begin(view: ComponentView) -> Outcome:
    """Queued: has everything come that must come first?"""
    if view.waits is None:
        return go(Status.APPLYING, waiting_for=WAITS_FOR_HELM, output=[])
    sentence = f"Waits for {view.waits.on}."
    if view.waits.is_for_good and view.is_revert:
        # Forwards the rollout stops and a person decides; backwards nobody else says that it cannot go on.
        return hold(view, sentence)
    return Outcome(waits_for=sentence, is_patient=True)


def applying(view: ComponentView) -> Outcome:
    """Claimed here only once its time is over: until then it is helm's."""
    if view.step.granted_at is None:
        return wait("No worker came to run helm: is one running for the queue `helm`?")
    return wait(view.step.waiting_for or "helm has not ended.", again_in=LOOK_SECONDS)


def verifying(view: ComponentView) -> Outcome:
    """Success is what the cluster shows, never that helm ended well (law 8)."""
    view.before_write()  # a look may call the cluster several times
    look = work.look(view.cluster, view.prepared, direction=view.step.direction)
    if look.is_ready:
        return go(done(view)).says("Ready." if not view.is_revert else "Put back.")
    if look.failed:
        return fail(view, look.failed)
    return wait(look.missing or "Waiting to see it ready.", again_in=LOOK_SECONDS)


def guard(view: ComponentView) -> Outcome | None:
    if view.step.status in JUDGED and view.unfit:
        return hold(view, view.unfit)
    return stand_still(view)


def stand_still(view: ComponentView) -> Outcome | None:
    """A freeze came before helm began: its turn comes again. What has begun is finished."""
    if not view.freeze or view.step.status != Status.APPLYING or view.step.granted_at is not None:
        return None
    return go(Status.QUEUED).says(f"{view.freeze} helm has not begun, so this component waits for its end.", "warn")


STAGES: dict[str, Callable[[ComponentView], Outcome]] = {
    Status.QUEUED: begin,
    Status.APPLYING: applying,
    Status.VERIFYING: verifying,
}
