"""GPU-hours, cost and goodput of one job. Sums of `JobUse`, priced as the cost page prices `GpuUse`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from clusters.models import GpuJob
from gpus.models import GpuBand, GpuUse, JobUse
from gpus.showback import charges, prices
from gpus.showback.charges import TEAM, Charge, LineKey
from gpus.showback.statement import Line

FEWEST_SECONDS = 60.0
"""Of life, or of GPU time with telemetry: shares of less say nothing."""


def held(job: GpuJob, book: prices.PriceBook) -> Line:
    """Return the job's line of a statement over all of its days. One query."""
    line = Line(TEAM, job.name)
    for use in JobUse.objects.filter(job=job).order_by("day", "model", "pk"):
        hours = dict.fromkeys(GpuBand.STATES, charges.as_hours(0.0))
        hours |= {name: charges.as_hours(getattr(use, name)) for name in GpuUse.STATES}
        line.add(
            Charge(
                day=use.day,
                cluster_id=job.cluster_id,
                model=use.model,
                line=LineKey(TEAM),
                hours=hours,
                kwh=charges.as_kwh(use.joules),
                price=book.gpu(use.model, job.cluster_id, use.day),
                energy=book.energy(job.cluster_id, use.day),
            )
        )
    return line


@dataclass(frozen=True, slots=True)
class Share:
    """A share of 0-1, or why there is none."""

    value: float | None
    lack: str = ""

    @property
    def percent(self) -> float | None:
        return None if self.value is None else 100 * self.value


@dataclass(frozen=True, slots=True)
class Goodput:
    """Scheduling × runtime. The program's part is read for itself: see gpus.peers.lives.training."""

    scheduling: Share
    """Of the time since it was queued, that in which all of its pods ran at once."""
    runtime: Share
    """Of the GPU-hours that it held and telemetry told of, those in which the GPU was active."""

    @property
    def whole(self) -> Share:
        lack = self.scheduling.lack or self.runtime.lack
        if self.scheduling.value is None or self.runtime.value is None:
            return Share(None, lack)
        return Share(self.scheduling.value * self.runtime.value)


def goodput(job: GpuJob, line: Line, at: datetime, gap_seconds: float = 0.0) -> Goodput:
    """`gap_seconds`: of its running time, those of which nothing is recorded."""
    return Goodput(scheduling(job, at), _runtime(line, gap_seconds / 3600 * job.gpus))


def scheduling(job: GpuJob, at: datetime) -> Share:
    """Return the share of its life in which all of its pods ran at once."""
    life = (job.until(at) - job.queued_at).total_seconds()
    if life < FEWEST_SECONDS:
        return Share(None, "Its life is shorter than a minute so far.")
    return Share(min(1.0, job.all_running_seconds(job.until(at)) / life))


def _runtime(line: Line, unrecorded: float) -> Share:
    measured, unknown = float(line.active + line.held_idle), float(line.unknown) + unrecorded
    if measured * 3600 < FEWEST_SECONDS:
        return Share(None, "No telemetry of its GPUs is stored.")
    if unknown > measured:
        return Share(None, "Telemetry covers less than half of its GPU-hours.")
    return Share(float(line.active) / measured)


def models(job: GpuJob) -> Sequence[str]:
    """Return the GPU models that it held. One query."""
    return sorted(set(JobUse.objects.filter(job=job).order_by().values_list("model", flat=True)))
