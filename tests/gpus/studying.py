"""A rollout as rows alone, and what its GPUs did as buckets: nothing is carried out, everything is known."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from clusters.models import Cluster, Node, Pool
from common.clock import now
from gpus.effects import studies
from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Metric
from gpus.models import GpuDevice, Study, StudyEffect
from jobs.forecast.strategy import Strategy
from jobs.models import Plan, PlanNode, Rollout, Step
from profiles.models import Profile, Revision
from tests.clusters.factories import ClusterFactory

MODEL = "NVIDIA-H100-80GB-HBM3"


class Truth:
    """Activity of each GPU: `level` of tensor activity by node, times `effect` from `changed_at` of its node on."""

    def __init__(self) -> None:
        self.changed_at: dict[str, datetime] = {}
        self.effect = 0.0
        self.throttled = 0.0
        """More seconds in five minutes since a node's change."""
        self.others = 0.0
        """What happened to every node from the first change on."""
        self.holder: dict[str, str] = {}
        self.gpus = 2
        self.free: set[str] = set()
        self.silent: set[str] = set()
        """Nodes without a reading since their change."""
        self.noise = 0.04
        self.asked: list[Collection[str] | None] = []
        self.spans: list[timedelta] = []
        """Lengths of what was read at once."""

    def buckets(
        self, cluster_id: UUID, start: datetime, end: datetime, *, nodes: Collection[str] | None = None
    ) -> dict[Device, list[Bucket]]:
        """Replacement for gpus.storage.history.buckets."""
        self.asked.append(nodes)
        self.spans.append(end - start)
        by_device = {}
        for node in sorted(nodes or ()):
            rng = random.Random(f"{node}")
            level, drift = rng.uniform(0.3, 0.6), rng.gauss(0, self.noise)
            for index in range(self.gpus):
                device = Device(f"GPU-{node}-{index}", "", node, "NVIDIA H100 80GB HBM3")
                by_device[device] = list(self._of(node, start, end, level, drift))
        return by_device

    def _of(self, node: str, start: datetime, end: datetime, level: float, drift: float) -> Any:
        first = min(self.changed_at.values(), default=None)
        at = start
        while at < min(end, now()):
            tensor = level
            if first and at >= first:
                tensor *= (1 + self.others) * (1 + drift)
            throttled = 3.0
            if node in self.silent and at >= self.changed_at[node]:
                return
            if node in self.changed_at and at >= self.changed_at[node]:
                tensor *= 1 + self.effect
                throttled += self.throttled
            means = {
                Metric.BUSY: 0.9, Metric.TENSOR: tensor, Metric.SM_CLOCK: 1.98e9, Metric.POWER: 600.0,
                Metric.POWER_THROTTLED: throttled,
            }  # fmt: skip
            held = 0.0 if node in self.free else 1.0
            yield Bucket(at, 1.0, held, means, self.holder.get(node, f"team/train-{node}-0"))
            at += timedelta(minutes=5)


class Worked:
    """A rollout over `nodes` nodes, all of which succeeded `ago` before now, a minute apart."""

    def __init__(self, nodes: int = 12, *, control: int = 0, ago: timedelta = timedelta(hours=7), **strategy: Any):
        self.truth = Truth()
        self.cluster: Cluster = ClusterFactory()
        self.pool = Pool.objects.create(cluster=self.cluster, name="train", selector={"matchLabels": {"pool": "train"}})
        profile = Profile.objects.create(name=f"tuned-{self.cluster.uid}")
        self.revision = Revision.objects.create(profile=profile, number=1, digest="sha256:0", source="", content={})
        self.nodes = Node.objects.bulk_create(
            Node(cluster=self.cluster, name=f"n{i:03}", uid=f"{self.cluster.uid}-{i}", gpu_product=MODEL, gpu_count=2)
            for i in range(nodes)
        )
        GpuDevice.objects.create(cluster=self.cluster, uuid="GPU-n000-0", node=self.nodes[0], node_name="n000")
        self.rollout = self.another(ago=ago, control=control, **strategy)

    def another(self, *, ago: timedelta, control: int = 0, nodes: int | None = None, **strategy: Any) -> Rollout:
        number = Rollout.objects.count() + 1
        common: dict[str, Any] = {"number": number, "cluster": self.cluster}
        plan = Plan.objects.create(
            **common, pool=self.pool, revision=self.revision, status="started", selector={}, observed_at=now(),
            expires_at=now(), digest=f"sha256:{number}", strategy=Strategy(**strategy).to_json(), worst_class="live",
            summary={"seconds": 60, "nodes": len(self.nodes), "batches": [], "budget": 1},
        )  # fmt: skip
        chosen = self.nodes[:nodes]
        ended = now() - ago
        rollout = Rollout.objects.create(
            **common, plan=plan, started_at=ended - timedelta(minutes=len(chosen)),
            status="running" if control else "succeeded", finished_at=None if control else ended,
        )  # fmt: skip
        rows = PlanNode.objects.bulk_create(
            PlanNode(plan=plan, node=n, uid=n.uid, name=n.name, batch=i + 1, is_control=i >= len(chosen) - control)
            for i, n in enumerate(chosen)
        )
        steps = []
        for i, row in enumerate(rows):
            done = ended - timedelta(minutes=len(chosen) - control - 1 - i)
            step = Step(
                rollout=rollout, plan_node=row, node_id=row.node_id, node_name=row.name, node_uid=row.uid,
                batch=row.batch, position=i, worst_class="live",
            )  # fmt: skip
            if not row.is_control:
                step.status, step.entered_at, step.is_live, step.has_applied = "succeeded", done, False, True
                step.stages = {"queued": 900.0, "applying": 20.0, "verifying": 10.0}
                self.truth.changed_at.setdefault(row.name, done)
            else:
                step.is_live = False  # tests may want several rollouts of one node
            steps.append(step)
        Step.objects.bulk_create(steps)
        return rollout

    def study(self) -> Study:
        """Looked at until nothing is behind."""
        studies.adopt()
        for _ in range(20):
            study = Study.objects.select_related("rollout__plan", "rollout__cluster").get(rollout=self.rollout)
            if study.due_at is None:
                break
            assert studies.advance(study)
            if not study.nodes.filter(until=None).exists():
                break
        return Study.objects.get(rollout=self.rollout)

    def effects(self) -> Mapping[str, StudyEffect]:
        return {row.measure: row for row in StudyEffect.objects.filter(study__rollout=self.rollout)}
