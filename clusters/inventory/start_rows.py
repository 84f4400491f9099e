"""Starts of pods with GPUs into rows, told by what is written of their pods anyway.

A start counts only if the pod was seen before it was ready (GpuPod.is_starting): a pod that was ready when Setpoint
first saw it may have been so before. So a watch that begins late, or again, neither invents a start nor doubles it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from clusters.inventory import start_times, write_lock
from clusters.inventory.job_rows import PodEnd
from clusters.inventory.rows import Raw, Values
from clusters.inventory.start_times import Progress
from clusters.models import Cluster, GpuJob, PodStart

FROM_POD = ("namespace", "name", "node_name", "gpus", "job_kind", "job_name", "job_key")
ENDS = {
    GpuJob.Outcome.SUCCEEDED: PodStart.Outcome.FINISHED,
    GpuJob.Outcome.FAILED: PodStart.Outcome.FAILED,
    GpuJob.Outcome.DELETED: PodStart.Outcome.DELETED,
}


class StartEnd(NamedTuple):
    uid: str
    values: Values
    """Of the pod's row."""
    end: PodEnd | None
    """None: it is ready."""


def is_starting(pod: Raw, *, was: bool) -> bool:
    """Return whether the pod has never been ready; `was`: whether that was so when it was last seen."""
    state = start_times.progress(pod)
    return state is Progress.NOT_READY_YET or (state is Progress.UNKNOWN and was)


def record(cluster: Cluster, ends: Iterable[StartEnd], raws: Mapping[str, Raw], at: datetime) -> None:
    """Store starts that are over, within the lock of the cluster's rows; one query for 500, and none for none.

    `raws`: the last state of each pod by its UID, without those that only a list's lack of them tells of.
    """
    made = [_row(cluster, ended, raws.get(ended.uid, {}), at) for ended in ends if ended.values["gpus"]]
    PodStart.objects.bulk_create(made, batch_size=write_lock.CHUNK, ignore_conflicts=True)


def _row(cluster: Cluster, ended: StartEnd, pod: Raw, at: datetime) -> PodStart:
    described: dict[str, Any] = start_times.described(pod)
    outcome, reason = PodStart.Outcome.READY, ""
    if ended.end is not None and start_times.progress(pod) is not Progress.READY:
        outcome, reason = ENDS[GpuJob.Outcome(ended.end.outcome)], start_times.why_not(pod)
    return PodStart(
        cluster=cluster,
        uid=ended.uid,
        outcome=outcome,
        reason=reason,
        ended_at=at,
        **{name: ended.values[name] for name in FROM_POD},
        **described,
    )
