"""Fleets as rows alone: as many nodes as a test wants, copied from one that a simulated agent has answered on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clusters.models import Node, NodeTuning
from jobs.models import Plan, PlanNode, Rollout, Step
from tests.crowd import measured
from tests.jobs.conftest import World

MANY = 1000
"""With so many rows PostgreSQL plans badly as long as it has not counted them."""


def more_nodes(
    world: World, count: int, *, answer: Callable[[int], dict[str, str]] | None = None, **fields: Any
) -> None:
    """`count` more nodes like n1, named m0001 and on. `answer`: what the nth one's agent observes otherwise."""
    pattern = Node.objects.select_related("tuning").get(cluster=world.cluster, name="n1")
    start = Node.objects.count()
    like, tuning = _values(pattern) | fields, _values(pattern.tuning)
    nodes = [Node(**like | {"name": f"m{n:04}", "uid": f"uid-m{n:04}"}) for n in range(start, start + count)]
    Node.objects.bulk_create(nodes)
    observed = tuning.pop("observed")
    NodeTuning.objects.bulk_create(
        NodeTuning(**tuning | {"node_id": node.pk, "observed": observed | answer(n) if answer else observed})
        for n, node in enumerate(nodes)
    )
    if count >= MANY:
        measured()


def _values(row: Any) -> dict[str, Any]:
    return {f.attname: getattr(row, f.attname) for f in row._meta.concrete_fields if not f.primary_key}


def _copy(row: Any, **fields: Any) -> Any:
    return type(row)(**_values(row) | fields)


def more_plans(
    world: World, count: int, *, status: str = "draft", with_rollouts: str = "", like: Plan | None = None
) -> list[Plan]:
    """`count` more plans by the operator, as rows; with rollouts of that status when it is given."""
    pattern = like or world.plan()
    start = 1000 + Plan.objects.count()
    plans = [_copy(pattern, number=start + i, status=status, requested_by_id=world.operator.pk) for i in range(count)]
    plans = Plan.objects.bulk_create(plans)
    if with_rollouts:
        Rollout.objects.bulk_create(
            Rollout(number=p.number, plan=p, cluster=world.cluster, status=with_rollouts, started_by=world.operator)
            for p in plans
        )
    return plans


def steps_like(rollout: Rollout, status: str, *, per_batch: int) -> None:
    """Every step of the rollout in this status, `per_batch` to a batch, as rows."""
    for position, step in enumerate(rollout.steps.order_by("pk")):
        Step.objects.filter(pk=step.pk).update(
            status=status, batch=position // per_batch + 1, is_live=status not in Step.RESTING, error="x" * 30
        )


def change_sets_of(plan: Plan) -> set[str]:
    return set(PlanNode.objects.filter(plan=plan, left_out="").values_list("change_set_id", flat=True))
