"""Celery is an alarm clock: readings that are due. Ids in, one short slice; delivered twice, one of them reads.

Everything here has the queue `gpus` and processes of its own (CELERY_TASK_ROUTES), so that no reading delays a step,
except the gates: a rollout's next batch waits for them, and they read rows only.
"""

from __future__ import annotations

import threading
from uuid import UUID

from celery import shared_task

from gpus.capacity import pending
from gpus.effects import gates, studies
from gpus.peers import job
from gpus.services import host_loads, polling
from gpus.services.checks import queueing, runs
from gpus.storage import retention

READINGS_AT_ONCE = 2
"""In one process. Each takes a large cluster's series apart, and two keep an interpreter busy."""
TICK_SECONDS = 5.0
LOOK_SECONDS = 10.0
STUDY_SECONDS = 30.0
PACE_SECONDS = 60.0
CHECK_SECONDS = 5.0
SCHEDULE_SECONDS = 60.0
HOST_SECONDS = 60.0
readings = threading.BoundedSemaphore(READINGS_AT_ONCE)
pacing = threading.BoundedSemaphore(1)


@shared_task(ignore_result=True)
def tick() -> None:
    """Beat, every 5 s: sources that are due are read, each about every SETPOINT_GPU_SECONDS."""
    polling.reconcile()
    for pk in polling.due():
        read.apply_async((pk,), expires=TICK_SECONDS)


@shared_task(ignore_result=True)
def read(pk: int) -> None:
    """One cluster. More than this process may read at once are dropped: the row is due still."""
    if not readings.acquire(blocking=False):
        return
    try:
        polling.tick(pk)
    finally:
        readings.release()


@shared_task(ignore_result=True)
def forget() -> None:
    """Beat, every half an hour."""
    retention.forget_old()


@shared_task(ignore_result=True)
def look_at_queues() -> None:
    """Beat, every 10 s: what waits for GPUs, of each cluster about every SETPOINT_GPU_SECONDS."""
    pending.reconcile()
    for pk in pending.due():
        look_at_queue.apply_async((pk,), expires=LOOK_SECONDS)


@shared_task(ignore_result=True)
def look_at_queue(pk: int) -> None:
    pending.refresh(pk)


@shared_task(ignore_result=True)
def study() -> None:
    """Beat, every 30 s: what rollouts did to their GPUs, each by itself."""
    studies.adopt()
    for pk in studies.due():
        look.apply_async((str(pk),), expires=STUDY_SECONDS)


@shared_task(ignore_result=True)
def look(pk: str) -> None:
    """A slice of one study. Delivered twice, one of them looks."""
    if (due_study := studies.find(UUID(pk))) is not None:
        studies.advance(due_study)


@shared_task(ignore_result=True)
def check_gates() -> None:
    """Beat, every 30 s: the gates of rollouts that run, each by itself. A gate needs its study's row."""
    studies.adopt()
    for pk in gates.due():
        guard.apply_async((str(pk),), expires=STUDY_SECONDS)


@shared_task(ignore_result=True)
def guard(pk: str) -> None:
    """Update the GPU gates of one rollout. A repeated delivery gives the same signals."""
    if (rollout := gates.find(UUID(pk))) is not None:
        gates.refresh(rollout)


@shared_task(ignore_result=True)
def look_at_paces() -> None:
    """Beat, every minute: clusters that have another whole hour since their nodes were last compared."""
    job.reconcile()
    for pk in job.due():
        look_at_pace.apply_async((str(pk),), expires=PACE_SECONDS)


@shared_task(ignore_result=True)
def look_at_pace(pk: str) -> None:
    """One cluster, a day of hours, and then the next. One at once in a process: more are dropped, and due still."""
    if not pacing.acquire(blocking=False):
        return
    try:
        job.compare(UUID(pk))
    finally:
        pacing.release()
    for following in job.due()[:1]:
        look_at_pace.apply_async((str(following),), expires=PACE_SECONDS)


@shared_task(ignore_result=True)
def look_at_checks() -> None:
    """Beat, every 5 s: runs of checks that are due."""
    for pk in runs.due():
        advance_check.apply_async((str(pk),), expires=CHECK_SECONDS)


@shared_task(ignore_result=True)
def advance_check(pk: str) -> None:
    """A slice of one run. Delivered twice, one of them does it."""
    runs.advance(UUID(pk))


@shared_task(ignore_result=True)
def look_at_check_schedules() -> None:
    """Beat, every minute: schedules of checks whose clusters are connected."""
    for pk in queueing.due():
        queue_checks.apply_async((pk,), expires=SCHEDULE_SECONDS)


@shared_task(ignore_result=True)
def queue_checks(pk: int) -> None:
    """Queue what one schedule may now. Delivered twice, the second one finds nothing."""
    queueing.queue(pk)


@shared_task(ignore_result=True)
def look_at_hosts() -> None:
    """Beat, every minute: hosts with slow disks, by the Prometheus of each cluster that has one."""
    host_loads.reconcile()
    for pk in host_loads.due():
        look_at_host_loads.apply_async((pk,), expires=HOST_SECONDS)


@shared_task(ignore_result=True)
def look_at_host_loads(pk: int) -> None:
    """One cluster. Delivered twice, one of them reads."""
    host_loads.refresh(pk)
