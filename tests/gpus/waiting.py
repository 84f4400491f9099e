"""A gang that waits for GPUs."""

from __future__ import annotations

from datetime import datetime

from clusters.models import Cluster
from gpus.models import WorkloadWait


def waiting(cluster: Cluster, since: datetime) -> WorkloadWait:
    return WorkloadWait.objects.create(
        cluster=cluster, system="kueue", uid="w-1", number=1, kind="Workload", namespace="a", name="b", queue="batch",
        gpus=8, created_at=since, queued_at=since,
    )  # fmt: skip
