"""Actions on all nodes of a filter at once. The person confirms a number, and the server holds them to it.

The page shows how many nodes the filter has and seals exactly these nodes (their UIDs) in a digest. Doing it reads the
filter again: if any node came, left or was replaced meanwhile, nothing is done and the new number is shown.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from accounts.models import User
from accounts.permissions import Role, may
from audit.services import record
from clusters.models import Cluster
from clusters.reports import node_filters
from clusters.services import pools
from common.counting import keys_of
from common.errors import Invalid, NotAllowed, Refusal, WrongState
from compliance.models import Assignment
from jobs.forecast.strategy import parse
from jobs.models import Plan, PlanRequest
from jobs.planning import plan_requests

MOST = 20_000
SHOWN = 12
PLAN, REFRESH = "plan", "refresh"
VERBS = (PLAN, REFRESH)


class SelectionChanged(WrongState):
    """The filter has other nodes than those that were confirmed."""

    code = "changed-meanwhile"


@dataclass(frozen=True, slots=True)
class PoolTarget:
    """A pool with a target that holds some of the chosen nodes."""

    assignment: Assignment
    chosen: int


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """The nodes of a filter as of now."""

    query: str
    count: int
    digest: str
    names: Sequence[str]
    clusters: Sequence[tuple[Cluster, int]]
    targets: Sequence[PoolTarget]
    """Asked of pools that have an assignment; nodes of none are in `loose`."""
    loose: int
    ids: Sequence[int] = field(repr=False, default=())


@dataclass(frozen=True, slots=True)
class BulkResult:
    """Result of a bulk action: plans made, and the pools for which none was made, with the reason."""

    plans: Sequence[Plan] = ()
    queued: Sequence[PlanRequest] = ()
    """Pools of more nodes than are compared within a request, all of them together: a worker makes their plans."""
    left: Sequence[tuple[str, str]] = ()
    clusters: Sequence[Cluster] = ()


def select_nodes(params: Mapping[str, str], user: User) -> NodeSelection:
    """Raises Invalid for a filter that is misspelled, empty, or chooses nothing or too much."""
    narrowed = node_filters.read(params, user)
    if narrowed.errors:
        raise Invalid("The filter is not valid.", fields={name: [why] for name, why in narrowed.errors.items()})
    if not narrowed.query:
        raise Invalid("Filter the list first: without a filter this would apply to every node.", fields={"query": []})
    rows = narrowed.rows.order_by("name", "pk").values_list("pk", "uid", "name", "cluster_id")[: MOST + 1]
    selected = list(rows)
    if not selected:
        raise Invalid("No node has all of these.", fields={"query": ["No node matches now."]})
    if len(selected) > MOST:
        raise Invalid(f"More than {MOST:,} nodes match; add a filter.", fields={"query": ["Too many nodes."]})
    per_cluster = Counter(cluster_id for *_, cluster_id in selected)
    clusters = [(cluster, per_cluster[cluster.pk]) for cluster in Cluster.objects.filter(pk__in=list(per_cluster))]
    ids = [pk for pk, *_ in selected]
    targets, loose = _targets(ids, list(per_cluster))
    seal = hashlib.sha256("\n".join(sorted(f"{cluster_id}/{uid}" for _, uid, _, cluster_id in selected)).encode())
    names = [name for _, _, name, _ in selected[:SHOWN]]
    return NodeSelection(narrowed.query, len(selected), seal.hexdigest(), names, clusters, targets, loose, ids)


def _targets(ids: Sequence[int], cluster_ids: Sequence[object]) -> tuple[list[PoolTarget], int]:
    """Assigned pools among them, and how many nodes no such pool holds. Two queries."""
    chosen = frozenset(ids)
    in_pools: set[int] = set()
    out = []
    assigned = Assignment.objects.filter(pool__cluster__in=list(cluster_ids)).select_related(
        "pool__cluster", "revision__profile"
    )
    rows = list(assigned.order_by("pool__cluster__name", "pool__name"))
    members = keys_of({row.pk: pools.matching(row.pool) for row in rows})
    for assignment in rows:
        if own := chosen & members[assignment.pk]:
            out.append(PoolTarget(assignment, len(own)))
            in_pools |= own
    return out, len(chosen - in_pools)


def reason_not_to(verb: str, selection: NodeSelection, user: User) -> str:
    """Empty: this person may do it to all of them. Else one sentence; there is no doing half of it."""
    for cluster, _ in selection.clusters:
        is_operator = may(user, Role.OPERATOR, cluster.scopes)
        if verb == REFRESH and not is_operator and not may(user, Role.ADMIN, cluster.scopes):
            return f"This needs the role operator or admin for {cluster}."
        if verb == PLAN and not is_operator:
            return f"This needs the role operator for {cluster}."
    if verb == PLAN and not selection.targets:
        return "None of these nodes is in a pool with a target; plan a revision for their pool first."
    return ""


def check_confirmed(verb: str, selection: NodeSelection, *, count: int, digest: str, by: User) -> None:
    """Check that it may be done now. Raises Changed, NotAllowed."""
    if (count, digest) != (selection.count, selection.digest):
        raise SelectionChanged(
            f"You confirmed {count:,} node{'' if count == 1 else 's'}; the filter now has {selection.count:,}, "
            "or others. Nothing was done: check the list and confirm again."
        )
    if reason := reason_not_to(verb, selection, by):
        raise NotAllowed(reason)


def plan_selection(selection: NodeSelection, *, count: int, digest: str, by: User) -> BulkResult:
    """A draft plan to its own target for each pool concerned. A plan writes nothing; each says what it refuses."""
    check_confirmed(PLAN, selection, count=count, digest=digest, by=by)
    made: list[Plan] = []
    queued: list[PlanRequest] = []
    rest = plan_requests.WITHIN_REQUEST
    left: list[tuple[str, str]] = []
    for target in selection.targets:
        pool, revision = target.assignment.pool, target.assignment.revision
        message = f"Back to {revision}: {target.chosen} of the nodes chosen by {selection.query}"[:300]
        try:
            before = pools.matching(pool).count()
            answer = plan_requests.submit(
                key="", pool=pool, revision=revision, strategy=parse({}), by=by, message=message, within=rest
            )
            if isinstance(answer, plan_requests.PendingPlan):
                queued.append(answer.request)
            else:
                rest -= before
                made.append(answer.plan)
        except Refusal as refusal:
            left.append((str(pool), str(refusal)))
    _note(PLAN, selection, by, {"plans": [str(row) for row in made], "queued": [str(row.pool) for row in queued]})
    return BulkResult(plans=made, queued=queued, left=left)


def refresh_selection(selection: NodeSelection, *, count: int, digest: str, by: User) -> BulkResult:
    """Record the refresh and return the clusters to read again; the caller queues it, for this module sends nothing."""
    check_confirmed(REFRESH, selection, count=count, digest=digest, by=by)
    clusters = [cluster for cluster, _ in selection.clusters]
    _note(REFRESH, selection, by, {"clusters": [str(cluster) for cluster in clusters]})
    return BulkResult(clusters=clusters)


def _note(verb: str, selection: NodeSelection, by: User, more: Mapping[str, object]) -> None:
    after = {"query": selection.query, "nodes": selection.count, "digest": selection.digest, **more}
    record(by=by, action=f"nodes.{verb}", target="nodes:filter", target_name=selection.query, after=after)
