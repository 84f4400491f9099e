"""GPUs that deployments held in a time, how busy those were, and what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from clusters.models import Cluster, GpuJob, JobPod
from common.clock import now
from gpus.metrics.samples import Metric
from gpus.models import GpuBand, GpuUse, JobUse
from gpus.showback import charges, prices
from gpus.showback.charges import TEAM, Charge, LineKey
from gpus.showback.statement import Line
from gpus.storage import history

FINE_FOR = timedelta(hours=6)
"""A time up to which five minutes of GPUs' history are read; of a longer one, hours."""
Interval = tuple[float, float]
"""Seconds since 1970."""


def lives(job: GpuJob, start: datetime, end: datetime) -> list[tuple[JobPod, Interval]]:
    """Return its pods that ran in this time, each with the part of it."""
    first, last = start.timestamp(), end.timestamp()
    ran = []
    for pod in job.all_pods():
        if pod.running is None:
            continue
        begun, ended = max(first, pod.running), min(last, last if pod.ended is None else pod.ended)
        if begun < ended:
            ran.append((pod, (begun, ended)))
    return ran


def busy(cluster: Cluster, jobs: Sequence[GpuJob], start: datetime, end: datetime) -> dict[int, float]:
    """Return by job how busy the GPUs were that its pods held alone, from the history of GPU pages. One query."""
    pods = [(job, pod) for job in jobs for pod, _ in lives(job, start, end)]
    nodes = {pod.node for _, pod in pods if pod.node}
    holders = {f"{job.namespace}/{pod.name}": job.pk for job, pod in pods}
    if not nodes:
        return {}
    is_fine = end - start <= FINE_FOR
    read, seconds = (history.buckets, history.FINE) if is_fine else (history.hours, history.COARSE)
    first = datetime.fromtimestamp(start.timestamp() // seconds * seconds, UTC)
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for buckets in read(cluster.pk, first, end, nodes=nodes).values():
        for bucket in buckets:
            pk = holders.get(bucket.holder) if bucket.holder else None
            value = bucket.means.get(Metric.BUSY, bucket.means.get(Metric.ENGINE))
            if pk is not None and value is not None:
                sums[pk][0] += value * bucket.covered
                sums[pk][1] += bucket.covered
    return {pk: total / weight for pk, (total, weight) in sums.items() if weight}


def costs(jobs: Sequence[GpuJob], start: datetime, end: datetime) -> dict[int, Decimal | None]:
    """Return what each job cost in this time: of each day what the cost page has, by the part of its pods' time.

    None where nothing of it has a price. Two queries.
    """
    by_pk = {job.pk: job for job in jobs}
    first, last = (at.astimezone(UTC).date() for at in (start, end))
    uses = JobUse.objects.filter(job__in=by_pk, day__gte=first, day__lte=last).order_by("job", "day", "model")
    book = prices.book()
    lines: dict[int, Line] = {}
    for use in uses:
        job = by_pk[use.job_id]
        share = _share_of_day(job, use.day, start, end)
        hours = dict.fromkeys(GpuBand.STATES, Decimal(0))
        hours |= {name: charges.as_hours(getattr(use, name) * share) for name in GpuUse.STATES}
        lines.setdefault(job.pk, Line(TEAM, job.name)).add(
            Charge(
                day=use.day,
                cluster_id=job.cluster_id,
                model=use.model,
                line=LineKey(TEAM),
                hours=hours,
                kwh=charges.as_kwh(use.joules * share),
                price=book.gpu(use.model, job.cluster_id, use.day),
                energy=book.energy(job.cluster_id, use.day),
            )
        )
    return {pk: line.cost for pk, line in lines.items()}


def _share_of_day(job: GpuJob, day: date, start: datetime, end: datetime) -> float:
    """Return which part of its pods' GPU time on this day is in the time that is shown."""
    midnight = prices.midnight(day).timestamp()
    until = min(midnight + 86400, now().timestamp())
    first, last = start.timestamp(), end.timestamp()
    inside = whole = 0.0
    for pod in job.all_pods():
        begun, ended = max(midnight, pod.created), until if pod.ended is None else min(until, pod.ended)
        whole += pod.gpus * max(0.0, ended - begun)
        inside += pod.gpus * max(0.0, min(ended, last) - max(begun, first))
    return inside / whole if whole else 0.0
