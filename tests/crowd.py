"""Thousands of nodes as rows alone, shaped as the product writes them: for tests at scale and for `bench pages`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db import connection

from audit.models import Record
from clusters.models import Cluster, ClusterDay, Node, Pool
from common.clock import now
from compliance.models import NodeExpectation, Outlier, SettingChange, SettingState
from components.plans.prepared import ObjectDifference, PlanNote, Prepared
from jobs.forecast.strategy import Strategy
from jobs.models import Plan, PlanComponent, PlanNode, Rollout, Step, StepEvent
from profiles.models import Revision

BATCH = 500
WORDS = ("Applying.", "Verifying.", "Succeeded.")


def measured() -> None:
    """Run ANALYZE on PostgreSQL after a test made rows: its own daemon would within a minute, but sees none of an
    uncommitted transaction, and plans for empty tables take seconds over full ones."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")


def settle(nodes: Sequence[Node], revision: Revision, keys: Sequence[str]) -> None:
    """Each is expected to run the revision and does, but for one key on every fiftieth node, which drifted."""
    NodeExpectation.objects.bulk_create([NodeExpectation(node=n, revision=revision) for n in nodes], batch_size=BATCH)
    rows = []
    for number, node in enumerate(nodes):
        for key in keys:
            is_off = number % 50 == 0 and key == keys[3]
            rows.append(
                SettingState(
                    node=node, key=key, desired="10", effective="60" if is_off else "10",
                    state="drifted" if is_off else "compliant", cause="file" if is_off else "",
                    won_by="/etc/sysctl.d/9.conf:1",
                )
            )  # fmt: skip
    SettingState.objects.bulk_create(rows, batch_size=BATCH)


def drift_of(nodes: Sequence[Node], key: str) -> None:
    """Record a drift of this key in each node's history."""
    SettingChange.objects.bulk_create(
        [SettingChange(node=node, key=key, state="drifted", effective="60") for node in nodes], batch_size=BATCH
    )


def outliers(cluster: Cluster, keys: Sequence[str]) -> None:
    for key in keys:
        Outlier.objects.create(
            cluster=cluster, scope="cluster", key=key, usual="10", usual_nodes=9, count=1,
            values=[{"value": "60", "count": 1, "names": ["n1"]}],
        )  # fmt: skip


def days(cluster: Cluster, nodes: int) -> None:
    """A month of counts."""
    ClusterDay.objects.bulk_create(
        ClusterDay(
            cluster=cluster,
            day=now().date() - timedelta(days=n),
            nodes=nodes,
            counts={"compliance": {"compliant": max(0, nodes - n)}},
        )
        for n in range(30)
    )


def ended_rollout(number: int, pool: Pool, revision: Revision, nodes: Sequence[Node]) -> Rollout:
    """One that ended, with the log of every node."""
    plan = Plan.objects.create(
        number=number, cluster=pool.cluster, pool=pool, revision=revision, digest="x", strategy=Strategy().to_json(),
        selector={}, worst_class="live", summary={"nodes": len(nodes), "gpus": 0, "batches": []},
        observed_at=now(), expires_at=now(), status=Plan.Status.STARTED,
    )  # fmt: skip
    ended = Rollout.Status.SUCCEEDED
    rollout = Rollout.objects.create(number=number, plan=plan, cluster=pool.cluster, status=ended)
    planned = PlanNode.objects.bulk_create(
        [PlanNode(plan=plan, node=node, uid=node.uid, name=node.name, batch=1) for node in nodes], batch_size=BATCH
    )
    steps = Step.objects.bulk_create(
        [
            Step(
                rollout=rollout, plan_node=row, node_id=row.node_id, node_uid=row.uid, node_name=row.name, batch=1,
                position=0, worst_class="live", status=Step.Status.SUCCEEDED, is_live=False,
            )
            for row in planned
        ],
        batch_size=BATCH,
    )  # fmt: skip
    log_of(rollout, steps)
    return rollout


def log_of(rollout: Rollout, steps: Sequence[Step]) -> None:
    """Record the events that the engine writes for a step that succeeds."""
    StepEvent.objects.bulk_create(
        [StepEvent(rollout=rollout, step=step, text=text) for text in WORDS for step in steps], batch_size=1000
    )


def records(cluster: Cluster, count: int) -> None:
    """Add records of this cluster to the audit trail."""
    Record.objects.bulk_create(
        [
            Record(actor="ann", action="cluster.update", target=f"cluster:{cluster.pk}", cluster_id=cluster.pk)
            for _ in range(count)
        ],
        batch_size=BATCH,
    )


def component_of(plan: Plan, objects: int) -> None:
    """A component of this plan that changes so many objects, each with a difference of some twenty lines."""
    diff = "".join(f" line {n}\n" for n in range(15)) + "-  color: blue\n-  old: x\n+  color: red\n+  new: y\n"
    changes = ("created", "changed", "changed", "deleted")
    prepared = Prepared(
        component="kueue", release="kueue", namespace="kueue-system", version="0.19.2", action="upgrade",
        objects=tuple(
            ObjectDifference(changes[n % 4], "v1", "ConfigMap", "kueue-system", f"settings-{n:04}", diff, n)
            for n in range(objects)
        ),
        notes=(PlanNote("warn", "webhooks", "A webhook changes", "Pods are asked for while it rolls."),),
    )  # fmt: skip
    PlanComponent.objects.create(
        plan=plan, component=prepared.component, namespace=prepared.namespace, release=prepared.release,
        version=prepared.version, action=prepared.action, prepared=prepared.to_json(), digest=prepared.digest,
        position=1, requires=["cert-manager"],
    )  # fmt: skip
    Plan.objects.filter(pk=plan.pk).update(summary=plan.summary | {"components": 1, "components_left_out": 0})
