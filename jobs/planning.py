"""A plan is made here: rows and one look at the pods become a frozen difference with its cost, or a refusal with its
reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Max, Q

from accounts.models import User
from accounts.permissions import require
from audit import services as audit
from clusters import connections
from clusters.fleet import FleetError
from clusters.models import Cluster, GpuPod, Node, Pool
from clusters.pools import matching
from common.clock import now
from common.errors import Invalid, WrongState
from compliance import services as compliance
from compliance.models import Assignment, NodeExpectation
from contract import names as contract_names
from jobs import backups, estimates, findings, forecast
from jobs.changes import Changes, Disruption, digest
from jobs.difference import REPAIRED, Seen, Target, between, watching
from jobs.findings import Finding
from jobs.forecast import Candidate
from jobs.models import ChangeSet, Counter, Freeze, Plan, PlanNode, Signal, Slot, Step
from jobs.strategy import Strategy
from profiles import content
from profiles.models import Revision

FATAL = ("WrongNode", "Skew", "BadSpec", "JournalCorrupt", "JournalUnwritable")
"""Reasons of the agent's condition Degraded with which it writes nothing at all."""

DRAFTED = "joining"
"""Of a plan's summary["drafted"]: why Setpoint made it by itself; empty where a person did."""


@dataclass(slots=True)
class Draft:
    """A plan before it is stored."""

    candidates: list[Candidate] = field(default_factory=list)
    changes: dict[int, Changes] = field(default_factory=dict)
    left_out: dict[str, list[Node]] = field(default_factory=lambda: defaultdict(list))
    lacking: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    higher: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    compliant: list[Node] = field(default_factory=list)


def make(
    *,
    pool: Pool,
    revision: Revision,
    strategy: Strategy,
    by: User | None,
    message: str = "",
    joined: Collection[int] | None = None,
) -> Plan:
    """Compare the pool's nodes with the revision and store the plan. Reads the cluster's pods when nodes are drained.

    Without a person (`by` None) it is Setpoint's own draft, for those of the pool's nodes that `joined` names.

    Raises NotAllowed, Invalid (empty selector, nothing matches), WrongState (unreachable, not ours, stale, no change).
    """
    cluster = pool.cluster
    if by is not None:
        require(by, "operator", cluster.scopes, doing="make a plan")
    _refuse_unfit(cluster, pool)
    nodes = list(matching(pool).select_related("tuning").order_by("name"))
    if not nodes:
        raise Invalid(f"The selector of {pool} matches no node.", fields={"pool": ["Matches no node now."]})
    target = Target.of(revision.content)
    asked = nodes if joined is None else [n for n in nodes if n.pk in joined]
    draft = compare(cluster, asked, revision, target, strategy)
    if not draft.left_out and not _has_a_point(pool, revision, draft):
        raise WrongState(f"All {len(asked)} nodes of {pool} already run {revision}: there is nothing to plan.")
    found = _findings(cluster, asked, target, draft, strategy)
    drained = frozenset(c.name for c in draft.candidates if c.worst.drains)
    evicted = 0
    if drained:
        about_pods, evicted = _about_pods(cluster, drained, strategy)
        found += about_pods
    return _store(cluster, pool, revision, strategy, draft, found, evicted, nodes, by, message)


def _has_a_point(pool: Pool, revision: Revision, draft: Draft) -> bool:
    """Whether anything would change. To watch what is as wanted already is no plan, unless the pool waits for that."""
    if Assignment.objects.filter(pool=pool, revision=revision).exists():
        return bool(draft.changes)
    return any(not c.is_watch or c.value == REPAIRED for row in draft.changes.values() for c in row.items)


def _about_pods(cluster: Cluster, drained: frozenset[str], strategy: Strategy) -> tuple[list[Finding], int]:
    """Findings about pods on nodes that will be drained, and how many that evicts. Raises WrongState."""
    try:
        fleet = connections.connect(cluster)
        pods, budgets = fleet.pods(), fleet.budgets()
    except FleetError as error:
        raise WrongState(
            f"The pods of {cluster} cannot be read, so what a drain disturbs is unknown: {error}"
        ) from error
    return findings.drains(pods, budgets, drained, strategy)


def _refuse_unfit(cluster: Cluster, pool: Pool) -> None:
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


def compare(cluster: Cluster, nodes: list[Node], revision: Revision, target: Target, strategy: Strategy) -> Draft:
    """Each node against the revision, from rows alone: what changes, or why it cannot be tuned now."""
    draft = Draft()
    originals = compliance.originals({n.pk: getattr(n, "tuning", None) for n in nodes})
    before, expected = _before(nodes)
    pods = gpu_pods(cluster)
    order = signals(nodes)
    silent_before = now() - timedelta(seconds=settings.SETPOINT_AGENT_SILENT_SECONDS)
    unknown = backups.unknown_steps(n.tuning.spec_step for n in nodes if hasattr(n, "tuning"))
    for node in nodes:
        reason = _unfit(node, strategy, silent_before, unknown)
        if reason:
            draft.left_out[reason].append(node)
            continue
        seen = Seen(
            observed=node.tuning.observed,
            labels=node.labels,
            annotations=node.annotations,
            taints=node.taints,
            originals=originals.get(node.pk, {}),
            before=before.get(node.pk, Target(())),
        )
        difference = between(target, seen)
        for key in difference.lacking:
            draft.lacking[key].append(node.name)
        for key in difference.higher:
            draft.higher[key].append(node.name)
        changes = watching(
            difference.changes,
            enforce=strategy.enforce,
            mode=node.tuning.mode,
            is_expected=expected.get(node.pk) == revision.pk,
        )
        if not changes.items:
            draft.compliant.append(node)
            continue
        draft.changes[node.pk] = changes
        draft.candidates.append(
            Candidate(
                node_id=node.pk,
                name=node.name,
                worst=changes.worst_class,
                is_control_plane=node.is_control_plane,
                gpus=node.gpu_count,
                gpu_pods=pods.get(node.name, []),
                signal=order.get(node.pk, 0.0),
            )
        )
    return draft


def _unfit(node: Node, strategy: Strategy, silent_before: datetime, unknown: frozenset[str]) -> str:
    """Why a node is left out, as a sentence; empty when it can be tuned."""
    tuning = getattr(node, "tuning", None)
    if tuning is None or tuning.protocol == 0:
        return "No agent has answered there."
    if abs(tuning.protocol - contract_names.PROTOCOL) > contract_names.MAX_SKEW:
        newer = "agent" if tuning.protocol < contract_names.PROTOCOL else "control plane"
        return f"Agent {tuning.agent_version} and this control plane are too far apart: upgrade the {newer}."
    if tuning.malformed:
        return f"The agent's answer cannot be read: {tuning.malformed}."
    if tuning.spec_step in unknown:
        return backups.LEFT_OUT
    if tuning.lease_renewed_at and tuning.lease_renewed_at < silent_before:
        return "The agent has been silent for too long."
    degraded = next(
        (c for c in tuning.status.get("conditions", ()) if c["type"] == "Degraded" and c["status"] == "True"), None
    )
    if degraded and degraded.get("reason") in FATAL:
        return f"The agent refuses to work: {degraded.get('message') or degraded['reason']}."
    if strategy.include_unavailable:
        return ""
    if not node.is_ready:
        return "They are not Ready."
    if node.is_cordoned:
        return "They are cordoned by others."
    return ""


def _before(nodes: list[Node]) -> tuple[dict[int, Target], dict[int, int]]:
    """The target each node is expected to run now, one Target per revision; and that revision's key."""
    targets: dict[int, Target] = {}
    out, expected = {}, {}
    for row in NodeExpectation.objects.filter(node__in=nodes, revision__isnull=False).select_related("revision"):
        assert row.revision is not None
        if row.revision_id not in targets:
            targets[row.revision.pk] = Target.of(row.revision.content)
        out[row.node_id] = targets[row.revision.pk]
        expected[row.node_id] = row.revision.pk
    return out, expected


def gpu_pods(cluster: Cluster) -> dict[str, list[dict[str, Any]]]:
    """By node name."""
    out: dict[str, list[dict[str, Any]]] = defaultdict(list)
    fields = ("namespace", "name", "node_name", "gpus", "owner_kind", "owner_name", "started_at")
    for pod in GpuPod.objects.filter(cluster=cluster).exclude(node_name="").values(*fields):
        out[pod["node_name"]].append(pod)
    return out


def signals(nodes: Iterable[Node]) -> dict[int, float]:
    """What the rooms above say of the order, by node: lower goes first."""
    scopes = {f"node:{n.pk}": n.pk for n in nodes}
    rows = Signal.objects.filter(kind="order", expires_at__gt=now(), scope__startswith="node:")
    return {scopes[s.scope]: float(s.value) for s in rows if s.scope in scopes}


def _findings(cluster: Cluster, nodes: list[Node], target: Target, draft: Draft, strategy: Strategy) -> list[Finding]:
    left_out = {reason: [n.name for n in rows] for reason, rows in draft.left_out.items()}
    out = findings.by_reason(left_out) + findings.settings(draft.lacking, draft.higher)
    out += findings.reserved((key for key, *_ in target.settings), [c.name for c in draft.candidates])
    if not draft.candidates:
        out.append(
            Finding("block", "nothing-possible", "No node can be changed now", "All of them are left out; see why.", [])
        )
    masters = [c.name for c in draft.candidates if c.is_control_plane]
    if masters:
        out.append(
            Finding(
                "warn", "control-plane", "Control-plane nodes are in this pool", "They go last, one at a time.", masters
            )
        )
    kinds = {(n.architecture, n.gpu_product) for n in nodes}
    if len(kinds) > 1:
        names = ", ".join(sorted(f"{arch or 'unknown'} {gpu or 'without GPU'}" for arch, gpu in kinds))
        out.append(Finding("note", "mixed", "The pool mixes kinds of nodes", f"It holds {names}.", []))
    taken = _taken(cluster)
    if strategy.include_joining:
        out.append(
            Finding(
                "note",
                "joining",
                "Nodes that join while it runs are included",
                "Nodes that are new to the cluster and come to this pool follow as a last batch, where every change is "
                "live. What needs more than that stays pending, and a plan of its own is drafted for it.",
                [],
            )
        )
    if taken and any(c.worst.takes_slot for c in draft.candidates):
        allowed = strategy.allowed_out(cluster.budget)
        out.append(
            Finding(
                "warn",
                "budget-taken",
                f"{len(taken)} of {allowed} places of the budget are taken already",
                "Nodes that are not ready or cordoned count, whoever took them out; those listed do not count again.",
                taken,
            )
        )
    busy = Step.objects.filter(node__in=nodes, is_live=True).select_related("rollout")
    for rollout, working in _grouped(busy).items():
        title = f"R-{rollout} works on some of these nodes"
        out.append(Finding("warn", "busy", title, "This plan can start when it is done.", working))
    freeze = Freeze.standing(cluster.pk).first()
    if freeze:
        until = f" until {freeze.until:%Y-%m-%d %H:%M} UTC" if freeze.until else ""
        out.append(
            Finding("warn", "frozen", f"A freeze stands{until}", f"{freeze.reason} Nothing starts while it does.", [])
        )
    return out


def _grouped(steps: Iterable[Step]) -> Mapping[int, list[str]]:
    out: dict[int, list[str]] = defaultdict(list)
    for step in steps:
        out[step.rollout.number].append(step.node_name)
    return out


def _taken(cluster: Cluster) -> list[str]:
    slots = Slot.objects.filter(cluster=cluster).values_list("node__name", flat=True)
    return sorted(set(cluster.nodes.unavailable().values_list("name", flat=True)) | set(slots))  # type: ignore[attr-defined]


def _store(  # noqa: PLR0917 — one caller, which has just computed each of them
    cluster: Cluster,
    pool: Pool,
    revision: Revision,
    strategy: Strategy,
    draft: Draft,
    found: list[Finding],
    evicted: int,
    nodes: list[Node],
    by: User | None,
    message: str,
) -> Plan:
    batches = forecast.arrange(draft.candidates, strategy)
    values = sum(not c.is_watch for row in draft.changes.values() for c in row.items)
    budget = strategy.allowed_out(cluster.budget)
    estimate = estimates.of(cluster.pk, {c.worst for c in draft.candidates})
    summary = forecast.summarise(
        batches, strategy, budget=budget, evicted=evicted, values=values, at=now(), each=estimate.seconds
    )
    unavailable = [n for n in nodes if not n.is_ready or n.is_cordoned]
    summary |= {
        "estimate": estimate.to_json(),
        "newest_node": newest_node(),
        "drafted": "" if by else DRAFTED,
        "pool_nodes": len(nodes),
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
    worst_class = max((c.worst for c in draft.candidates), key=lambda c: c.rank, default=Disruption.LIVE)
    with transaction.atomic():
        plan = Plan.objects.create(
            number=next_number("plan"),
            cluster=cluster,
            pool=pool,
            revision=revision,
            strategy=strategy.to_json(),
            selector=pool.selector,
            message=message,
            findings=findings.ranked(found),
            summary=summary,
            worst_class=worst_class,
            created_by=by,
            observed_at=cluster.observed_at or now(),
            expires_at=now() + timedelta(hours=settings.SETPOINT_PLAN_EXPIRY_HOURS),
        )
        _store_nodes(plan, draft, nodes)
        plan.digest = compute_digest(plan)
        Plan.objects.filter(pk=plan.pk).update(digest=plan.digest)
        audit.record(
            by=by,
            action="plan.make",
            target=f"plan:{plan.pk}",
            target_name=str(plan),
            cluster_id=cluster.pk,
            message=message,
            after={"digest": plan.digest, "revision": str(revision), "pool": str(pool), "nodes": summary["nodes"]},
        )
    return plan


def _store_nodes(plan: Plan, draft: Draft, nodes: list[Node]) -> None:
    wanted = {c.digest: c for c in draft.changes.values()}
    ChangeSet.objects.bulk_create(
        [ChangeSet(pk=key, content=c.to_json(), worst_class=c.worst_class) for key, c in wanted.items()],
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
            gpus=c.gpus,
            gpu_pods=len(c.gpu_pods),
            is_unavailable=not by_pk[c.node_id].is_ready or by_pk[c.node_id].is_cordoned,
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
            is_unavailable=not n.is_ready or n.is_cordoned,
            left_out=reason[:300],
        )
        for reason, left in draft.left_out.items()
        for n in left
    ]
    PlanNode.objects.bulk_create(rows, batch_size=500)


def newest_node() -> int:
    """Whatever node is not known yet will have a greater key."""
    return Node.objects.aggregate(newest=Max("pk"))["newest"] or 0


def newest_then(plan: Plan) -> int | None:
    """Nodes with a greater key were unknown when this plan was made, and its option takes them; None: it has none."""
    newest = plan.summary.get("newest_node")
    return newest if plan.strategy.get("include_joining") and isinstance(newest, int) else None


def is_as_approved(plan: Plan) -> bool:
    """Whether plan, nodes and the revision's content still are what its digest was computed over."""
    if compute_digest(plan) != plan.digest or not is_intact(plan.revision.digest, plan.revision.content):
        return False
    newest = newest_then(plan)
    # Those that joined since are in no batch of the plan, and none of them was out of service in an approver's eyes.
    favoured = Q(is_unavailable=True) | ~Q(batch=0)
    return newest is None or not plan.nodes.filter(favoured, node__gt=newest).exists()  # type: ignore[attr-defined]


def is_intact(digest_: str, raw: Mapping[str, Any]) -> bool:
    """Whether this is the content that a revision's digest names."""
    try:
        return content.digest(content.Content.from_json(raw)) == digest_
    except content.BadContent:
        return False


def compute_digest(plan: Plan) -> str:
    """SHA-256 over everything that is approved. A node's batch counts only while frozen: canary and the batch after
    it.

    Nodes that joined since are covered by the option as such; jobs.engine.newcomers judges their steps one by one.
    """
    newest = newest_then(plan)
    known = {} if newest is None or plan.status != Plan.Status.STARTED else {"node__lte": newest}
    option = {} if newest is None else {"newest_node": newest}
    columns = ("uid", "change_set_id", "worst_class", "batch", "is_unavailable", "left_out")
    rows = plan.nodes.filter(**known).values_list(*columns).order_by()  # type: ignore[attr-defined]
    return "sha256:" + digest(
        {
            "cluster": plan.cluster.uid,
            "pool": plan.pool.name,
            "selector": plan.selector,
            "revision": plan.revision.digest,
            "strategy": plan.strategy,
            "budget": plan.summary.get("budget"),
            **option,
            "nodes": sorted(
                [uid, change, worst, min(batch, forecast.FROZEN_BATCHES + 1), out, left]
                for uid, change, worst, batch, out, left in rows
            ),
        }
    )


def next_number(kind: str) -> int:
    """The next short number. Runs in the caller's transaction, so a number is never used twice."""
    Counter.objects.get_or_create(kind=kind)
    row = Counter.objects.select_for_update().get(kind=kind)
    row.value += 1
    row.save(update_fields=["value"])
    return row.value


def _count(words: Iterable[str]) -> dict[str, int]:
    out: dict[str, int] = defaultdict(int)
    for word in words:
        out[word] += 1
    return dict(out)
