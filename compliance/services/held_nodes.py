"""Nodes that hold pods off until they are compliant: Setpoint removes their taint, when they are or when time is up.

The kubelet registers with the taint (`registerWithTaints`), so that no pod is there before Setpoint has seen the node.
Only a pool with a time limit decides over it; elsewhere the taint is left alone. The time counts from when Setpoint
first sees the node. Setpoint writes it into the taint's value, by which the node's agent goes while Setpoint is away
(`agent/hold.py`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast

from audit import services as audit
from clusters.connection import registry
from clusters.fleet import Fleet, FleetError, FleetRefused, Taint
from clusters.models import Cluster, Node, Pool
from clusters.objects import selects
from common.clock import now
from compliance.models import ComplianceState, HeldNode
from contract import holds, names

log = logging.getLogger(__name__)


def release() -> int:
    """Look at every held node once, and release those that are compliant or whose time is up; return how many were."""
    minutes = _held()
    _remember(minutes)
    due: dict[UUID, list[HeldNode]] = defaultdict(list)
    known = Node.objects.heard().filter(standing__state=ComplianceState.COMPLIANT, tuning__malformed="")
    compliant = set(known.exclude(hold=None).values_list("pk", flat=True))
    limits: dict[UUID, list[HeldNode]] = defaultdict(list)
    ours = {"node__cluster__reach": Cluster.Reach.REACHABLE, "node__cluster__ownership": Cluster.Ownership.OURS}
    for hold in HeldNode.objects.filter(**ours).select_related("node__cluster").order_by("node__name"):
        if hold.released_at is not None or _decide(hold, is_compliant=hold.pk in compliant):
            due[hold.node.cluster_id].append(hold)
        elif _limit(hold.node) != holds.value_of(hold.minutes):
            limits[hold.node.cluster_id].append(hold)
    for rows in limits.values():
        _write(rows, lambda hold: [Taint(names.UNTUNED_TAINT, holds.value_of(hold.minutes), holds.EFFECT)])
    return sum(_write(rows, lambda _: []) for rows in due.values())


def has_taint(node: Node) -> bool:
    return any(holds.is_hold(taint) for taint in node.taints)


def _limit(node: Node) -> str:
    return next((str(taint.get("value") or "") for taint in node.taints if holds.is_hold(taint)), "")


def _held() -> dict[int, int]:
    """Return the minutes that each node with the taint is held at most, by the node's key."""
    pools: dict[UUID, list[Pool]] = defaultdict(list)
    for pool in Pool.objects.filter(Q(hold_minutes__isnull=False) | Q(owner_team__isnull=False)):
        pools[pool.cluster_id].append(pool)
    nodes = Node.objects.present().filter(cluster__in=list(pools)).alias(taints_text=Cast("taints", TextField()))
    tainted = [node for node in nodes.filter(taints_text__contains=names.UNTUNED_TAINT) if has_taint(node)]
    held = {
        node.pk: [pool.hold_minutes for pool in _deciding(pools[node.cluster_id], node) if pool.hold_minutes]
        for node in tainted
    }
    return {pk: max(minutes) for pk, minutes in held.items() if minutes}


def _deciding(pools: Iterable[Pool], node: Node) -> list[Pool]:
    """Return the pools of a node whose time counts: where teams own some of them, no operator's second pool does."""
    there = [pool for pool in pools if selects(pool.selector, node.labels)]
    return [pool for pool in there if pool.owner_team is not None] or there


def _remember(minutes: Mapping[int, int]) -> None:
    """Keep a row for each held node, and none for others. Writes nothing where nothing changed."""
    known = dict(HeldNode.objects.values_list("pk", "minutes"))
    news = {pk: limit for pk, limit in minutes.items() if known.get(pk) != limit}
    rows = [HeldNode(node_id=pk, minutes=limit) for pk, limit in news.items()]
    HeldNode.objects.bulk_create(rows, update_conflicts=True, unique_fields=["node"], update_fields=["minutes"])
    if over := known.keys() - minutes.keys():
        _record_others(HeldNode.objects.filter(pk__in=over, released_at=None).select_related("node"))
        HeldNode.objects.filter(pk__in=over).delete()


def _record_others(rows: QuerySet[HeldNode]) -> None:
    """Record the nodes whose taint was removed by another than Setpoint, before their rows are forgotten."""
    for hold in rows:
        if not hold.node.gone_at and not has_taint(hold.node):
            when = "after" if hold.ends_at <= now() else "before"
            _record(hold, f"Its taint was removed by its agent or a person, {when} the time of its pool was up.")


def _decide(hold: HeldNode, *, is_compliant: bool) -> bool:
    """Decide whether the node is released now, and record why, before anything is written to the cluster."""
    if is_compliant:
        why = "It is compliant."
    elif hold.ends_at <= now():
        why = f"It is not compliant, and was held for {hold.minutes} minutes, the limit of its pool."
    else:
        return False
    with transaction.atomic():
        if not HeldNode.objects.filter(pk=hold.pk, released_at=None).update(released_at=now()):
            return False  # another worker was faster
        _record(hold, why)
    return True


def _record(hold: HeldNode, why: str) -> None:
    audit.record(
        by=None,
        action="node.release",
        target=f"node:{hold.node.pk}",
        target_name=hold.node.name,
        cluster_id=hold.node.cluster_id,
        message=why,
        before={"taint": names.UNTUNED_TAINT},
        after={"taint": None},
    )


def _write(rows: list[HeldNode], wanted: Callable[[HeldNode], list[Taint]]) -> int:
    """Replace the taint of nodes of one cluster by what is wanted; return of how many it was.

    What fails is tried again at the next look.
    """
    cluster, written = rows[0].node.cluster, 0
    try:
        fleet = registry.connect(cluster)
        for hold in rows:
            written += _retaint(fleet, hold.node, wanted(hold))
    except FleetError as error:  # the next node's would fail as well
        log.warning("the taints of held nodes of %s cannot be changed: %s", cluster, error)
    return written


def _retaint(fleet: Fleet, node: Node, wanted: list[Taint]) -> bool:
    """Replace a node's taint; return whether it was. A refusal is about this node alone: it may have been replaced."""
    try:
        old = Taint(names.UNTUNED_TAINT, "", holds.EFFECT)
        # Never where it is gone meanwhile: a limit must not bring back the hold that another has ended.
        fleet.taint(node.name, node.uid, add=wanted, remove=[old], where=names.UNTUNED_TAINT)
    except FleetRefused as error:
        log.warning("the taint of held node %s cannot be changed: %s", node, error)
        return False
    return True
