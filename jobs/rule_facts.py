"""What rules look at beyond class and shares: counted from the cluster as it is now and from what the digest covers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet, Sum
from django.db.models.functions import Coalesce, Greatest

from clusters.models import GpuPod
from jobs.changes import Changes, Disruption
from jobs.models import ApprovalRule, ChangeSet, Plan, PlanComponent, PlanNode
from profiles import weakening


@dataclass(frozen=True, slots=True)
class Extras:
    gpus: int = 0
    """On nodes that the plan takes out of service."""
    gpu_jobs: int = 0
    namespaces: frozenset[str] = frozenset()
    """Whose GPU jobs are interrupted."""
    components: frozenset[str] = frozenset()
    weakens_security: bool = False


NO_EXTRAS = Extras()
Job = tuple[str, str, str]
"""Namespace, kind and name of what owns a pod."""
TAKE_SLOTS = tuple(each.value for each in Disruption if each.takes_slot)
DRAINS = tuple(each.value for each in Disruption if each.drains)


def are_asked(row: ApprovalRule) -> bool:
    """Whether the rule has a condition about them."""
    has_number = row.gpus is not None or row.gpu_jobs is not None
    return has_number or bool(row.namespace or row.component or row.weakens_security)


def ask_for_jobs(row: ApprovalRule) -> bool:
    return row.gpu_jobs is not None or bool(row.namespace)


def fit(row: ApprovalRule, extras: Extras) -> bool:
    return (
        (row.gpus is None or extras.gpus >= row.gpus)
        and (row.gpu_jobs is None or extras.gpu_jobs >= row.gpu_jobs)
        and (not row.namespace or row.namespace in extras.namespaces)
        and (not row.component or row.component in extras.components)
        and (not row.weakens_security or extras.weakens_security)
    )


def of(plans: Sequence[Plan], *, with_jobs: bool = True) -> dict[UUID, Extras]:
    """By plan, in four queries, and two more `with_jobs`.

    Where the plan's own summary counted more than there is now, that counts: in doubt the stricter rule.
    """
    chosen = PlanNode.objects.filter(plan__in=plans, left_out="").order_by()
    leaving = chosen.filter(worst_class__in=TAKE_SLOTS).values_list("plan_id")
    gpus = dict(leaving.annotate(total=Sum(Greatest("gpus", Coalesce("node__gpu_count", 0)))))
    change_sets: dict[UUID, set[str]] = defaultdict(set)
    for plan_id, change_set in chosen.exclude(change_set=None).values_list("plan_id", "change_set_id").distinct():
        change_sets[plan_id].add(str(change_set))
    weak = weakened(set().union(*change_sets.values()))
    parts: dict[UUID, set[str]] = defaultdict(set)
    chosen_parts = PlanComponent.objects.filter(plan__in=plans, left_out="").exclude(action="none")
    for plan_id, name in chosen_parts.values_list("plan_id", "component"):
        parts[plan_id].add(name)
    jobs = _jobs(plans, chosen) if with_jobs else {}
    return {
        plan.pk: Extras(
            gpus=max(gpus.get(plan.pk, 0), int(plan.summary.get("gpus_out_at_once") or 0)),
            gpu_jobs=max(len(jobs.get(plan.pk, ())), int(plan.summary.get("gpu_jobs") or 0)),
            namespaces=frozenset(
                {
                    *(space for space, *_ in jobs.get(plan.pk, ())),
                    *(row["namespace"] for row in plan.summary.get("namespaces", ())),
                }
            ),
            components=frozenset(parts[plan.pk]),
            weakens_security=not weak.isdisjoint(change_sets[plan.pk]),
        )
        for plan in plans
    }


def _jobs(plans: Sequence[Plan], chosen: QuerySet[PlanNode]) -> dict[UUID, set[Job]]:
    """GPU jobs on nodes that each plan drains."""
    drained: dict[UUID, set[str]] = defaultdict(set)
    for plan_id, name in chosen.filter(worst_class__in=DRAINS).values_list("plan_id", "name"):
        drained[plan_id].add(name)
    if not drained:
        return {}
    held: dict[UUID, dict[str, set[Job]]] = defaultdict(lambda: defaultdict(set))
    pods = GpuPod.objects.filter(cluster__in={plan.cluster_id for plan in plans}).exclude(node_name="")
    columns = ("cluster_id", "node_name", "namespace", "owner_kind", "owner_name", "name")
    for cluster_id, node, space, kind, owner, name in pods.values_list(*columns):
        held[cluster_id][node].add((space, kind or "Pod", owner or name))
    return {
        plan.pk: set().union(*(held[plan.cluster_id].get(node, set()) for node in drained[plan.pk])) for plan in plans
    }


def weakened(change_sets: set[str]) -> set[str]:
    """Those of these change sets that weaken security."""
    contents = ChangeSet.objects.filter(pk__in=change_sets).values_list("pk", "content")
    return {pk for pk, content in contents if of_changes(Changes.from_json(content))}


def of_changes(changes: Changes) -> dict[str, str]:
    found = {c.key: weakening.reason(c.key, c.operator, c.value) for c in changes.settings()}
    return {key: why for key, why in found.items() if why}
