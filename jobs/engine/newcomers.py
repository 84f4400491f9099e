"""Nodes that join the pool while a rollout runs, where the plan takes them: live changes only, as a last batch.

The plan's digest names no such node; it covers the option and the newest node that was known when planning. So every
row about one is judged here, when it is made and again before each write: nothing else may come in by this door.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from django.db import IntegrityError, transaction
from django.db.models import Max

from accounts.people import owners as team_owners
from clusters.models import Node
from clusters.objects import selects
from jobs.diffs.changes import Changes
from jobs.diffs.node_diff import Target, is_mild, is_within
from jobs.engine import claims, preconditions
from jobs.engine.commit import deadline_for
from jobs.engine.event_log import log
from jobs.forecast import owners
from jobs.forecast.strategy import Strategy
from jobs.models import ChangeSet, Plan, PlanNode, Rollout, Step
from jobs.planning import comparison, digests

LEFT_PENDING = "It joined while {rollout} ran and {needs}. It stays pending; a plan of its own is drafted for it."


def admit(rollout: Rollout, strategy: Strategy) -> int:
    """Steps for nodes that joined since the plan was made. Returns how many came.

    One query where none did. A node that is not Ready, or whose agent has not answered, is checked again next time.
    """
    newest = digests.newest_key_when_planned(rollout.plan)
    if newest is None or rollout.status != Rollout.Status.RUNNING:
        return 0
    waiting = _unknown(rollout.plan, newest)
    if not waiting or preconditions.altered_reason(rollout):
        return 0
    plan = rollout.plan
    target = Target.of(plan.revision.content)
    ready = replace(strategy, include_unavailable=False)  # that consent was about nodes that the approvers saw
    draft = comparison.compare_nodes(rollout.cluster, waiting, plan.revision, target, ready)
    if not draft.candidates:
        return 0
    by_pk = {node.pk: node for node in waiting}
    strangers = _strangers(plan, waiting)
    rows = []
    for candidate in draft.candidates:
        changes = draft.changes[candidate.node_id]
        node = by_pk[candidate.node_id]
        row = PlanNode(plan=plan, node=node, uid=node.uid, name=node.name, gpus=node.gpu_count)
        row.gpu_pods = len(candidate.gpu_pods)
        if needs := _beyond(changes, target, strategy) or strangers.get(candidate.node_id, ""):
            row.left_out = LEFT_PENDING.format(rollout=rollout, needs=needs)
        else:
            row.change_set_id, row.worst_class = changes.digest, changes.worst_class
        rows.append(row)
    try:
        return _store(rollout, rows, list(draft.changes.values()), strategy)
    except IntegrityError:  # another rollout took one of them a moment ago
        return 0


def _unknown(plan: Plan, newest: int) -> list[Node]:
    """Return nodes of the pool that were not known when planning, were never changed, and are part of no live step."""
    rows = Node.objects.present().filter(cluster=plan.cluster_id, pk__gt=newest, standing__pool=plan.pool_id)
    rows = rows.filter(expectation__revision=None).exclude(pk__in=plan.nodes.values("node"))
    rows = rows.exclude(pk__in=Step.objects.filter(is_live=True, node__cluster=plan.cluster_id).values("node"))
    unchanged = rows.select_related("tuning").order_by("name")[: claims.SET_SIZE]
    return [node for node in unchanged if selects(plan.selector, node.labels)]


def _strangers(plan: Plan, nodes: Sequence[Node]) -> dict[int, str]:
    """Return, by node, why the plan's approvals do not cover it: a team owns a pool of it that the plan touched
    nothing of, so that no one asked it."""
    teams = owners.teams_of_nodes(plan.cluster_id, nodes)
    if not any(teams.values()):
        return {}
    covered = {owner.team for owner in owners.owners_of([plan])[plan.pk]}
    names = owners.team_names()
    return {
        pk: f"is in a pool of {team_owners.named(min(others), names)}, which is not an owner of this plan"
        for pk, keys in teams.items()
        if (others := keys - covered)
    }


def _beyond(changes: Changes, target: Target, strategy: Strategy) -> str:
    """Return what the option does not cover; empty when it covers everything that this node needs."""
    if not all(map(is_mild, changes.items)):
        return f"needs more than a live write ({changes.worst_class.replace('-', ' ')})"
    if not is_within(changes, target, enforce=strategy.enforce):
        return "has settings of an earlier revision to revert"
    return ""


@transaction.atomic
def _store(rollout: Rollout, rows: list[PlanNode], changes: Sequence[Changes], strategy: Strategy) -> int:
    """Store the rows under the rollout's row lock, before any step as everywhere: a second worker finds them."""
    plan = rollout.plan
    locked = Rollout.objects.select_for_update(no_key=True).values_list("status", "version").get(pk=rollout.pk)
    there = set(plan.nodes.filter(node__in=[r.node_id for r in rows]).values_list("node_id", flat=True))
    rows = [row for row in rows if row.node_id not in there]
    if locked != (rollout.status, rollout.version) or not rows:
        return 0
    ChangeSet.objects.bulk_create(
        [ChangeSet(pk=c.digest, content=c.to_json(), worst_class=c.worst_class) for c in changes], ignore_conflicts=True
    )
    last = rollout.steps.aggregate(position=Max("position"))["position"] or 0
    for place, row in enumerate(rows, last + 1):
        row.position = place
    PlanNode.objects.bulk_create(rows, batch_size=500)
    batch = newcomers_batch(plan)
    steps = [
        Step(
            rollout=rollout, plan_node=row, node_id=row.node_id, node_uid=row.uid, node_name=row.name, batch=batch,
            position=row.position, worst_class=row.worst_class,
        )
        for row in rows
        if not row.left_out
    ]  # fmt: skip
    for step in steps:
        step.deadline_at = deadline_for(step, strategy)
    Step.objects.bulk_create(steps, batch_size=500)
    rollout.put()  # a worker that is just ending the rollout loses the race
    for step in steps:
        log(rollout, f"{step.node_name} joined the pool: it follows in batch {batch}.", step=step)
    for row in rows:
        if row.left_out:
            log(rollout, f"{row.name}: {row.left_out}", "warn")
    return len(steps)


def newcomers_batch(plan: Plan) -> int:
    """The number of their batch: after all that were planned."""
    return len(plan.summary.get("batches", ())) + 1
