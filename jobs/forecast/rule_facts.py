"""Facts for rules beyond class and shares: counted from the cluster as it is now and from what the digest covers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Min, QuerySet, Sum, TextField
from django.db.models.functions import Cast, Coalesce, Greatest

from clusters import tolerations
from clusters.models import GpuPod
from jobs.diffs import evictions
from jobs.diffs.changes import Changes, Disruption
from jobs.models import ApprovalRule, ChangeSet, Plan, PlanComponent, PlanNode
from profiles.catalog import weakening


@dataclass(frozen=True, slots=True)
class ExtraFacts:
    gpus: int = 0
    """On nodes that the plan takes out of service."""
    gpu_jobs: int = 0
    namespaces: frozenset[str] = frozenset()
    """Whose GPU jobs are interrupted."""
    components: frozenset[str] = frozenset()
    weakens_security: bool = False


NO_EXTRAS = ExtraFacts()
Job = tuple[str, str, str]
"""Namespace, kind and name of what owns a pod."""
TAKE_SLOTS = tuple(each.value for each in Disruption if each.takes_slot)
DRAINS = tuple(each.value for each in Disruption if each.drains)


def has_extra_condition(row: ApprovalRule) -> bool:
    """Return whether the rule has a condition about such facts."""
    has_number = row.gpus is not None or row.gpu_jobs is not None
    return has_number or bool(row.namespace or row.component or row.weakens_security)


def facts_fit(row: ApprovalRule, extras: ExtraFacts) -> bool:
    return (
        (row.gpus is None or extras.gpus >= row.gpus)
        and (row.gpu_jobs is None or extras.gpu_jobs >= row.gpu_jobs)
        and (not row.namespace or row.namespace in extras.namespaces)
        and (not row.component or row.component in extras.components)
        and (not row.weakens_security or extras.weakens_security)
    )


def extra_facts(plans: Sequence[Plan], rows: Sequence[ApprovalRule]) -> dict[UUID, ExtraFacts]:
    """Return, by plan, the facts that these rules need: one query for each kind of condition, two for jobs."""
    needed = {
        "gpus": any(row.gpus is not None for row in rows),
        "weakens_security": any(row.weakens_security for row in rows),
        "components": any(row.component for row in rows),
        "jobs": any(row.gpu_jobs is not None or row.namespace for row in rows),
    }
    return counted_facts(plans, {kind for kind, is_needed in needed.items() if is_needed})


def counted_facts(plans: Sequence[Plan], kinds: Collection[str]) -> dict[UUID, ExtraFacts]:
    """Return, by plan, the facts of these kinds: `gpus`, `weakens_security`, `components`, `jobs`.
    Where the plan's own summary counted more than there is now, that counts: in doubt the stricter rule.
    """
    chosen = PlanNode.objects.filter(plan__in=plans, left_out="").order_by()
    gpus = _gpus(chosen) if "gpus" in kinds else {}
    weak = _weakening(chosen) if "weakens_security" in kinds else set()
    parts = _components(plans) if "components" in kinds else {}
    jobs = _jobs(plans, chosen) if "jobs" in kinds else {}
    return {
        plan.pk: ExtraFacts(
            gpus=max(gpus.get(plan.pk, 0), int(plan.summary.get("gpus_out_at_once") or 0)),
            gpu_jobs=max(len(jobs.get(plan.pk, ())), int(plan.summary.get("gpu_jobs") or 0)),
            namespaces=frozenset(
                {
                    *(space for space, *_ in jobs.get(plan.pk, ())),
                    *(row["namespace"] for row in plan.summary.get("namespaces", ())),
                }
            ),
            components=frozenset(parts.get(plan.pk, ())),
            weakens_security=plan.pk in weak,
        )
        for plan in plans
    }


def _gpus(chosen: QuerySet[PlanNode]) -> dict[UUID, int]:
    leaving = chosen.filter(worst_class__in=TAKE_SLOTS).values_list("plan_id")
    return dict(leaving.annotate(total=Sum(Greatest("gpus", Coalesce("node__gpu_count", 0)))))


def _components(plans: Sequence[Plan]) -> dict[UUID, set[str]]:
    names: dict[UUID, set[str]] = defaultdict(set)
    rows = PlanComponent.objects.filter(plan__in=plans, left_out="").exclude(action="none")
    for plan_id, name in rows.values_list("plan_id", "component"):
        names[plan_id].add(name)
    return names


def _weakening(chosen: QuerySet[PlanNode]) -> set[UUID]:
    """Plans of which a change weakens security. A change set is read once a plan, however many nodes have it."""
    content = Min(Cast("change_set__content", TextField()))
    rows = chosen.exclude(change_set=None).values_list("plan_id", "change_set_id").annotate(content=content)
    weak: dict[str, bool] = {}
    weakening_plans = set()
    for plan_id, change_set, text in rows:
        if change_set not in weak:
            weak[change_set] = bool(weakened_keys(Changes.from_json(json.loads(text))))
        if weak[change_set]:
            weakening_plans.add(plan_id)
    return weakening_plans


def _jobs(plans: Sequence[Plan], chosen: QuerySet[PlanNode]) -> dict[UUID, set[Job]]:
    """GPU jobs on nodes that each plan drains; where a taint alone is why, of pods that do not tolerate it for good."""
    drained: dict[UUID, list[tuple[str, str | None]]] = defaultdict(list)
    rows = chosen.filter(worst_class__in=DRAINS)
    for plan_id, name, change_set in rows.values_list("plan_id", "name", "change_set_id"):
        drained[plan_id].append((name, change_set))
    if not drained:
        return {}
    taints = _sparing({change_set for rows in drained.values() for _, change_set in rows})
    pods_by_node: dict[UUID, dict[str, list[tuple[Job, list[evictions.Raw]]]]] = defaultdict(lambda: defaultdict(list))
    pods = GpuPod.objects.filter(cluster__in={plan.cluster_id for plan in plans}).exclude(node_name="")
    columns = ("cluster_id", "node_name", "namespace", "owner_kind", "owner_name", "name", "tolerations")
    for cluster_id, node, space, kind, owner, name, tolerated in pods.values_list(*columns):
        pods_by_node[cluster_id][node].append(((space, kind or "Pod", owner or name), tolerated))
    return {
        plan.pk: {
            job
            for node, change_set in drained[plan.pk]
            for job, tolerated in pods_by_node[plan.cluster_id].get(node, ())
            if change_set not in taints or tolerations.lasts(tolerated, taints[change_set]) is not None
        }
        for plan in plans
    }


def _sparing(change_sets: set[str | None]) -> dict[str | None, list[evictions.Raw]]:
    """Return the NoExecute taints of those change sets that drain because of such taints alone."""
    taints_by_set: dict[str | None, list[evictions.Raw]] = {}
    rows = ChangeSet.objects.filter(pk__in=change_sets - {None}, worst_class=Disruption.DRAIN)
    for pk, content in rows.values_list("pk", "content"):
        if evictions.spares_tolerant_pods(changes := Changes.from_json(content)):
            taints_by_set[pk] = evictions.new_evicting_taints(changes)
    return taints_by_set


def weakened_keys(changes: Changes) -> dict[str, str]:
    reasons = {c.key: weakening.reason(c.key, c.operator, c.value) for c in changes.settings()}
    return {key: why for key, why in reasons.items() if why}
