"""A cluster of two nodes, readings as a tick stores them, and the rules' results after each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from clusters.models import Cluster, Node
from common.clock import now
from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import DeviceKey, Holder, Metric, Reading, Sample, Xid
from gpus.models import GpuPacked, TelemetrySource
from gpus.storage import codec, devices
from tests.clusters.factories import ClusterFactory


class Boards:
    """`gpus` boards on each of the nodes n0 and n1, all of them at work; `absent` are in no reading."""

    def __init__(self, gpus: int = 4) -> None:
        self.cluster = ClusterFactory(name="atlas", reach=Cluster.Reach.REACHABLE, observed_at=now(), leases_at=now())
        self.nodes = {
            name: Node.objects.create(
                cluster=self.cluster, uid=f"uid-{name}", name=name, is_ready=True, gpu_count=gpus,
                gpu_product="NVIDIA-H100-80GB-HBM3", allocatable={"nvidia.com/gpu": str(gpus)},
            )
            for name in ("n0", "n1")
        }  # fmt: skip
        self.values: dict[str, dict[Metric, float]] = {
            f"GPU-{name}-{index}": {Metric.BUSY: 0.9, Metric.TEMPERATURE: 60.0}
            for name in self.nodes
            for index in range(gpus)
        }
        self.absent: set[str] = set()
        self.xids: dict[str, tuple[Xid, ...]] = {}
        self.events: dict[str, Mapping[str, int]] = {}
        self.holders: dict[str, tuple[Holder, ...]] = {}

    def read(self, **source: Any) -> None:
        """Store one more reading, of now."""
        samples = tuple(self._sample(uuid) for uuid in sorted(self.values.keys() - self.absent))
        devices.store(self.cluster.pk, Reading(now(), samples), claimed=transaction.atomic)
        Cluster.objects.filter(pk=self.cluster.pk).update(observed_at=now(), leases_at=now())
        fields = {"state": "well", "read_at": now(), "devices": len(samples)} | source
        TelemetrySource.objects.update_or_create(cluster=self.cluster, defaults=fields)

    def _sample(self, uuid: str) -> Sample:
        _, node, index = uuid.split("-")
        values = {metric: float(value) for metric, value in self.values[uuid].items()}
        return Sample(
            DeviceKey(uuid), node, index, "H100", "", "", self.holders.get(uuid, ()), values,
            self.xids.get(uuid, ()), self.events.get(uuid),
        )  # fmt: skip

    def rose(self, metric: Metric, risen: Mapping[str, float], *, ago: int = 0, covered: float = 1.0) -> None:
        """Store the rise of a counter in the five minutes that ended `ago` fives ago."""
        end = now().replace(minute=now().minute // 5 * 5, second=0, microsecond=0)
        start = end - timedelta(minutes=5 * (ago + 1))
        data = codec.pack(
            (Device(uuid, "", "n0", "H100"), Bucket(start, covered, 0.0, {metric: rise}, ""))
            for uuid, rise in risen.items()
        )
        GpuPacked.objects.create(cluster=self.cluster, seconds=300, start=start, of=1, shard=ago, data=data)

    def wrong(self, look: Any, threshold: float = 0.0) -> set[str]:
        return subjects(look(self.cluster.pk, threshold).conditions)


def subjects(conditions: Iterable[Any]) -> set[str]:
    return {condition.subject for condition in conditions}


@pytest.fixture
def boards(db: None, clock: Any) -> Boards:
    return Boards()
