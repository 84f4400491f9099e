"""Roll-ups of a day: what each workload's and each job's pods held, of each GPU model, which showback is made of.

Steps that are over are added to the day's rows in the transaction that stores their bands, so both hold the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date
from uuid import UUID

from clusters.models import GpuJob
from gpus.models import GpuUse, JobUse
from gpus.storage import payers
from gpus.storage.accumulator import ClosedFine, StepTotals, instant

Key = tuple[date, str, str, str]
"""Day, namespace, owner, GPU model."""
JobKey = tuple[str, date, str]
"""Key of the job, day, GPU model."""
AT_ONCE = 1000
MOST_NAMED = 500
"""Namespaces in one condition; beyond, the whole day is read."""


def add(cluster_id: UUID, fine: Iterable[ClosedFine], model_of: Callable[[str], str]) -> None:
    """Add what was held in these steps. Within the caller's transaction."""
    new: dict[Key, StepTotals] = {}
    of_jobs: dict[JobKey, StepTotals] = {}
    for step in fine:
        day, model = instant(step.start).date(), model_of(step.node)[:120]
        for payer, amounts in step.payers.items():
            key = day, payers.namespace(payer)[:253], payers.owner(payer)[:317], model
            new.setdefault(key, StepTotals.none(len(GpuUse.STATES))).add(amounts)
            if job := payers.job(payer):
                of_jobs.setdefault((job, day, model), StepTotals.none(len(GpuUse.STATES))).add(amounts)
    if not new:
        return
    _add_to_jobs(cluster_id, of_jobs)
    for key, amounts in _stored(cluster_id, new):
        new[key].add(amounts)
    GpuUse.objects.bulk_create(
        [
            GpuUse(
                cluster_id=cluster_id,
                day=day,
                namespace=namespace,
                owner=owner,
                model=model,
                joules=amounts.joules,
                **dict(zip(GpuUse.STATES, amounts.states, strict=True)),
            )
            for (day, namespace, owner, model), amounts in sorted(new.items())
        ],
        update_conflicts=True,
        unique_fields=["cluster", "day", "namespace", "owner", "model"],
        update_fields=[*GpuUse.STATES, "joules"],
        batch_size=AT_ONCE,
    )


def _stored(cluster_id: UUID, new: dict[Key, StepTotals]) -> Iterable[tuple[Key, StepTotals]]:
    rows = GpuUse.objects.filter(cluster=cluster_id, day__in={day for day, *_ in new})
    namespaces = {namespace for _, namespace, *_ in new}
    if len(namespaces) <= MOST_NAMED:
        rows = rows.filter(namespace__in=namespaces)
    columns = ("day", "namespace", "owner", "model", "joules", *GpuUse.STATES)
    for day, namespace, owner, model, joules, *states in rows.order_by().values_list(*columns):
        if (key := (day, namespace, owner, model)) in new:
            yield key, StepTotals(states, joules)


def _add_to_jobs(cluster_id: UUID, new: Mapping[JobKey, StepTotals]) -> None:
    keys = sorted({key for key, *_ in new})
    pks: dict[str, int] = {}
    for first in range(0, len(keys), AT_ONCE):
        known = GpuJob.objects.filter(cluster=cluster_id, key__in=keys[first : first + AT_ONCE])
        pks |= dict(known.values_list("key", "pk"))
    totals = {(pks[key], day, model): amounts for (key, day, model), amounts in new.items() if key in pks}
    stored = JobUse.objects.filter(day__in={day for _, day, _ in totals}, job__cluster=cluster_id)
    columns = ("job", "day", "model", "joules", *GpuUse.STATES)
    ordered = sorted(pks.values())
    for first in range(0, len(ordered), AT_ONCE):
        part = stored.filter(job__in=ordered[first : first + AT_ONCE])
        for job, day, model, joules, *states in part.values_list(*columns):
            if (place := (job, day, model)) in totals:
                totals[place].add(StepTotals(states, joules))
    JobUse.objects.bulk_create(
        [
            JobUse(
                job_id=job,
                day=day,
                model=model,
                joules=amounts.joules,
                **dict(zip(GpuUse.STATES, amounts.states, strict=True)),
            )
            for (job, day, model), amounts in sorted(totals.items())
        ],
        update_conflicts=True,
        unique_fields=["job", "day", "model"],
        update_fields=[*GpuUse.STATES, "joules"],
        batch_size=AT_ONCE,
    )
