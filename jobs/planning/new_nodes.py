"""Nodes that joined a pool which has a target: Setpoint drafts one plan a pool over just them; a person takes it up.

A draft writes nothing and has no author. It is kept as long as the same nodes wait for the same revision; another set,
or another revision, makes a new draft that takes its place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from audit import services as audit
from clusters.models import Cluster, Node, unavailable_now
from common.clock import now
from common.errors import LostRace, Refusal
from compliance.models import Assignment, NodeStanding
from jobs.forecast.strategy import Strategy
from jobs.models import Plan, PlanNode, Rollout
from jobs.planning import planner

log = logging.getLogger(__name__)

SETTLES = timedelta(seconds=30)
"""An autoscaler adds nodes one after another: a draft for each of them would give way to the next at once."""


def draft() -> list[Plan]:
    """One look at every pool with a target. Returns the plans that were drafted; reads pods where nodes are drained."""
    made = []
    for assignment in _of_interest():
        plan = _draft_for(assignment)
        if plan is not None:
            made.append(plan)
    return made


def _of_interest() -> list[Assignment]:
    """Targets of pools where nodes wait, or a draft exists, on clusters that can be planned for."""
    joined = Exists(NodeStanding.objects.filter(pool=OuterRef("pool"), is_joining=True))
    drafted = Exists(Plan.objects.filter(_ours(), pool=OuterRef("pool")))
    live = Exists(Rollout.objects.live().filter(plan__pool=OuterRef("pool")))
    known = Q(pool__cluster__reach=Cluster.Reach.REACHABLE, pool__cluster__ownership=Cluster.Ownership.OURS)
    rows = Assignment.objects.filter(Q(joined) | Q(drafted), ~Q(live), known)
    return list(rows.select_related("pool__cluster", "revision__profile"))


def _draft_for(assignment: Assignment) -> Plan | None:
    waiting = _waiting(assignment)
    drafts = _drafts(assignment)
    standing = next(
        (d for d in drafts if d.revision_id == assignment.revision_id and _nodes_of(d) == set(waiting)), None
    )
    if standing is not None:
        _withdraw((d for d in drafts if d.pk != standing.pk), standing)
        return None
    if not waiting:
        _withdraw(drafts, None)
        return None
    if any(since > now() - SETTLES for since in waiting.values()):
        return None
    try:
        plan = _make(assignment, list(waiting))
    except Refusal as refusal:  # stale rows, unreadable pods: looked at again with the next beat
        log.info("no plan is drafted for nodes that joined %s: %s", assignment.pool, refusal)
        return None
    _withdraw(drafts, plan)
    return plan


def _waiting(assignment: Assignment) -> dict[int, Any]:
    """Return the nodes that joined and can be tuned now, and since when.
    Nodes that another open plan is about are left out.
    """
    nodes = Node.objects.present().filter(standing__pool=assignment.pool_id, standing__is_joining=True)
    nodes = nodes.heard().exclude(unavailable_now()).filter(tuning__protocol__gt=0, tuning__malformed="")
    theirs = Plan.objects.open().filter(pool=assignment.pool_id).exclude(_ours())
    nodes = nodes.exclude(pk__in=PlanNode.objects.filter(plan__in=theirs, left_out="").values("node"))
    return dict(nodes.values_list("pk", "standing__since"))


def _ours() -> Q:
    """Match drafts made by Setpoint and never taken up: once approval is asked for, a plan is that person's."""
    return Q(status=Plan.Status.DRAFT, created_by=None, summary__drafted=planner.DRAFTED)


def _drafts(assignment: Assignment) -> list[Plan]:
    in_time = Plan.objects.in_time().filter(_ours(), pool=assignment.pool_id)
    return list(in_time.select_related("cluster").order_by("-number"))


def _nodes_of(plan: Plan) -> set[int]:
    return set(plan.nodes.values_list("node_id", flat=True))


def _make(assignment: Assignment, node_ids: list[int]) -> Plan:
    """Make a plan as careful as the pool's last rollout; without its consents, which were about other nodes."""
    last = Plan.objects.filter(rollout=assignment.rollout_id).first() if assignment.rollout_id else None
    strategy = Strategy.from_json(last.strategy) if last else Strategy()
    strategy = replace(
        strategy,
        enforce=assignment.mode == Assignment.Mode.ENFORCE,
        delete_empty_dir_data=False,
        delete_unmanaged_pods=False,
        include_unavailable=False,
        include_joining=False,
    )
    count = len(node_ids)
    return planner.make(
        pool=assignment.pool,
        revision=assignment.revision,
        strategy=strategy,
        by=None,
        joined=frozenset(node_ids),
        message=f"{count} node{'' if count == 1 else 's'} joined {assignment.pool.name}: this brings "
        f"{'it' if count == 1 else 'them'} to {assignment.revision}.",
    )


def _withdraw(drafts: Iterable[Plan], successor: Plan | None) -> None:
    for plan in drafts:
        try:
            with transaction.atomic():
                plan.move(Plan.Status.WITHDRAWN, superseded_by=successor)
                audit.record(
                    by=None,
                    action="plan.supersede" if successor else "plan.withdraw",
                    target=f"plan:{plan.pk}",
                    target_name=str(plan),
                    cluster_id=plan.cluster_id,
                    message=f"{successor} replaces it." if successor else "Its nodes no longer wait for it.",
                    after={"digest": plan.digest, "status": str(plan.status)},
                )
        except LostRace:  # a person asked for its approval a moment ago: it is theirs now
            continue
