"""One slice of one rollout: finish what is under way, start what may start, say what is waited for.

Any number of workers may run slices of one rollout at once; steps are claimed in sets, and what was claimed by a
worker that died comes free when its lease ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from django.conf import settings
from django.db import transaction

from clusters.connection import registry
from clusters.fleet import Fleet, FleetError
from clusters.services.lifecycle import MOST_BUDGET
from common.errors import LostRace
from jobs.calendars import targets
from jobs.diffs import dependency_graph
from jobs.diffs.dependency_graph import StepOrder
from jobs.engine import (
    batches,
    claims,
    commit,
    dispatch,
    event_log,
    newcomers,
    preconditions,
    progress,
    reverting,
    spec,
    step_views,
    visibility,
    windows,
)
from jobs.engine.deadlines import within_deadline
from jobs.engine.outcome import NodeView, StepOutcome, StepView, wait
from jobs.engine.stages import component_stages
from jobs.engine.stages.component_stages import ComponentView
from jobs.engine.step_counts import StepTally
from jobs.forecast import slots
from jobs.forecast.strategy import Strategy
from jobs.models import Rollout, Step

log = logging.getLogger(__name__)
Status = Step.Status
NODE = Step.Kind.NODE
PARTS = (Step.Kind.COMPONENT, Step.Kind.POLICIES)

IN_FLIGHT_ORDER = (  # the furthest first, so that places come free before new steps ask for them
    Status.SOAKING,
    Status.RETURNING,
    Status.VERIFYING,
    Status.RESTARTING,
    Status.APPLYING,
    Status.DRAINING,
    Status.CORDONING,
    Status.ADMITTED,
)


def advance(rollout_id: UUID, *, fleet: Fleet | None = None) -> bool:
    """Do one slice. Returns whether anything moved, that is whether another slice is worth running at once."""
    rollout = _due(rollout_id)
    if rollout is None:
        return False
    try:
        if progress.is_blocked(rollout):
            return False
        fleet = fleet or registry.connect(rollout.cluster)
        step_views.refresh_if_stale(rollout.cluster, fleet)
        visibility.mark_regained(rollout)
        tally = StepTally(rollout)
        moved = _continue(rollout, fleet, tally)
        if moved is not None:  # calls take their time, and a person may have paused meanwhile
            rollout.refresh_from_db(fields=progress.READ_ANEW)
        if moved:
            tally = StepTally(rollout)
        changed = reverting.carry_out_ending(rollout, tally)
        changed += newcomers.admit(rollout, Strategy.from_json(rollout.plan.strategy))
        if changed:
            tally = StepTally(rollout)
        started = _start(rollout, fleet, tally)
        has_ended = progress.settle(rollout, tally if started is None else None)
        return has_ended or (moved or 0) + changed + (started or 0) > 0
    except FleetError as error:
        # Only a full refresh can fail here: stages answer for their own calls.
        visibility.mark_lost(rollout, error)
        return False
    except LostRace:
        return True


_READ_WITH = ("cluster", "plan__revision", "plan__pool", "glass__person")


def _due(rollout_id: UUID) -> Rollout | None:
    """Return the rollout if it is due, with everything of the plan that its digest covers."""
    rows = Rollout.objects.due().select_related(*_READ_WITH).order_by()
    rollout = next(iter(rows.filter(pk=rollout_id)), None)
    if rollout is not None and rollout.plan.cluster_id == rollout.cluster_id:
        rollout.plan.cluster = rollout.cluster  # the same row need not be read twice
    return rollout


def run(
    rollout_id: UUID, *, fleet: Fleet | None = None, slices: int = 50, rest: Callable[[float], object] | None = None
) -> None:
    """Slices until nothing moves; bounded, so that one rollout cannot keep a worker from the others.

    `rest` is called between two, with the seconds of CPU that the first took: over thousands of nodes each slice asks
    about all of them, and the longer the next one waits, the more answers it finds at once.
    """
    for _ in range(slices):
        began = time.thread_time()
        if not advance(rollout_id, fleet=fleet):
            return
        if rest:
            rest(time.thread_time() - began)


def _continue(rollout: Rollout, fleet: Fleet, tally: StepTally) -> int | None:
    """Advance in-flight steps, the latest stage first. Returns how many moved; None if nothing was claimed.
    Backwards through the stages, so a step that reaches a stage in this slice is looked at in the next.
    """
    there = {(group.kind, group.status) for group in tally}
    return _sum_moved(
        _stage(rollout, status, fleet, kind=kind)
        for status in IN_FLIGHT_ORDER
        for kind in (NODE, *PARTS)
        if (kind, status) in there
    )


def _start(rollout: Rollout, fleet: Fleet, tally: StepTally) -> int | None:
    """Start queued steps. Returns how many moved; None if nothing was claimed."""
    if not tally.has_any((Status.QUEUED,)):
        return None
    graph = dependency_graph.step_order(rollout)
    return _sum_moved((_start_nodes(rollout, fleet, tally, graph), _start_components(rollout, fleet, tally, graph)))


def _sum_moved(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _start_nodes(rollout: Rollout, fleet: Fleet, tally: StepTally, graph: StepOrder | None) -> int | None:
    """Bring queued nodes of the open batch under way, as far as status, freezes, failures and budget allow."""
    strategy = Strategy.from_json(rollout.plan.strategy)
    room = min(claims.SET_SIZE, strategy.max_in_flight - tally.nodes(Step.ACTIVE))
    if room <= 0:
        return None  # before it is asked whether any may start, which reads the whole plan
    batch = batches.next_batch(rollout, tally)
    if batch is None or not progress.may_start(rollout, tally):
        return None
    if rollout.status in batches.BACKWARDS and graph and (waits := graph.nodes_wait()):
        event_log.set_sentence_unless_held(rollout, tally, f"The node settings wait for {waits.on}.")
        return None
    if not batches.may_open(rollout, batch, tally):
        return None
    if rollout.status == Rollout.Status.RUNNING:
        batches.reorder(rollout, batch, strategy)
    return _stage(rollout, Status.QUEUED, fleet, limit=room, batch=batch, direction=batches.start_direction(rollout))


def _start_components(rollout: Rollout, fleet: Fleet, tally: StepTally, graph: StepOrder | None) -> int | None:
    """Bring queued components and policy objects under way that wait for nothing; others say what they wait for."""
    queued = {group.kind for group in tally if group.status == Status.QUEUED} & set(PARTS)
    if graph is None or not queued or not progress.may_start(rollout, tally):
        return None
    way = batches.start_direction(rollout)
    return _sum_moved(
        _stage(rollout, Status.QUEUED, fleet, kind=kind, direction=way, graph=graph) for kind in PARTS if kind in queued
    )


def _stage(
    rollout: Rollout,
    status: str,
    fleet: Fleet,
    *,
    kind: str = NODE,
    limit: int = claims.SET_SIZE,
    batch: int | None = None,
    direction: str | None = None,
    graph: StepOrder | None = None,
) -> int | None:
    """Take one set through its stage. Returns how many moved; None if nothing was claimed."""
    token, until, steps = claims.claim(rollout, status, kind=kind, limit=limit, batch=batch, direction=direction)
    if not steps:
        return None
    is_committed = False
    try:
        strategy = Strategy.from_json(rollout.plan.strategy)
        views: Sequence[StepView]
        if kind != NODE:
            views = component_stages.views(rollout, steps, strategy, until, graph)
        else:
            views = step_views.views(rollout, steps, fleet, strategy, until)
        _look_at_warrant(rollout, status, views)
        outcomes = [(view, out) for view, out in _decide(views) if commit.is_news(view.step, out)]
        if not outcomes:
            return 0
        with transaction.atomic():  # slots and the moves they allow: both or neither
            if status == Status.QUEUED:
                outcomes = _with_slots(rollout, strategy, _still_allowed(rollout, strategy, token, outcomes))
            of_nodes = [(view, out) for view, out in outcomes if isinstance(view, NodeView)]
            for view, out in of_nodes:
                if out.to == Status.APPLYING:
                    out.fields |= {"expects": spec.expected_values(view), "withdrawn_at": None}
            preparing = [
                step_views.expected_record(view, rollout) for view, out in of_nodes if out.to == Status.APPLYING
            ]
            restored = {
                view.step.node_key: keys
                for view, out in of_nodes
                if out.to in (Status.SUCCEEDED, Status.REVERTED) and (keys := step_views.dropped_keys(view))
            }
            pairs = [(view.step, out) for view, out in outcomes]
            count = commit.commit(token, pairs, strategy=strategy, preparing=preparing, restored=restored)
        is_committed = True
        step_views.store_answers(rollout.cluster, [out for _, out in outcomes])
        return count
    finally:
        if not is_committed or any(step.claim for step in steps):  # of the others the commit gave it back
            claims.release(token)


def _look_at_warrant(rollout: Rollout, status: str, views: Sequence[StepView]) -> None:
    """Copy what forbids the rollout as a whole to write into the views of steps that are about to write (law 2)."""
    altered = preconditions.altered_reason(rollout) if status in preconditions.WRITES else ""
    freeze = closed = ""
    if status in preconditions.FREEZES:
        gate = windows.StartGate(rollout)
        freeze = preconditions.freeze_reason(rollout, gate.opening)
        closed = gate.stopped or targets.closed_sentence(gate.opening)
    for view in views:
        view.unfit = view.unfit or altered
        view.freeze = freeze or (closed if windows.is_bound(view.step) else "")


def _still_allowed(
    rollout: Rollout, strategy: Strategy, token: str, outcomes: list[tuple[StepView, StepOutcome]]
) -> list[tuple[StepView, StepOutcome]]:
    """Keep the outcomes that are still allowed, judged again under the rollout's row lock.
    A pause, an abort or a freeze that was confirmed to a person counts, and so does a window that closed (law 15);
    two workers together keep to max_in_flight.
    Steps that were taken away meanwhile are left out.
    """
    status = Rollout.objects.select_for_update(no_key=True).values_list("status", flat=True).get(pk=rollout.pk)
    tally = StepTally(rollout)
    if status != rollout.status or progress.start_hindrance(rollout, tally) is not None:
        return []
    step_ids = [view.step.pk for view, _ in outcomes]
    ours = Step.objects.select_for_update(no_key=True).filter(pk__in=step_ids, claim=token, status=Status.QUEUED)
    still = set(ours.values_list("pk", flat=True))
    room = strategy.max_in_flight - tally.nodes(Step.ACTIVE)
    outcomes = windows.StartGate(rollout).held_back(outcomes)
    started = {view.step.batch for view, _ in outcomes if not view.step.is_component}
    apart = {batch for batch in started if batches.other_domain_out(rollout, batch, tally)}
    kept = []
    for view, out in outcomes:
        starts = out.to in (Status.ADMITTED, Status.APPLYING) and not view.step.is_component
        room -= starts
        if starts and view.step.batch in apart:
            continue
        if view.step.pk in still and not (starts and room < 0):
            kept.append((view, out))
    return kept


def _with_slots(
    rollout: Rollout, strategy: Strategy, outcomes: list[tuple[StepView, StepOutcome]]
) -> list[tuple[StepView, StepOutcome]]:
    """Steps to be admitted ask the ledger; one without a place waits, and says for what."""
    asking = [view.step for view, out in outcomes if out.to == Status.ADMITTED]
    outcomes = _with_places(rollout, strategy, outcomes)
    if not asking:
        return outcomes
    budget = _budget(rollout, strategy)
    granted, places = slots.take_slots(asking, rollout.cluster, plan_id=rollout.plan_id, budget=budget)
    sentence = f"Needs a slot: {places.sentence(budget)}."
    is_busy = bool(granted) or rollout.steps.of_nodes().filter(status__in=Step.ACTIVE).exists()

    def refused(view: StepView) -> StepOutcome:
        # As long as its own rollout moves, a long queue is no deadline missed.
        return wait(sentence) if is_busy else within_deadline(view, wait(sentence))

    return [
        (view, out if out.to != Status.ADMITTED or view.step.pk in granted else refused(view)) for view, out in outcomes
    ]


def _budget(rollout: Rollout, strategy: Strategy) -> int:
    """Never more than the approvers saw. The ledger takes what the cluster allows now, where that is less."""
    return strategy.allowed_out(int(rollout.plan.summary.get("budget", MOST_BUDGET)))


def _with_places(
    rollout: Rollout, strategy: Strategy, outcomes: list[tuple[StepView, StepOutcome]]
) -> list[tuple[StepView, StepOutcome]]:
    """A component whose operator takes nodes out by itself begins with all the places that it may take, or waits."""
    asking = [
        view
        for view, out in outcomes
        if isinstance(view, ComponentView) and out.to == Status.APPLYING and view.planned.places
    ]
    if not asking:
        return outcomes
    budget = _budget(rollout, strategy)
    granted, places = slots.reserve_places(
        [v.step for v in asking], rollout.cluster, plan_id=rollout.plan_id, budget=budget
    )
    refused = {
        view.step.pk: component_stages.wait_for_places(view, min(budget, places.allowed), places) for view in asking
    }
    return [(view, out if view.step.pk in granted else refused.get(view.step.pk, out)) for view, out in outcomes]


def _decide(views: Sequence[StepView]) -> list[tuple[StepView, StepOutcome]]:
    """Run the stages, of several nodes in threads: they may call the cluster.

    Components are few, and a look at one reads the database, so they go one after another.
    """
    if len(views) == 1 or isinstance(views[0], ComponentView):
        return [(view, dispatch.decide(view)) for view in views]
    with ThreadPoolExecutor(max_workers=settings.SETPOINT_PARALLEL_CALLS, thread_name_prefix="stage") as pool:
        return list(zip(views, pool.map(dispatch.decide, views), strict=True))
