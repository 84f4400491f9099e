"""Names and links of plans and rollouts, for the rooms below: answers to questions of `common.hooks`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any
from uuid import UUID

from django.db.models import F, Value, Window
from django.db.models.functions import RowNumber

from accounts.permissions import restrict
from common.hooks import WorkRef
from components.policies.policy_objects import PreparedPolicies
from jobs.models import Plan, PlanComponent, PlanNode, Rollout, Step

PLANS_OF_AN_ARCHIVE = 100
_OF_PLAN = ("pk", "number", "pool_id", "revision_id", "status")
_OF_ROLLOUT = ("pk", "number", "plan__pool_id", "plan__revision_id", "status")


def rollouts_named(ids: Collection[UUID]) -> Iterator[WorkRef]:
    for row in Rollout.objects.filter(pk__in=ids).values_list(*_OF_ROLLOUT):
        yield WorkRef(*row, kind="rollout")


def rollouts_of_pools(pool_ids: Collection[int]) -> Iterator[WorkRef]:
    for row in Rollout.objects.live().filter(plan__pool__in=pool_ids).values_list(*_OF_ROLLOUT):
        yield WorkRef(*row, kind="rollout")


def objects_to_come(pool_ids: Collection[int]) -> Iterator[str]:
    """One query. What the plan saw there, or its step has made, is no such object: it was there."""
    live = Rollout.objects.live().filter(plan__pool__in=pool_ids)
    steps = Step.objects.filter(rollout__in=live, kind=Step.Kind.POLICIES, direction=Step.Direction.FORWARD)
    open_ = steps.exclude(status__in=(Step.Status.SUCCEEDED, Step.Status.SKIPPED)).select_related("plan_component")
    for step in open_.order_by("rollout__number", "position", "pk"):
        assert step.plan_component is not None
        for policy in PreparedPolicies.from_json(step.plan_component.prepared).objects:
            if policy.change in ("created", "unvalidated"):
                yield f"{policy.ref.kind}/{policy.ref}"


def work_of_pools(pool_ids: Collection[int]) -> Iterator[WorkRef]:
    """One query."""
    plans = Plan.objects.open().filter(pool__in=pool_ids).order_by()
    live = Rollout.objects.live().filter(plan__pool__in=pool_ids).order_by()
    both = plans.values_list(*_OF_PLAN, Value("plan")).union(live.values_list(*_OF_ROLLOUT, Value("rollout")), all=True)
    for *ref, kind in sorted(both, key=lambda row: -row[1]):
        yield WorkRef(*ref, kind=kind)


def plans_of_nodes(node_ids: Collection[int]) -> Iterator[tuple[int, WorkRef]]:
    rows = PlanNode.objects.filter(node__in=node_ids, plan__in=Plan.objects.open(), left_out="")
    columns = ("node_id", *(f"plan__{name}" for name in _OF_PLAN))
    for node_id, *plan in rows.order_by("-plan__number").values_list(*columns):
        yield node_id, WorkRef(*plan)


def plans_of_archives(keys: Collection[str], user: Any) -> Iterator[tuple[str, WorkRef]]:
    """One query."""
    rows = PlanComponent.objects.filter(archive__in=list(keys))
    if user is not None:
        rows = restrict(rows, user, "plan__cluster__")
    rank = Window(RowNumber(), partition_by="archive", order_by=F("plan__number").desc())
    rows = rows.annotate(rank=rank).filter(rank__lte=PLANS_OF_AN_ARCHIVE).order_by("-plan__number")
    columns = ("archive", *(f"plan__{name}" for name in _OF_PLAN))
    for key, *plan in rows.values_list(*columns):
        yield key, WorkRef(*plan)
