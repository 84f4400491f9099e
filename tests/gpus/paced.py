"""Made fleet of a day's hours with known truth: which nodes are slow, by what, and at which work."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from clusters.models import Cluster, GpuJob, JobPod, Node, NodeTuning, Pool
from common.clock import now
from compliance.models import Assignment, NodeExpectation, NodeStanding, SettingState
from compliance.services import standings
from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Metric
from gpus.models import GpuDevice, GpuPacked, NodePace, PaceLook
from gpus.peers import job, roles
from gpus.peers.comparison import Work
from gpus.storage import codec
from profiles.models import Profile, Revision
from tests.clusters.factories import ClusterFactory

MODEL = "NVIDIA H100 80GB HBM3"
KEY = "vm.swappiness"


class Truth:
    """`nodes` nodes of `gpus` GPUs at `work`; each differs by itself by `spread`, and each hour by `noise`."""

    def __init__(self, nodes: int = 8, *, gpus: int = 2, seed: int = 1, spread: float = 0.01, noise: float = 0.01):
        self.names = [f"n{number:04}" for number in range(nodes)]
        self.gpus, self.noise = gpus, noise
        self._rng = random.Random(seed)
        self.own = {
            (name, what): 1 + self._rng.gauss(0, spread) for name in self.names for what in ("tensor", "clock", "busy")
        }
        self.work = dict.fromkeys(self.names, "team/train")
        self.kinds: dict[str, str] = {}
        """Works that are no Job."""
        self.roles: dict[str, str] = {}
        """Nodes whose pod has a role in its work."""
        self.pod_gpus: dict[str, int] = {}
        """Nodes whose pod holds fewer GPUs than the node has."""
        self.slow: dict[str, float] = {}
        """Nodes whose clock is held back, with what is left of it."""
        self.waits: dict[str, float] = {}
        """Nodes whose GPUs wait, with how busy they still are."""
        self.idle: set[str] = set()
        self.hours_of: dict[str, int] = {}
        """Nodes that worked in fewer hours than all."""
        self.watts: dict[str, float] = {}
        self.model = MODEL

    def hour(self, start: datetime, back: int = 1) -> Iterator[tuple[Device, Bucket]]:
        """`back`: how many hours before the last one's end it began."""
        for number, name in enumerate(self.names):
            if back > self.hours_of.get(name, 24):
                continue
            for index in range(self.pod_gpus.get(name, self.gpus)):
                yield (
                    Device(f"GPU-{name}-{index}", "", name, self.model),
                    Bucket(start, 1.0, 1.0, self._means(name), f"{self.work[name]}-{number}"),
                )

    def work_of(self, holder: str, node: str, _hour: datetime) -> Work:
        """Return what Setpoint knows of a pod that it saw."""
        work, is_in_step = self.work[node], self.kinds.get(self.work[node], "Job") in roles.IN_STEP
        assert holder.startswith(work)
        return Work(work, work, self.roles.get(node, ""), self.pod_gpus.get(node, self.gpus), is_in_step)

    def pods(self) -> dict[str, list[JobPod]]:
        """The pods of each work, which ran for the last two days."""
        since, by_work = int((now() - timedelta(days=2)).timestamp()), defaultdict(list)
        for number, (node, work) in enumerate(self.work.items()):
            name = f"{work.partition('/')[2]}-{number}"
            gpus, role = self.pod_gpus.get(node, self.gpus), self.roles.get(node, "")
            by_work[work].append(JobPod(f"u-{work}-{number}", name, node, gpus, since, since, None, "", 0, role))
        return by_work

    def _means(self, name: str) -> dict[Metric, float]:
        if name in self.idle:
            return {Metric.BUSY: 0.0, Metric.TENSOR: 0.0, Metric.SM_CLOCK: 3.45e8, Metric.POWER: 70.0}
        busy = self.waits.get(name, 0.95) * self.own[name, "busy"] * self._jitter()
        return {
            Metric.BUSY: min(1.0, busy),
            Metric.TENSOR: 0.4 * self.own[name, "tensor"] * self.waits.get(name, 0.95) / 0.95 * self._jitter(),
            Metric.SM_CLOCK: 1.8e9 * self.slow.get(name, 1.0) * self.own[name, "clock"] * self._jitter(),
            Metric.POWER: self.watts.get(name, 600.0) * self._jitter(),
        }

    def _jitter(self) -> float:
        return 1 + self._rng.gauss(0, self.noise)


class Paced:
    """The same as rows: nodes, a pool with a target, and a packed row for each hour."""

    def __init__(self, truth: Truth, *, cluster: Cluster | None = None, hours: int = 6) -> None:
        self.truth, self.hours = truth, hours
        self.cluster = cluster or ClusterFactory(name="atlas")
        Cluster.objects.filter(pk=self.cluster.pk).update(
            reach=Cluster.Reach.REACHABLE, observed_at=now() + timedelta(hours=1)
        )
        self.cluster.refresh_from_db()
        made = Node.objects.bulk_create(
            [
                Node(
                    cluster=self.cluster, uid=f"{self.cluster.pk}-{name}", name=name, labels={"pool": "train"},
                    is_ready=True, gpu_count=truth.gpus, gpu_product="NVIDIA-H100-80GB-HBM3",
                )
                for name in truth.names
            ],
            batch_size=500,
        )  # fmt: skip
        self.nodes = {node.name: node for node in made}
        NodeTuning.objects.bulk_create([NodeTuning(node=n, protocol=1, mode="apply") for n in made], batch_size=500)
        self.pool = Pool.objects.create(cluster=self.cluster, name="train", selector={"matchLabels": {"pool": "train"}})
        profile = Profile.objects.create(name=f"gpu-{self.cluster.name}")
        self.revision = Revision.objects.create(
            profile=profile, number=1, digest=f"sha256:{self.cluster.uid}"[:71], source="",
            content={"settings": [{"key": KEY, "operator": "=", "value": "10"}]},
        )  # fmt: skip
        Assignment.objects.create(pool=self.pool, revision=self.revision)
        GpuDevice.objects.bulk_create(
            [
                GpuDevice(cluster=self.cluster, uuid=f"GPU-{node.name}-0", node=node, node_name=node.name)
                for node in made
            ],
            batch_size=500,
        )

    def off(self, *names: str) -> None:
        """All are expected to run the target; on these, another value is effective."""
        NodeExpectation.objects.bulk_create(
            [NodeExpectation(node=node, revision=self.revision) for node in self.nodes.values()], batch_size=500
        )
        SettingState.objects.bulk_create(
            [
                SettingState(
                    node=node, key=KEY, desired="10", effective="60" if name in names else "10",
                    state="drifted" if name in names else "compliant",
                )
                for name, node in self.nodes.items()
            ],
            batch_size=500,
        )  # fmt: skip
        standings.renew_all(self.cluster.pk)

    def record(self) -> None:
        """The hours that are over, and the jobs that were at work in them."""
        for work, pods in self.truth.pods().items():
            namespace, _, name = work.partition("/")
            GpuJob.objects.create(
                cluster=self.cluster, key=f"key-{work}", namespace=namespace, name=name, queued_at=now(),
                kind=self.truth.kinds.get(work, "Job"), pods=GpuJob.stored(pods), roles=GpuJob.stored_roles(pods),
            )  # fmt: skip
        end = now().replace(minute=0, second=0, microsecond=0)
        GpuPacked.objects.bulk_create(
            GpuPacked(
                cluster=self.cluster, seconds=3600, start=(start := end - timedelta(hours=back)), of=1, shard=0,
                data=codec.pack(self.truth.hour(start, back)),
            )
            for back in range(1, self.hours + 1)
        )  # fmt: skip

    def look(self) -> dict[str, NodePace]:
        job.reconcile()
        PaceLook.objects.filter(cluster=self.cluster).update(until=None)
        assert job.compare(self.cluster.pk)
        return {row.node.name: row for row in NodePace.objects.select_related("node").filter(cluster=self.cluster)}


def troubled() -> Paced:
    """Return twelve nodes: two are slow and three are off; one of them both. n0010 did nothing, n0011 has no target.

    The clock must be well within an hour.
    """
    truth = Truth(12)
    truth.slow |= {"n0001": 0.8, "n0002": 0.8}
    truth.idle.add("n0010")
    world = Paced(truth)
    world.off("n0002", "n0003", "n0004")
    Node.objects.filter(name="n0011").update(labels={})
    world.record()
    world.look()
    NodeStanding.objects.filter(node__name="n0011").delete()
    return world
