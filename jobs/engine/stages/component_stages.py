"""Stages of a step about the cluster itself, next to `stages` for nodes: each looks and returns an Outcome.

helm runs, and policy objects are applied, elsewhere: see `carrying`. No cordon and no drain: where a component's own
operator takes nodes out of service, its step begins with as many places of the budget as that may take at once (law 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from clusters.inventory.rows import DRIVER_DONE, DRIVER_UPGRADES
from clusters.models import DRIVER_FAILED, Cluster, Node
from common.clock import now
from components.policies.policy_objects import PreparedPolicies
from jobs.diffs import cluster_scope, dependency_graph
from jobs.diffs.dependency_graph import DependencyWait, StepOrder
from jobs.engine import deadlines, event_log
from jobs.engine.failure import fail, hold, success_status
from jobs.engine.outcome import StepOutcome, StepView, go, wait
from jobs.forecast import blast_radius
from jobs.forecast.slots import OutOfService
from jobs.forecast.strategy import Strategy
from jobs.models import PlanComponent, Rollout, Step

Status = Step.Status

LOOK_SECONDS = 3.0
"""How soon readiness is looked at again, at the latest; nothing tells of it."""
JUDGED = (Status.QUEUED, Status.APPLYING, Status.VERIFYING)


@dataclass(slots=True, kw_only=True)
class ComponentView(StepView):
    """The step of a component, or of policy objects."""

    cluster: Cluster
    planned: PlanComponent
    prepared: cluster_scope.Prepared
    waits: DependencyWait | None = None
    """What has to come first; None: it may begin."""

    @property
    def words(self) -> cluster_scope.StateTexts:
        return cluster_scope.STATE_TEXTS[self.step.kind]


def views(
    rollout: Rollout, steps: Sequence[Step], strategy: Strategy, until: datetime, graph: StepOrder | None = None
) -> list[ComponentView]:
    if graph is None and any(s.status == Status.QUEUED for s in steps):
        graph = dependency_graph.step_order(rollout)
    return [_view(rollout, step, strategy, until, graph) for step in steps]


def _view(rollout: Rollout, step: Step, strategy: Strategy, until: datetime, graph: StepOrder | None) -> ComponentView:
    planned = step.plan_component
    assert planned is not None
    prepared = cluster_scope.read_prepared(planned)
    view = ComponentView(
        step=step,
        strategy=strategy,
        lease_until=until,
        call_timeout=settings.SETPOINT_CALL_TIMEOUT_SECONDS,
        cluster=rollout.cluster,
        planned=planned,
        prepared=prepared,
        unfit=altered_reason(step, planned, prepared),
    )
    if graph is not None and step.status == Status.QUEUED:
        view.waits = graph.wait(step)
    return view


def altered_reason(step: Step, planned: PlanComponent, prepared: cluster_scope.Prepared) -> str:
    """Explain, in a sentence, why this is not the component of the plan that was approved; empty when it is (law 2)."""
    if prepared.digest != planned.digest:
        return f"What was prepared of {planned.component} is not what was approved: its content was altered."
    named = (planned.component, planned.namespace, planned.release)
    if not isinstance(prepared, PreparedPolicies):
        named = (prepared.component, prepared.namespace, prepared.release)
    if not blast_radius.columns_agree(planned, prepared.blast):
        return f"What {planned.component} does to running work is not what was approved: its row was altered."
    if (step.kind, step.component) != (cluster_scope.step_kind(planned), planned.component) or named != (
        planned.component,
        planned.namespace,
        planned.release,
    ):
        return f"The step is not what was approved: it is about {step.component}, the plan about {named[0]}."
    return ""


def begin(view: ComponentView) -> StepOutcome:
    """Queued: has everything come that must come first?"""
    if view.waits is None:
        budget = view.strategy.allowed_out(view.cluster.budget)
        if not view.is_revert and (why := blast_radius.never_begins_reason(view.planned, budget)):
            return hold(view, f"{why} Lower its own limit and plan again, or raise the budget and retry.")
        return go(Status.APPLYING, waiting_for=view.words.waits, output=[])
    sentence = f"Waits for {view.waits.on}."
    if view.waits.is_for_good and view.is_revert:
        # Forwards the rollout stops and an operator decides; backwards nothing else reports that it is stuck.
        return hold(view, sentence)
    return StepOutcome(waits_for=sentence, is_patient=True)


def wait_for_places(view: ComponentView, budget: int, places: OutOfService) -> StepOutcome:
    """Too few are free: it waits; too few there are at all: a person decides."""
    if why := blast_radius.never_begins_reason(view.planned, budget):
        return hold(view, f"{why} Lower its own limit and plan again, or raise the budget and retry.")
    needs = f"Needs {view.planned.places} of the budget's {budget} places at once for its operator"
    return StepOutcome(waits_for=f"{needs}: {len(places.taken)} are taken already.", is_patient=True)


def applying(view: ComponentView) -> StepOutcome:
    """Claimed here only once its time is over: until then it is its worker's."""
    if view.step.granted_at is None:
        return wait(view.words.unserved)
    return wait(view.step.waiting_for or view.words.runs, again_in=LOOK_SECONDS)


def verifying(view: ComponentView) -> StepOutcome:
    """Success is what the cluster shows, never that helm ended well or a write was taken (law 8)."""
    view.before_write()  # a look may call the cluster several times
    look = cluster_scope.check_readiness(
        view.cluster, view.prepared, direction=view.step.direction, seen=view.step.looks
    )
    if look.is_ready and (busy := _busy(view)):
        return busy
    if look.is_ready:
        return go(success_status(view)).says("Ready." if not view.is_revert else "Reverted.")
    if look.failed:
        return fail(view, look.failed)
    # Two equal reads say something only with time between them.
    soon = LOOK_SECONDS if look.is_steady else deadlines.poll_seconds(view.step, now(), most=LOOK_SECONDS)
    out = wait(look.missing or "Waiting until it is ready.", again_in=soon)
    out.fields["looks"] = view.step.looks + 1 if look.is_steady else 0
    return out


def _busy(view: ComponentView) -> StepOutcome | None:
    """Keep the step open, with its places, while its operator works on nodes.
    Fails the step if the operator failed on a node.
    """
    if not view.planned.places:
        return None
    nodes = Node.objects.present().filter(cluster=view.cluster, name__in=view.planned.hit)
    labels_by_node = nodes.order_by("name").values_list("name", "labels")
    # Also those whose turn has not come: they are not out yet, and will be.
    every = {name: labels.get(key, "") for name, labels in labels_by_node for key in DRIVER_UPGRADES if labels.get(key)}
    states = {name: state for name, state in every.items() if state != DRIVER_DONE}
    if failed := [name for name, state in states.items() if state == DRIVER_FAILED]:
        return fail(view, f"Its operator could not upgrade the driver of {event_log.join_names(failed[:5])}.")
    if states:
        name, state = next(iter(states.items()))
        more = f" and {len(states) - 1} more" if len(states) > 1 else ""
        return wait(f"Its operator works on {name}{more} ({state}).", again_in=LOOK_SECONDS)
    return None


def guard(view: ComponentView) -> StepOutcome | None:
    if view.step.status in JUDGED and view.unfit:
        return hold(view, view.unfit)
    return return_to_queue(view)


def return_to_queue(view: ComponentView) -> StepOutcome | None:
    """A freeze came, or the window closed, before it began: its turn comes again. What has begun is finished."""
    if not view.freeze or view.step.status != Status.APPLYING or view.step.granted_at is not None:
        return None
    why = "helm has not begun, so this component waits."
    if view.step.is_policies:
        why = "Nothing is written yet, so these wait."
    return go(Status.QUEUED).says(f"{view.freeze} {why}", "warn")


STAGES: dict[str, Callable[[ComponentView], StepOutcome]] = {
    Status.QUEUED: begin,
    Status.APPLYING: applying,
    Status.VERIFYING: verifying,
}
