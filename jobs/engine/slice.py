"""One slice of one rollout: finish what is under way, start what may start, say what is waited for.

Any number of workers may run slices of one rollout at once; steps are claimed in sets, and what was claimed by a
worker that died comes free when its lease ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction

from clusters import connections, objects
from clusters.fleet import Conflict, Fleet, FleetError, FleetRefused, FleetUnavailable, NotFound, Replaced, Throttled
from clusters.models import Cluster
from common.clock import now
from common.errors import LostRace
from jobs.engine import batches, claims, commit, ledger, newcomers, progress, rows, saying, turning, warrant
from jobs.engine.ending import fail, gone, hold
from jobs.engine.outcome import LeaseSpent, Outcome, View, wait
from jobs.engine.stages import STAGES, guard
from jobs.models import Rollout, Step
from jobs.strategy import Strategy

log = logging.getLogger(__name__)
Status = Step.Status

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
    rollout = (
        Rollout.objects.due().select_related("cluster", "plan__revision", "plan__pool").filter(pk=rollout_id).first()
    )
    if rollout is None:
        return False
    try:
        if progress.obstacle(rollout):
            return False
        fleet = fleet or connections.connect(rollout.cluster)
        rows.freshen(rollout.cluster, fleet)
        busy = set(
            rollout.steps.filter(status__in=IN_FLIGHT_ORDER).values_list("status", flat=True).distinct().order_by()
        )
        # Going backwards through the stages, one that is reached in this slice is looked at in the next.
        moved = sum(_stage(rollout, status, fleet) for status in IN_FLIGHT_ORDER if status in busy)
        rollout.refresh_from_db(fields=["status", "version"])
        moved += turning.turn_round(rollout)
        moved += newcomers.admit(rollout, Strategy.from_json(rollout.plan.strategy))
        moved += _start(rollout, fleet)
        return progress.settle(rollout) or moved > 0
    except FleetError as error:
        # Only a full refresh can fail here: stages answer for their own calls.
        saying.say(rollout, f"{rollout.cluster} cannot be read: {error}")
        return False
    except LostRace:
        return True


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


def _start(rollout: Rollout, fleet: Fleet) -> int:
    """Bring queued steps of the open batch under way, as far as status, freezes, failures and budget allow."""
    if not rollout.steps.filter(status=Status.QUEUED).exists():  # type: ignore[attr-defined]
        return 0
    strategy = Strategy.from_json(rollout.plan.strategy)
    active = rollout.steps.filter(status__in=Step.ACTIVE).count()  # type: ignore[attr-defined]
    room = min(claims.SET_SIZE, strategy.max_in_flight - active)
    if room <= 0:
        return 0  # before it is asked whether any may start, which reads the whole plan
    if not progress.may_start(rollout):
        return 0
    batch = batches.open_batch(rollout)
    if batch is None:
        return 0
    if rollout.status == Rollout.Status.RUNNING:
        batches.remake(rollout, batch, strategy)
    return _stage(rollout, Status.QUEUED, fleet, limit=room, batch=batch, direction=batches.direction(rollout))


def _stage(
    rollout: Rollout,
    status: str,
    fleet: Fleet,
    *,
    limit: int = claims.SET_SIZE,
    batch: int | None = None,
    direction: str | None = None,
) -> int:
    token, until, steps = claims.claim(rollout, status, limit=limit, batch=batch, direction=direction)
    if not steps:
        return 0
    try:
        strategy = Strategy.from_json(rollout.plan.strategy)
        views = rows.views(rollout, steps, fleet, strategy, until)
        _look_at_warrant(rollout, status, views)
        outcomes = _decide(views)
        with transaction.atomic():  # slots and the moves they allow: both or neither
            if status == Status.QUEUED:
                outcomes = _with_slots(rollout, strategy, _still_allowed(rollout, strategy, token, outcomes))
            preparing = [rows.expected(view, rollout) for view, out in outcomes if out.to == Status.APPLYING]
            restored = {
                view.step.node_id: keys
                for view, out in outcomes
                if out.to in (Status.SUCCEEDED, Status.REVERTED) and (keys := rows.dropped(view))
            }
            pairs = [(view.step, out) for view, out in outcomes]
            count = commit.commit(token, pairs, strategy=strategy, preparing=preparing, restored=restored)
        rows.take_answers(rollout.cluster, [out for _, out in outcomes])
        return count
    finally:
        claims.release(token)


def _look_at_warrant(rollout: Rollout, status: str, views: Sequence[View]) -> None:
    """What the rollout as a whole may not do any more, into the views of steps that are about to write (law 2)."""
    altered = warrant.altered(rollout) if status in warrant.WRITES else ""
    freeze = warrant.freeze(rollout) if status in warrant.FREEZES else ""
    for view in views:
        view.unfit = view.unfit or altered
        view.freeze = freeze


def _still_allowed(
    rollout: Rollout, strategy: Strategy, token: str, outcomes: list[tuple[View, Outcome]]
) -> list[tuple[View, Outcome]]:
    """Judged again under the rollout's row lock: a pause, an abort or a freeze that somebody saw confirmed counts, and
    two workers together keep to max_in_flight. Steps that were taken away meanwhile are left out.
    """
    status = Rollout.objects.select_for_update(no_key=True).values_list("status", flat=True).get(pk=rollout.pk)
    if status != rollout.status or progress.hindrance(rollout) is not None:
        return []
    asked = [view.step.pk for view, _ in outcomes]
    ours = Step.objects.select_for_update(no_key=True).filter(pk__in=asked, claim=token, status=Status.QUEUED)
    still = set(ours.values_list("pk", flat=True))
    room = strategy.max_in_flight - rollout.steps.filter(status__in=Step.ACTIVE).count()  # type: ignore[attr-defined]
    kept = []
    for view, out in outcomes:
        starts = out.to in (Status.ADMITTED, Status.APPLYING)
        room -= starts
        if view.step.pk in still and not (starts and room < 0):
            kept.append((view, out))
    return kept


def _with_slots(
    rollout: Rollout, strategy: Strategy, outcomes: list[tuple[View, Outcome]]
) -> list[tuple[View, Outcome]]:
    """Those that want to be admitted ask the ledger; who gets no place waits, and says for what."""
    asking = [view.step for view, out in outcomes if out.to == Status.ADMITTED]
    if not asking:
        return outcomes
    # The cluster's number as it is now, and never more than the approvers saw.
    budget = strategy.allowed_out(Cluster.objects.values_list("budget", flat=True).get(pk=rollout.cluster_id))
    budget = min(budget, int(rollout.plan.summary.get("budget", budget)))
    granted, places = ledger.take(asking, rollout.cluster, plan_id=rollout.plan_id, budget=budget)
    sentence = f"Needs a slot: {len(places.out)} of {budget} nodes are out of service already."
    is_busy = bool(granted) or rollout.steps.filter(status__in=Step.ACTIVE).exists()  # type: ignore[attr-defined]

    def refused(view: View) -> Outcome:
        # As long as its own rollout moves, a long queue is no deadline missed.
        return wait(sentence) if is_busy else _in_time(view, wait(sentence))

    return [
        (view, out if out.to != Status.ADMITTED or view.step.pk in granted else refused(view)) for view, out in outcomes
    ]


def _decide(views: Sequence[View]) -> list[tuple[View, Outcome]]:
    """Run the stages, in threads when there are several: they may call the cluster."""
    if len(views) == 1:
        return [(views[0], _answer(views[0]))]
    with ThreadPoolExecutor(max_workers=settings.SETPOINT_PARALLEL_CALLS, thread_name_prefix="stage") as pool:
        return list(zip(views, pool.map(_answer, views), strict=True))


def _answer(view: View) -> Outcome:
    """One stage's outcome, with every way the cluster can fail translated (law 4: nothing waits in silence)."""
    step = view.step
    try:
        out = guard(view) or STAGES[step.status](view)
    except LeaseSpent:
        out = wait("Waiting for the next turn.", again_in=0.001)
    except Throttled as error:
        out = wait(f"The API server asks to wait {error.retry_after:.0f} s: {error}", again_in=error.retry_after)
    except FleetUnavailable as error:
        out = wait(f"The API server does not answer: {error}", again_in=backoff(step, now()))
    except Replaced as error:
        return gone(view, f"{step.node_name} was replaced meanwhile: {error}")
    except NotFound as error:
        out = _not_there(view, error)
    except Conflict as error:
        out = hold(view, f"Somebody else owns what this step would write: {error}")
    except FleetRefused as error:
        out = fail(view, f"The API server refused: {error}")
    return out if out.to else _in_time(view, out)


def _not_there(view: View, error: NotFound) -> Outcome:
    """The node, or another object that belongs to it: only a node that is gone gives its slot back."""
    try:
        uid = objects.meta(view.fleet.node(view.step.node_name)).get("uid")
    except NotFound:
        return gone(view, f"{view.step.node_name} is gone: {error}")
    except FleetError as unknown:
        return wait(f"The API server does not answer: {unknown}", again_in=backoff(view.step, now()))
    if uid != view.step.node_uid:
        return gone(view, f"{view.step.node_name} was replaced meanwhile: {error}")
    return fail(view, f"What this step needs is not there: {error}")


def _in_time(view: View, out: Outcome) -> Outcome:
    """It may wait on, unless its deadline is over (law 4). A queued step's time begins with its turn."""
    step = view.step
    if step.status == Status.QUEUED and not step.waiting_for:
        out.fields["deadline_at"] = commit.deadline_for(step, view.strategy)
        return out
    if step.deadline_at is None or now() < step.deadline_at:
        return out
    why = f"Gave up after {_minutes(view.step.entered_at)}: {out.waits_for or view.step.waiting_for or 'no answer'}"
    return hold(view, why) if view.step.status in (Status.DRAINING, Status.QUEUED) else fail(view, why)


def _minutes(since: datetime) -> str:
    seconds = int((now() - since).total_seconds())
    return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"


def backoff(step: Step, at: datetime) -> float:
    """Seconds until the next try: as long as it has waited already, from 1 s to 60 s, so that tries thin out."""
    return min(60.0, max(1.0, (at - step.entered_at) / timedelta(seconds=1)))
