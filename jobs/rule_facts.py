"""What rules look at beyond class and shares: counted from the cluster as it is now and from what the digest covers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

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


def are_asked(row: ApprovalRule) -> bool:
    """Whether the rule has a condition about them."""
    has_number = row.gpus is not None or row.gpu_jobs is not None
    return has_number or bool(row.namespace or row.component or row.weakens_security)


def fit(row: ApprovalRule, extras: Extras) -> bool:
    return (
        (row.gpus is None or extras.gpus >= row.gpus)
        and (row.gpu_jobs is None or extras.gpu_jobs >= row.gpu_jobs)
        and (not row.namespace or row.namespace in extras.namespaces)
        and (not row.component or row.component in extras.components)
        and (not row.weakens_security or extras.weakens_security)
    )


def of(plans: Sequence[Plan]) -> dict[UUID, Extras]:
    """By plan. Where the plan's own summary counted more than there is now, that counts: in doubt the stricter rule."""
    columns = ("name", "worst_class", "gpus", "node__gpu_count", "change_set_id")
    nodes: dict[UUID, list[tuple[str, str, int, int, str]]] = defaultdict(list)
    chosen = PlanNode.objects.filter(plan__in=plans, left_out="").order_by()
    for plan_id, *row in chosen.values_list("plan_id", *columns):
        nodes[plan_id].append(tuple(row))
    parts: dict[UUID, set[str]] = defaultdict(set)
    chosen_parts = PlanComponent.objects.filter(plan__in=plans, left_out="").exclude(action="none")
    for plan_id, name in chosen_parts.values_list("plan_id", "component"):
        parts[plan_id].add(name)
    weak = weakened({row[4] for rows in nodes.values() for row in rows if row[4]})
    held: dict[UUID, list[tuple[str, str, str, str, str]]] = defaultdict(list)
    pods = GpuPod.objects.filter(cluster__in={plan.cluster_id for plan in plans}).exclude(node_name="")
    for cluster_id, *pod in pods.values_list(
        "cluster_id", "node_name", "namespace", "owner_kind", "owner_name", "name"
    ):
        held[cluster_id].append(tuple(pod))
    return {plan.pk: _of_plan(plan, nodes[plan.pk], parts[plan.pk], weak, held[plan.cluster_id]) for plan in plans}


def _of_plan(
    plan: Plan,
    rows: list[tuple[str, str, int, int, str]],
    parts: set[str],
    weak: set[str],
    held: list[tuple[str, str, str, str, str]],
) -> Extras:
    classes = [(name, Disruption(worst), max(gpus, now)) for name, worst, gpus, now, _ in rows if worst]
    gpus = sum(count for _, worst, count in classes if worst.takes_slot)
    drained = {name for name, worst, _ in classes if worst.drains}
    jobs = {(space, kind or "Pod", owner or name) for node, space, kind, owner, name in held if node in drained}
    summary = plan.summary
    names = {*(space for space, *_ in jobs), *(row["namespace"] for row in summary.get("namespaces", ()))}
    return Extras(
        gpus=max(gpus, int(summary.get("gpus_out_at_once") or 0)),
        gpu_jobs=max(len(jobs), int(summary.get("gpu_jobs") or 0)),
        namespaces=frozenset(names),
        components=frozenset(parts),
        weakens_security=any(change_set in weak for *_, change_set in rows),
    )


def weakened(change_sets: set[str]) -> set[str]:
    """Those of these change sets that weaken security."""
    contents = ChangeSet.objects.filter(pk__in=change_sets).values_list("pk", "content")
    return {pk for pk, content in contents if of_changes(Changes.from_json(content))}


def of_changes(changes: Changes) -> dict[str, str]:
    found = {c.key: weakening.reason(c.key, c.operator, c.value) for c in changes.settings()}
    return {key: why for key, why in found.items() if why}
