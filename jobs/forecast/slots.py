"""The one place that hands out slots (law 1). One transaction on the cluster's ledger row, so no two hand out the
same place.

A cluster has one answer on what is out of service, for every rollout and every page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import BooleanField, Count, Exists, ExpressionWrapper, OuterRef, Q, QuerySet, Subquery

from clusters.models import Cluster, Node, unavailable_now
from clusters.services.lifecycle import MOST_BUDGET
from jobs.diffs.changes import Disruption
from jobs.models import Ledger, PlanNode, Rollout, Slot, Step

TAKE_SLOTS = tuple(each.value for each in Disruption if each.takes_slot)
"""Worst classes of plans that take any: approvers of others saw nothing leave service, and are asked about nothing."""


@dataclass(frozen=True, slots=True)
class OutOfService:
    """Nodes of one cluster that are out of service, as the law counts them."""

    slots: frozenset[int]
    """Nodes that Setpoint holds, or is about to take: never more than the budget."""
    before: frozenset[int]
    """Unavailable without a slot, and listed as such by each plan that is carried out: its approvers saw them."""
    since: frozenset[int]
    """Unavailable without a slot, and not listed by at least one such plan: they take places of the budget."""
    control_plane: frozenset[int]
    allowed: int
    """The cluster's budget, and no more than the approvers of any plan that is carried out saw."""
    gpus: int = 0
    """Of all these nodes."""
    reserved: int = 0
    """Places kept for operators that take nodes out by themselves, beyond those that they have taken already."""

    @property
    def taken(self) -> frozenset[int]:
        """Places of the budget."""
        return self.slots | self.since

    @property
    def total(self) -> int:
        return len(self.slots) + len(self.before) + len(self.since)

    def counts(self) -> dict[str, int]:
        """Return the counts that pages and REST show."""
        return {
            "total": self.total,
            "by_setpoint": len(self.slots),
            "allowed": self.allowed,
            "before": len(self.before),
            "by_others": len(self.since),
            "reserved": self.reserved,
            "gpus": self.gpus,
        }

    def sentence(self, budget: int | None = None) -> str:
        """`8 nodes unavailable: 6 by Setpoint of 6 allowed, 2 before`. `budget`: of one rollout, where it is less."""
        allowed = self.allowed if budget is None else min(budget, self.allowed)
        others = [f"{len(rows)} {word}" for rows, word in ((self.before, "before"), (self.since, "by others")) if rows]
        parts = [f"{len(self.slots)} by Setpoint of {allowed} allowed", *others]
        parts += [f"{self.reserved} more may be taken by an operator"] if self.reserved else []
        return f"{self.total} node{'' if self.total == 1 else 's'} unavailable: {', '.join(parts)}"

    def admits(self, node_id: int, budget: int) -> bool:
        """A node already out takes its own place; another needs a free one. Control-plane nodes go one at a time."""
        allowed = min(budget, self.allowed)
        out = self.slots | self.before | self.since
        if node_id in self.control_plane and self.control_plane & out - {node_id}:
            return False
        if node_id in self.slots:
            return True
        if node_id in self.before | self.since:
            most = max(allowed, len(self.taken) + self.reserved)
            return len(self.slots) < allowed and len(self.taken | {node_id}) + self.reserved <= most
        return len(self.taken) + self.reserved + 1 <= allowed

    def taking(self, node_id: int) -> OutOfService:
        own = frozenset({node_id})
        return replace(self, slots=self.slots | own, before=self.before - own, since=self.since - own)


OPERATORS_AT_WORK = Q(status__in=(Step.Status.APPLYING, Step.Status.VERIFYING)) | Q(
    status=Step.Status.HELD, granted_at__isnull=False
)
"""Steps after whose beginning an operator takes nodes out by itself; one that is held does not stop it."""


def out_of_service(cluster: Cluster, plan_id: UUID | None = None) -> OutOfService:
    """Counted from rows, in two queries, and two more while an operator works.

    `plan_id`: of the plan that asks, which counts among those carried out.
    """
    operators = _at_work().filter(rollout=OuterRef("pk"))
    running = Rollout.objects.filter(cluster=cluster).annotate(has_operator=Exists(operators)).order_by()
    carried_out = Q(status__in=Rollout.CARRIED_OUT, plan__worst_class__in=TAKE_SLOTS) | Q(plan_id=plan_id)
    steps = running.filter(carried_out | Q(has_operator=True)).annotate(
        is_carried_out=ExpressionWrapper(carried_out, output_field=BooleanField())
    )
    columns = ("plan_id", "is_carried_out", "has_operator", "plan__strategy", "plan__summary")
    asking = list(steps.values_list(*columns))
    plans = {pk: raw for pk, is_carried_out, _, *raw in asking if is_carried_out}
    # A node that is gone is out of service no more, also where its step still has the slot (law 9).
    rows = Node.objects.filter(cluster=cluster, gone_at=None).annotate(
        is_held=Exists(Slot.objects.filter(cluster=cluster, node=OuterRef("pk"))),
        is_out=ExpressionWrapper(unavailable_now(), output_field=BooleanField()),
    )
    rows = rows.filter(Q(is_held=True) | Q(is_out=True) | Q(is_control_plane=True))
    listed = PlanNode.objects.filter(plan__in=list(plans), is_unavailable=True, node=OuterRef("pk"))
    count = listed.order_by().values("node").annotate(plans=Count("pk")).values("plans")
    disturbing = rows.annotate(lists=Subquery(count)).order_by()
    slots: set[int] = set()
    before: set[int] = set()
    since: set[int] = set()
    masters: set[int] = set()
    gpus = 0
    for pk, is_held, is_out, is_master, has, lists in disturbing.values_list(
        "pk", "is_held", "is_out", "is_control_plane", "gpu_count", "lists"
    ):
        if is_master:
            masters.add(pk)
        if is_held or is_out:
            (slots if is_held else before if plans and lists == len(plans) else since).add(pk)
            gpus += has
    counted = OutOfService(
        frozenset(slots),
        frozenset(before),
        frozenset(since),
        frozenset(masters),
        min([cluster.budget, *(_approved_budget(strategy, summary) for strategy, summary in plans.values())]),
        gpus,
    )
    if not any(has_operator for _, _, has_operator, *_ in asking):
        return counted
    return replace(counted, reserved=_reserved(cluster.pk, counted.taken))


def _at_work() -> QuerySet[Step]:
    """Steps of components whose operators may take nodes out now."""
    return Step.objects.of_components().filter(OPERATORS_AT_WORK, plan_component__places__gt=0)


def _reserved(cluster_id: UUID, out: frozenset[int], *, more: Sequence[Step] = ()) -> int:
    """`more`: steps that would begin. An operator's own nodes that are out already are counted as such, not twice."""
    working = _at_work().filter(rollout__cluster=cluster_id)
    working_parts = list(working.values_list("plan_component__places", "plan_component__hit"))
    working_parts += [(step.plan_component.places, step.plan_component.hit) for step in more if step.plan_component]
    if not working_parts:
        return 0
    busy = Node.objects.filter(pk__in=out).exclude(driver_upgrade="").values_list("name", flat=True)
    taken = set(busy)
    return sum(max(0, places - len(taken.intersection(hit))) for places, hit in working_parts)


def reserve_places(
    steps: Sequence[Step], cluster: Cluster, *, plan_id: UUID, budget: int
) -> tuple[set[UUID], OutOfService]:
    """Reserve the places of the budget that the operators may take out at once: all of a step's, or none.
    Runs inside the transaction that also moves the steps: from then on their status is what keeps the places.
    """
    Ledger.objects.get_or_create(cluster=cluster)
    with transaction.atomic():
        now_out = out_of_service(_locked(cluster), plan_id)
        granted: list[Step] = []
        for step in steps:
            reserved = _reserved(cluster.pk, now_out.taken, more=[*granted, step])
            if len(now_out.taken) + reserved <= min(budget, now_out.allowed):
                granted.append(step)
        return {step.pk for step in granted}, now_out


def _locked(cluster: Cluster) -> Cluster:
    """Lock the cluster's ledger and return the cluster as it is now: its budget may have been lowered since."""
    locked = Ledger.objects.select_for_update(of=("self",)).select_related("cluster")
    return locked.get(cluster=cluster).cluster


def _approved_budget(strategy: Mapping[str, Any], summary: Mapping[str, Any]) -> int:
    """The cluster's budget that a plan's approvers saw. A strategy that allows less binds only its own rollout."""
    return MOST_BUDGET if strategy.get("budget") else int(summary.get("budget", MOST_BUDGET))


def take_slots(
    steps: Sequence[Step], cluster: Cluster, *, plan_id: UUID, budget: int
) -> tuple[set[UUID], OutOfService]:
    """Slots for as many of these steps as the budget has places, in their order. Returns the steps that have one now.

    Runs inside the transaction that also moves the steps, so that slots and moves are committed together or not at all.
    """
    Ledger.objects.get_or_create(cluster=cluster)
    with transaction.atomic():
        now_out = out_of_service(_locked(cluster), plan_id)
        taken_slots = {s.node_id: s for s in Slot.objects.filter(cluster=cluster).select_related("step")}
        granted: set[UUID] = set()
        for step in steps:
            slot = taken_slots.get(step.node_key)
            if slot is not None:
                # Its own slot from an earlier attempt, or that of a step that rests: the node is out already.
                if slot.step_id == step.pk or not slot.step.is_live:
                    Slot.objects.filter(pk=slot.pk).update(step=step)
                    granted.add(step.pk)
                continue
            if now_out.admits(step.node_key, budget):
                Slot.objects.create(cluster=cluster, node_id=step.node_key, step=step)
                now_out = now_out.taking(step.node_key)
                granted.add(step.pk)
        return granted, now_out
