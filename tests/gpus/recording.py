"""Readings made by hand and stored as a tick stores them, without a source."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime, timedelta

from django.db import transaction

from clusters.models import Cluster, GpuPod, Node
from gpus.metrics.samples import DeviceKey, Holder, Metric, Reading, Sample
from gpus.models import TelemetrySource
from gpus.storage import rollups
from tests.clusters.factories import ClusterFactory

PRODUCT = "NVIDIA-H100-80GB-HBM3"


class Recording:
    """A cluster of `nodes`, each with `gpus`; `held` maps (node, index) to (namespace/pod, busy)."""

    def __init__(self, at: datetime, *, nodes: int = 2, gpus: int = 4, cluster: Cluster | None = None) -> None:
        self.at, self.gpus = at, gpus
        self.cluster = cluster or ClusterFactory()
        self.names = [f"n{number}" for number in range(nodes)]
        Node.objects.bulk_create(
            Node(
                cluster=self.cluster,
                uid=name,
                name=name,
                is_ready=True,
                gpu_product=PRODUCT,
                gpu_count=gpus,
                labels={"half": str(number % 2)},
            )
            for number, name in enumerate(self.names)
        )
        self.source, _ = TelemetrySource.objects.get_or_create(cluster=self.cluster)
        self.held: dict[tuple[str, int], tuple[str, float]] = {}
        self.energy: dict[tuple[str, int], float] = {}
        self.silent: set[str] = set()

    def reading(self) -> Reading:
        samples = [self._sample(name, index) for name in self.names for index in range(self.gpus)]
        return Reading(self.at, tuple(sample for sample in samples if sample.node not in self.silent))

    def _sample(self, name: str, index: int) -> Sample:
        holder, busy = self.held.get((name, index), ("", 0.0))
        values = {Metric.BUSY: busy, Metric.POWER: 100.0 + 600 * busy}
        if (name, index) in self.energy:
            values[Metric.ENERGY] = self.energy[name, index]
        holders = (Holder(*holder.split("/")),) if holder else ()
        return Sample(DeviceKey(f"GPU-{name}-{index}"), name, str(index), "H100", "", "", holders, values)

    def pods(self) -> None:
        """The API server knows the holders, too."""
        GpuPod.objects.filter(cluster=self.cluster).delete()
        counts: dict[tuple[str, str], int] = {}
        for (name, _), (holder, _) in self.held.items():
            counts[name, holder] = counts.get((name, holder), 0) + 1
        for (name, holder), count in counts.items():
            namespace, pod = holder.split("/")
            GpuPod.objects.create(
                cluster=self.cluster, uid=f"{name}{holder}", namespace=namespace, name=pod, node_name=name, gpus=count
            )
        for name in self.names:
            count = sum(node == name for node, _ in self.held)
            Node.objects.filter(cluster=self.cluster, name=name).update(gpu_allocated=count)

    def claimed(self) -> AbstractContextManager[None]:
        return transaction.atomic()

    def store(self) -> None:
        reading = self.reading()
        rollups.store(self.cluster.pk, reading, claimed=self.claimed)
        TelemetrySource.objects.filter(pk=self.source.pk).update(read_at=self.at, state="well", devices=8)

    def go_on(self, seconds: float, *, every: float = 150.0) -> None:
        """Readings for so long."""
        end = self.at + timedelta(seconds=seconds)
        while self.at < end:
            self.at = min(end, self.at + timedelta(seconds=every))
            self.store()

    def lose(self, seconds: float, *, every: float = 60.0) -> None:
        end = self.at + timedelta(seconds=seconds)
        while self.at < end:
            self.at = min(end, self.at + timedelta(seconds=every))
            rollups.lost(self.cluster.pk, self.at, claimed=self.claimed)
