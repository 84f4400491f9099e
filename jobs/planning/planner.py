"""A plan is made here: rows and one look at the pods become a frozen difference with its cost, or a refusal with its
reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from accounts.models import User
from accounts.permissions import require
from audit import services as audit
from clusters.models import Cluster, Node, Pool
from common.clock import now
from common.errors import Invalid, WrongState
from compliance.models import Assignment
from contract import disk_layouts
from jobs.diffs import dependency_graph, evictions
from jobs.diffs.changes import most_disruptive
from jobs.diffs.disk_formats import formatted_serials
from jobs.diffs.node_diff import REPAIRED, Target
from jobs.forecast import (
    blast_radius,
    domain_findings,
    estimates,
    findings,
    measured_findings,
    overlaps,
    owners,
    randomization,
    schedule,
)
from jobs.forecast.findings import PlanFinding
from jobs.forecast.strategy import MEASURED, Strategy
from jobs.models import JUDGEMENT, ChangeSet, Plan, PlanNode, short_numbers
from jobs.planning import authorship, circumstances, component_parts, consents, digests
from jobs.planning.comparison import PlanDraft, compare_nodes
from jobs.planning.component_parts import PlanParts
from jobs.planning.node_rows import CIRCUMSTANCES, STORING, Progress, read_nodes, unnoted
from profiles.models import Revision

DRAFTED = "joining"
"""Of a plan's summary["drafted"]: why Setpoint made it by itself; empty where a person did."""


def make(
    *,
    pool: Pool,
    revision: Revision,
    strategy: Strategy,
    by: User | None,
    message: str = "",
    joined: Collection[int] | None = None,
    request_key: str | None = None,
    progress: Progress = unnoted,
    stored: Callable[[Plan], None] | None = None,
) -> Plan:
    """Compare the pool's nodes with the revision and store the plan. Reads the cluster's pods when nodes are drained.

    Without a person (`by` None) it is Setpoint's own draft, for those of the pool's nodes that `joined` names.
    `request_key`: see jobs.planning.repeated, which makes no second plan for the same request. `stored` is called at
    the end of the transaction that stores the plan, and undoes it by what it raises.

    Raises NotAllowed, Invalid (empty selector, nothing matches), WrongState (unreachable, not ours, stale, no change),
    IntegrityError (another plan answers the request).
    """
    about_seed = measured_findings.seed_findings(strategy)
    cluster, strategy = pool.cluster, randomization.with_seed(strategy)
    if by is not None:
        require(by, "operator", cluster.scopes, doing="make a plan")
    refuse_unfit(pool)
    nodes = read_nodes(pool, progress)
    if not nodes:
        raise Invalid(f"The selector of {pool} matches no node.", fields={"pool": ["Matches no node now."]})
    target = Target.of(revision.content)
    planned = nodes if joined is None else [n for n in nodes if n.pk in joined]
    pods = circumstances.read_pods(cluster) if evictions.needs_pods(target, (n.taints for n in planned)) else None
    tolerated = None if pods is None else evictions.tolerations_by_node(pods)
    draft = compare_nodes(cluster, planned, revision, target, strategy, tolerated=tolerated, progress=progress)
    progress(CIRCUMSTANCES, len(planned), len(planned))
    # Nodes that join bring nothing new to the cluster itself.
    brought = component_parts.prepare_parts(cluster, pool, revision) if joined is None else PlanParts()
    has_parts = bool(brought.to_do or findings.blocks(brought.findings))
    _refuse_unknown_domain(pool, nodes, strategy)
    if not draft.left_out and not has_parts and not _has_a_point(pool, revision, draft):
        raise WrongState(_nothing_to_plan(pool, revision, draft, len(planned)))
    plan_findings = (
        circumstances.circumstance_findings(cluster, planned, target, draft, strategy, has_parts=has_parts)
        + brought.findings
    )
    plan_findings += about_seed + domain_findings.unlabeled_findings(draft.candidates, strategy)
    plan_findings += overlaps.overlap_findings(pool, target, [c.node_id for c in draft.candidates])
    about_pods, evicted = circumstances.pod_findings(cluster, draft, strategy, pods)
    plan_findings += about_pods
    progress(STORING, len(planned), len(planned))
    names = (message, request_key, stored)
    return _store(cluster, pool, revision, strategy, draft, brought, plan_findings, evicted, nodes, by, *names)


def _has_a_point(pool: Pool, revision: Revision, draft: PlanDraft) -> bool:
    """Return whether anything would change. To watch compliant nodes is no plan, unless the pool waits for that."""
    if Assignment.objects.filter(pool=pool, revision=revision).exists():
        return bool(draft.changes)
    return any(not c.is_watch or c.value == REPAIRED for row in draft.changes.values() for c in row.items)


def _refuse_unknown_domain(pool: Pool, nodes: list[Node], strategy: Strategy) -> None:
    """Raise Invalid where no node of the pool has the label: its name is wrong, or nothing would be kept apart."""
    if not strategy.domain or any(n.labels.get(strategy.domain) for n in nodes):
        return
    known = sorted({key for n in nodes for key in n.labels if key in domain_findings.USUAL})
    hint = f" They have {', '.join(known)}." if known else ""
    raise Invalid(
        "The strategy is not valid.",
        fields={"strategy.domain": [f"No node of {pool} has the label {strategy.domain}.{hint}"]},
    )


def _nothing_to_plan(pool: Pool, revision: Revision, draft: PlanDraft, count: int) -> str:
    if names := draft.lacking.get(disk_layouts.KEY):
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return (
            f"No node of {pool} would change: {names[0]}{others} cannot take {disk_layouts.KEY}, because no local disk "
            "there is empty and fits, or it has another layout."
        )
    return f"All {count} nodes of {pool} already run {revision}: there is nothing to plan."


def refuse_unfit(pool: Pool) -> None:
    """Raise Invalid or WrongState where no plan can be made for this pool now, regardless of the revision."""
    cluster = pool.cluster
    selector = pool.selector or {}
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        raise Invalid("A plan needs a selector.", fields={"pool": [f"The selector of {pool} is empty."]})
    if cluster.ownership != Cluster.Ownership.OURS:
        raise WrongState(
            f"{cluster} belongs to installation {cluster.ownership_mark or 'nobody'}: take it over before planning."
        )
    if cluster.reach != Cluster.Reach.REACHABLE:
        raise WrongState(
            f"{cluster} is {cluster.reach} since {cluster.reach_since:%Y-%m-%d %H:%M} UTC: {cluster.reach_reason}"
        )
    age = (now() - cluster.observed_at).total_seconds() if cluster.observed_at else None
    if age is None or age > settings.SETPOINT_PLAN_FRESH_SECONDS:
        seen = "were never seen" if age is None else f"were last seen {int(age)} s ago"
        raise WrongState(
            f"The nodes of {cluster} {seen}; a plan needs observations of the last "
            f"{int(settings.SETPOINT_PLAN_FRESH_SECONDS)} s. Check that the watch runs."
        )


def _store(  # noqa: PLR0917 — one caller, which has just computed each of them
    cluster: Cluster,
    pool: Pool,
    revision: Revision,
    strategy: Strategy,
    draft: PlanDraft,
    brought: PlanParts,
    plan_findings: list[PlanFinding],
    evicted: int,
    nodes: list[Node],
    by: User | None,
    message: str,
    request_key: str | None,
    stored: Callable[[Plan], None] | None,
) -> Plan:
    budget = strategy.allowed_out(cluster.budget)
    summary = _summary(cluster, strategy, draft, brought, nodes, budget=budget, evicted=evicted, is_drafted=by is None)
    plan_findings = plan_findings + blast_radius.over_budget_findings(brought.to_do, budget)
    if strategy.order == MEASURED:
        plan_findings = plan_findings + measured_findings.retention_findings(
            summary["seconds"], strategy, settings.SETPOINT_GPU_BUCKET_DAYS
        )
    worst_class = most_disruptive([*(c.worst for c in draft.candidates), blast_radius.worst_of(brought.to_do)])
    with transaction.atomic():
        plan = Plan.objects.create(
            number=short_numbers.next_number("plan"),
            cluster=cluster,
            pool=pool,
            revision=revision,
            strategy=strategy.to_json(),
            selector=pool.selector,
            message=message,
            findings=findings.ranked(plan_findings),
            summary=summary,
            worst_class=worst_class,
            is_uncounted=bool(brought.uncounted),
            created_by=by,
            authorship=authorship.find_authors(pool, revision, brought.rows),
            observed_at=cluster.observed_at or now(),
            expires_at=now() + timedelta(hours=settings.SETPOINT_PLAN_EXPIRY_HOURS),
            judgement=JUDGEMENT,
            request_key=request_key,
        )
        _store_nodes(plan, draft, nodes)
        component_parts.store_parts(plan, brought)
        plan.owners = {str(owner.team): owner.name for owner in owners.owners_of([plan])[plan.pk]}
        plan.put_marked(digest=digests.plan_digest(plan), owners=plan.owners)
        audit.record(
            by=by,
            action="plan.make",
            target=f"plan:{plan.pk}",
            target_name=str(plan),
            cluster_id=cluster.pk,
            message=message,
            after={"digest": plan.digest, "revision": str(revision), "pool": str(pool), "nodes": summary["nodes"]},
        )
        if stored is not None:
            stored(plan)
    return plan


def _summary(
    cluster: Cluster,
    strategy: Strategy,
    draft: PlanDraft,
    brought: PlanParts,
    nodes: list[Node],
    *,
    budget: int,
    evicted: int,
    is_drafted: bool,
) -> dict[str, Any]:
    """Summarize the plan as a whole, for its page and REST; the digest covers it, and durations are in seconds."""
    batches = schedule.arrange_batches(draft.candidates, strategy)
    disks = sum(len(formatted_serials(row)) for row in draft.changes.values())
    values = sum(not c.is_watch for row in draft.changes.values() for c in row.items)
    estimate = estimates.estimate_durations(cluster.pk, {c.worst for c in draft.candidates})
    summary = schedule.summarize(
        batches, strategy, budget=budget, evicted=evicted, values=values, at=now(), each=estimate.seconds
    )
    summary = blast_radius.add_to_summary(summary, brought.to_do, draft.candidates, cluster, now())
    part_seconds, part_basis = estimates.part_durations(cluster.pk, brought.to_do)
    before = {row.component: [*row.requires, *row.after] for row in brought.to_do}
    summary["seconds"] = round(
        schedule.longest_path_seconds(before, {**part_seconds, dependency_graph.NODES: summary["seconds"]})
    )
    unavailable = [n for n in nodes if n.is_unavailable]
    return summary | {
        "estimate": estimate.to_json(),
        "parts": {"seconds": part_seconds, "before": before, "basis": part_basis},
        "newest_node": digests.newest_node_key(),
        "drafted": DRAFTED if is_drafted else "",
        "pool_nodes": len(nodes),
        **brought.summary,
        "consent": consents.phrase_of_rows(cluster.name, brought.rows, disks),
        "formatted_disks": disks,
        "compliant": len(draft.compliant),
        "watched": sum(all(c.is_watch for c in row.items) for row in draft.changes.values()),
        "left_out": sum(len(rows) for rows in draft.left_out.values()),
        "budget": budget,
        "gpus": sum(n.gpu_count for n in nodes),
        "gpus_out_already": sum(n.gpu_count for n in unavailable),
        "roles": _count("control plane" if n.is_control_plane else "worker" for n in nodes),
        "architectures": _count(n.architecture or "unknown" for n in nodes),
        "gpu_products": _count(n.gpu_product or "none" for n in nodes),
    }


def _store_nodes(plan: Plan, draft: PlanDraft, nodes: list[Node]) -> None:
    change_sets = {c.digest: c for c in draft.changes.values()}
    ChangeSet.objects.bulk_create(
        [ChangeSet(pk=key, content=c.to_json(), worst_class=c.worst_class) for key, c in change_sets.items()],
        ignore_conflicts=True,
    )
    by_pk = {n.pk: n for n in nodes}
    ids = {pk: c.digest for pk, c in draft.changes.items()}
    rows = [
        PlanNode(
            plan=plan,
            node_id=c.node_id,
            uid=by_pk[c.node_id].uid,
            name=c.name,
            change_set_id=ids[c.node_id],
            worst_class=c.worst,
            batch=c.batch,
            position=c.position,
            is_control=c.is_control,
            domain=c.domain,
            gpus=c.gpus,
            gpu_pods=len(c.gpu_pods),
            is_unavailable=by_pk[c.node_id].is_unavailable,
        )
        for c in draft.candidates
    ]
    rows += [
        PlanNode(
            plan=plan,
            node=n,
            uid=n.uid,
            name=n.name,
            gpus=n.gpu_count,
            is_unavailable=n.is_unavailable,
            left_out=reason[:300],
        )
        for reason, left in draft.left_out.items()
        for n in left
    ]
    PlanNode.objects.bulk_create(rows, batch_size=500)


def _count(words: Iterable[str]) -> dict[str, int]:
    out: dict[str, int] = defaultdict(int)
    for word in words:
        out[word] += 1
    return dict(out)
