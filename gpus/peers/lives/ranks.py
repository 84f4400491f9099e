"""Activity of each of a job's pods, from the history of the GPUs that it held alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median

from clusters.models import GpuJob, JobPod
from gpus.metrics import boards
from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Metric
from gpus.storage import history

LONGEST = timedelta(hours=48)
"""Of a life, its last: each hour of a large cluster is some rows to unpack."""
SHORT = timedelta(hours=6)
"""A life up to which steps of five minutes are read."""
Busy = tuple[float, float]


@dataclass(slots=True)
class Rank:
    """One pod. Shares of 0-1; None where telemetry did not tell."""

    pod: JobPod
    devices: set[Device] = field(default_factory=set)
    busy_sum: float = 0.0
    busy_weight: float = 0.0
    ofu_sum: float = 0.0
    ofu_weight: float = 0.0

    def add(self, device: Device, bucket: Bucket) -> None:
        self.devices.add(device)
        busy = bucket.means.get(Metric.BUSY, bucket.means.get(Metric.ENGINE))
        if busy is not None:
            self.busy_sum += busy * bucket.covered
            self.busy_weight += bucket.covered
        if (ofu := boards.ofu(bucket.means, device.model)) is not None:
            self.ofu_sum += ofu * bucket.covered
            self.ofu_weight += bucket.covered

    @property
    def busy(self) -> float | None:
        return self.busy_sum / self.busy_weight if self.busy_weight else None

    @property
    def ofu(self) -> float | None:
        return self.ofu_sum / self.ofu_weight if self.ofu_weight else None


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of one measure over the pods that have it."""

    mean: float
    """Over GPUs and time."""
    least: float
    middle: float
    most: float
    pods: int


@dataclass(frozen=True, slots=True)
class Activity:
    ranks: Sequence[Rank]
    """Of every pod that the job's row keeps, in the order of their names."""
    start: datetime
    end: datetime
    busy: Spread | None
    ofu: Spread | None
    is_part: bool
    """Only the last LONGEST of its life."""

    @property
    def lack(self) -> str:
        """Return why there is no figure; empty where there is one."""
        if self.busy is not None:
            return ""
        if not any(rank.pod.running for rank in self.ranks):
            return "None of its pods has run."
        return "No step of telemetry names one of its pods as a GPU's only holder."


def of(job: GpuJob, at: datetime) -> Activity:
    """Return the activity over the job's life, its last two days at most. One query."""
    pods = job.all_pods()
    end = job.until(at)
    begin = job.started_at or job.queued_at
    start = max(begin, end - LONGEST)
    is_fine = end - start <= SHORT
    step = timedelta(seconds=history.FINE if is_fine else history.COARSE)
    read = history.buckets if is_fine else history.hours
    nodes = {pod.node for pod in pods if pod.node}
    by_device = read(job.cluster_id, _floor(start, step), end, nodes=nodes) if nodes else {}
    ranks = _ranks(job, pods, by_device, step)
    busy = _spread([(rank.busy_sum, rank.busy_weight) for rank in ranks])
    ofu = _spread([(rank.ofu_sum, rank.ofu_weight) for rank in ranks])
    return Activity(ranks, start, end, busy, ofu, start > begin)


def _ranks(
    job: GpuJob, pods: Sequence[JobPod], by_device: Mapping[Device, Sequence[Bucket]], step: timedelta
) -> list[Rank]:
    ranks = {pod.uid: Rank(pod) for pod in sorted(pods, key=lambda pod: (pod.name, pod.created))}
    by_holder: dict[str, list[JobPod]] = defaultdict(list)
    for pod in pods:
        by_holder[f"{job.namespace}/{pod.name}"].append(pod)
    for device, buckets in by_device.items():
        for bucket in buckets:
            for pod in by_holder.get(bucket.holder, ()) if bucket.holder else ():
                if pod.node == device.node_name and _lived(pod, bucket.start, step):
                    ranks[pod.uid].add(device, bucket)
                    break
    return list(ranks.values())


def _lived(pod: JobPod, start: datetime, step: timedelta) -> bool:
    """Return whether the pod lived at some time of this step: another of the same name held what is outside."""
    began, ended = datetime.fromtimestamp(pod.created, UTC), pod.ended
    return start + step > began and (ended is None or start < datetime.fromtimestamp(ended, UTC))


def _spread(sums: Sequence[Busy]) -> Spread | None:
    known = [(total, weight) for total, weight in sums if weight]
    if not known:
        return None
    means = [total / weight for total, weight in known]
    whole = sum(total for total, _ in known) / sum(weight for _, weight in known)
    return Spread(whole, min(means), median(means), max(means), len(means))


def _floor(at: datetime, step: timedelta) -> datetime:
    seconds = int(step.total_seconds())
    return datetime.fromtimestamp(int(at.timestamp()) // seconds * seconds, UTC)
