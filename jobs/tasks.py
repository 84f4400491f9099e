"""Celery is an alarm clock: ids in, one short slice done, delivered twice nothing happens twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from uuid import UUID

from celery import Task, shared_task
from django.conf import settings

from jobs.approvals import glass_reviews, reviews
from jobs.engine import component_runner, reconcile, sweeping
from jobs.engine.sweeping import CELERY
from jobs.models import Rollout, Step
from jobs.planning import new_nodes, plan_requests
from jobs.rollouts import fleet_runs, takeovers
from jobs.single_flight import SingleFlight

LONGEST_REST_SECONDS = 1.0
"""Between two slices of a rollout: a second is what a person waits for an effect without wondering."""

STAYS_SECONDS = 3.0
"""A thread waits so long by itself for a component to be ready, which the next sweep would see seconds later; then
other rollouts have their turn first."""

HELMS_AT_ONCE = 2
"""In one process. Each renders and compares megabytes, and two cores have no more to give."""
helms = threading.BoundedSemaphore(HELMS_AT_ONCE)

plans = threading.BoundedSemaphore(1)
"""In one process: comparing thousands of nodes is computing alone, beside which rollouts wait for the interpreter."""

turns = SingleFlight(settings.SETPOINT_LEASE_SECONDS)


def nodes_changed(cluster_id: UUID, node_ids: Sequence[int]) -> None:
    """Wake the rollouts that wait for these nodes, one message each, as a subscriber of common.hooks.nodes_changed."""
    rollouts = Rollout.objects.due().filter(cluster_id=cluster_id, steps__node_id__in=node_ids, steps__is_live=True)
    for pk in rollouts.distinct().values_list("pk", flat=True):
        wake(pk)


def wake(rollout_id: UUID) -> None:
    """Send `advance` to the end of the queue. A broker that does not answer costs a sweep, never the watch."""
    advance.apply_async((str(rollout_id),), expires=settings.SETPOINT_SWEEP_SECONDS)


@shared_task(bind=True, ignore_result=True)
def sweep(self: Task) -> None:
    """Beat: wake what is due. A lost message costs SETPOINT_SWEEP_SECONDS, not a rollout.

    One that came over the broker shows that messages arrive; while none does, a worker sweeps by itself.
    """
    if not (self.request.is_eager or self.request.called_directly):
        sweeping.note_delivery(CELERY)
    for pk in Rollout.objects.due().values_list("pk", flat=True):
        advance.apply_async((str(pk),), expires=settings.SETPOINT_SWEEP_SECONDS)
    wake_planning()
    wake_fleet()
    for pk in takeovers.due_takeovers():
        take_over.apply_async((str(pk),), expires=settings.SETPOINT_SWEEP_SECONDS)


def wake_planning() -> None:
    """Send a message for each plan that was asked for and is due. Lost, it costs a sweep."""
    for pk in plan_requests.due_requests():
        make_plan.apply_async((str(pk),), expires=settings.SETPOINT_SWEEP_SECONDS)


def wake_fleet() -> None:
    """Send a message for each fleet run in progress. Lost, it costs a sweep."""
    for pk in fleet_runs.due():
        advance_fleet.apply_async((str(pk),), expires=settings.SETPOINT_SWEEP_SECONDS)


@shared_task(ignore_result=True)
def advance_fleet(run_id: str) -> None:
    """Start the plans of a fleet run that may start now."""
    for rollout_id in fleet_runs.advance(UUID(run_id)):
        wake(rollout_id)


@shared_task(ignore_result=True)
def make_plan(request_id: str) -> None:
    """Make a plan of many nodes. A message beyond what this process makes at once is dropped: the row is the queue."""
    if not plans.acquire(blocking=False):
        return
    try:
        plan_requests.carry_out(UUID(request_id))
    finally:
        plans.release()
    wake_planning()


@shared_task(ignore_result=True)
def take_over(takeover_id: str) -> None:
    """Carry out one slice of an approved takeover; the next sweep continues it."""
    takeovers.carry_out(UUID(takeover_id))


@shared_task(ignore_result=True)
def advance(rollout_id: str) -> None:
    """Slices of one rollout until nothing moves. Any number may run at once: steps are claimed in sets."""
    pk, until = UUID(rollout_id), time.monotonic() + STAYS_SECONDS
    with turns.turn(pk, again=wake) as is_ours:
        while is_ours:
            reconcile.run(pk, rest=lambda seconds: time.sleep(min(seconds, LONGEST_REST_SECONDS)))
            for task, kind in ((helm, Step.Kind.COMPONENT), (policies, Step.Kind.POLICIES)):
                for step_id in component_runner.due_steps(pk, kind=kind):
                    task.apply_async((str(step_id),), expires=settings.SETPOINT_SWEEP_SECONDS)
            if (rest := component_runner.seconds_to_next_check(pk)) is None:
                return
            if time.monotonic() + rest > until:
                break
            time.sleep(rest)
    if is_ours:
        wake(pk)


@shared_task(ignore_result=True)
def helm(step_id: str) -> None:
    """helm for one component: minutes, on a queue of its own (CELERY_TASK_ROUTES), so that no other step waits for it.

    A message beyond what this process runs at once is dropped: the row is the queue, and the next sweep asks again.
    """
    if not helms.acquire(blocking=False):
        return
    try:
        rollout_id = component_runner.carry_out(UUID(step_id))
    finally:
        helms.release()
    if rollout_id:
        wake(rollout_id)


@shared_task(ignore_result=True)
def policies(step_id: str) -> None:
    """One group of policy objects: a few calls of the API server each, so it need not wait for any helm."""
    if rollout_id := component_runner.carry_out(UUID(step_id)):
        wake(rollout_id)


@shared_task(ignore_result=True)
def draft_joining() -> None:
    """Beat: a plan for nodes that joined a pool and wait. Two at once draft twice, and the next takes one back."""
    new_nodes.draft()


@shared_task(ignore_result=True)
def expire_plans() -> None:
    reviews.expire()
    reviews.remind()
    glass_reviews.report_overdue()
    plan_requests.forget()
