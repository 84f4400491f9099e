"""Shares of its cluster that a plan changes or disturbs, counted from rows as the cluster is now."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Count, Sum

from clusters.models import Node
from jobs.models import Plan, PlanComponent, PlanNode


def shares_of(plans: Sequence[Plan]) -> dict[UUID, tuple[float, float]]:
    """Return the shares of the cluster's GPUs and nodes that the plan changes or disturbs.
    Counted from rows, not from its summary.
    """
    nodes, gpus = Count("pk"), Sum("gpus", default=0)
    touched = PlanNode.objects.filter(plan__in=plans, left_out="").order_by().values_list("plan").annotate(nodes, gpus)
    present = Node.objects.present().filter(cluster__in={plan.cluster_id for plan in plans}).order_by()
    there = present.values_list("cluster").annotate(nodes, Sum("gpu_count", default=0))
    whole = {cluster: (count, gpus) for cluster, count, gpus in there}
    part = {plan: (count, gpus) for plan, count, gpus in touched}
    part |= _disturbed([plan for plan in plans if plan.has_parts])
    out = {}
    for plan in plans:
        (all_nodes, all_gpus), (some, some_gpus) = whole.get(plan.cluster_id, (0, 0)), part.get(plan.pk, (0, 0))
        out[plan.pk] = _share(some_gpus, all_gpus), _share(some, all_nodes)
    return out


def _disturbed(plans: Sequence[Plan]) -> dict[UUID, tuple[int, int]]:
    """(nodes, GPUs) of plans whose components or policy objects disturb nodes, with those that they change."""
    rows = PlanComponent.objects.filter(plan__in=plans, left_out="").exclude(hit=[]).values_list("plan", "hit")
    hit: dict[UUID, set[str]] = {}
    for plan, names in rows:
        hit.setdefault(plan, set()).update(names)
    if not hit:
        return {}
    for plan, name in PlanNode.objects.filter(plan__in=hit, left_out="").values_list("plan", "name").order_by():
        hit[plan].add(name)
    of = {plan.pk: plan.cluster_id for plan in plans}
    present = Node.objects.present().filter(cluster__in={of[plan] for plan in hit}).order_by()
    gpus = {(cluster, name): count for cluster, name, count in present.values_list("cluster", "name", "gpu_count")}
    # A node that is gone since counts as one, without GPUs that do not exist any more.
    return {pk: (len(names), sum(gpus.get((of[pk], name), 0) for name in names)) for pk, names in hit.items()}


def _share(part: int, whole: int) -> float:
    """All of it where nothing is left to compare with: in doubt the stricter rule."""
    return (part / whole if whole else 1.0) if part else 0.0
