"""The work of a pod that held GPUs in an hour: its job, its role there and the GPUs that it held."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q

from clusters.models import GpuJob
from gpus.peers.comparison import Work, by_name

IN_STEP = frozenset(
    {"Job", "JobSet", "TrainingJob", "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob",
     "RayJob", "Volcano Job", "Pod group", "PodGroup", "Slurm job"}
)  # fmt: skip
"""Kinds of jobs that share their work evenly among the pods of a role. Replicas of every other kind serve what they are
given: requests, or the tasks of a person."""
HOUR = timedelta(hours=1)


class _Life(NamedTuple):
    node: str
    created: int
    ended: int | None
    work: Work


class Roles:
    """Works of one cluster's pods that lived at `start` or later. One query."""

    def __init__(self, cluster_id: UUID, start: datetime) -> None:
        self._lives: dict[str, list[_Life]] = defaultdict(list)
        alive = Q(ended_at=None) | Q(ended_at__gte=start)
        jobs = GpuJob.objects.filter(alive, cluster=cluster_id).order_by("pk")
        for job in jobs.only("key", "namespace", "kind", "name", "pods", "roles").iterator(50):
            for pod in job.all_pods():
                if pod.node and (pod.ended is None or pod.ended >= start.timestamp()):
                    name = f"{job.namespace}/{job.name}"
                    work = Work(job.key, name, pod.role, pod.gpus, is_in_step=job.kind in IN_STEP)
                    self._lives[f"{job.namespace}/{pod.name}"].append(_Life(pod.node, pod.created, pod.ended, work))

    def of(self, holder: str, node: str, hour: datetime) -> Work:
        """Return the work of a pod that held a GPU of this node throughout this hour.

        Several pods have had the name where one was made again: the one that lived the longest in the hour counts.
        """
        lives = [life for life in self._lives.get(holder, ()) if life.node == node]
        best = max(lives, key=lambda life: _shared(life, hour), default=None)
        return best.work if best and _shared(best, hour) > 0 else by_name(holder)


def _shared(life: _Life, hour: datetime) -> float:
    """Seconds of the hour in which the pod lived."""
    start, end = hour.timestamp(), (hour + HOUR).timestamp()
    return min(end, life.ended if life.ended is not None else end) - max(start, life.created)
