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
    return {plan.pk: _of_plan(plan) for plan in plans}


def _of_plan(plan: Plan) -> Extras:
    columns = ("name", "worst_class", "gpus", "node__gpu_count", "change_set_id")
    rows = list(PlanNode.objects.filter(plan=plan, left_out="").order_by().values_list(*columns))
    classes = [(name, Disruption(worst), max(gpus, now)) for name, worst, gpus, now, _ in rows if worst]
    gpus = sum(count for _, worst, count in classes if worst.takes_slot)
    drained = {name for name, worst, _ in classes if worst.drains}
    jobs: dict[str, set[tuple[str, str]]] = defaultdict(set)
    if drained:
        held = GpuPod.objects.filter(cluster=plan.cluster_id).exclude(node_name="")
        for node, space, kind, owner, name in held.values_list(
            "node_name", "namespace", "owner_kind", "owner_name", "name"
        ):
            if node in drained:
                jobs[space].add((kind or "Pod", owner or name))
    summary = plan.summary
    names = {*jobs, *(row["namespace"] for row in summary.get("namespaces", ()))}
    parts = PlanComponent.objects.filter(plan=plan, left_out="").exclude(action="none")
    return Extras(
        gpus=max(gpus, int(summary.get("gpus_out_at_once") or 0)),
        gpu_jobs=max(sum(map(len, jobs.values())), int(summary.get("gpu_jobs") or 0)),
        namespaces=frozenset(names),
        components=frozenset(parts.values_list("component", flat=True)),
        weakens_security=bool(weakened({pk for *_, pk in rows if pk})),
    )


def weakened(change_sets: set[str]) -> dict[str, str]:
    """By key, why: the settings of these change sets that weaken security."""
    contents = ChangeSet.objects.filter(pk__in=change_sets).values_list("content", flat=True)
    return {key: why for content in contents for key, why in of_changes(Changes.from_json(content)).items()}


def of_changes(changes: Changes) -> dict[str, str]:
    found = {c.key: weakening.reason(c.key, c.operator, c.value) for c in changes.settings()}
    return {key: why for key, why in found.items() if why}
