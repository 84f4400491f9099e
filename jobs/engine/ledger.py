"""The one place that hands out slots (law 1). One transaction on the cluster's ledger row, so no two hand out the
same place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from clusters.models import Cluster, Node, unavailable_now
from jobs.models import Ledger, PlanNode, Slot, Step


@dataclass(frozen=True, slots=True)
class Places:
    """Who is out of service, as the law counts it."""

    out: frozenset[int]
    """Nodes: unavailable ones that the plan does not list, and those with a slot."""
    unavailable: frozenset[int]
    slots: frozenset[int]
    control_plane: frozenset[int]
    reserved: int = 0
    """Places kept for operators that take nodes out by themselves, beyond those that they have taken already."""

    @property
    def taken(self) -> int:
        return len(self.out) + self.reserved

    def admits(self, node_id: int, budget: int) -> bool:
        """A node already out takes its own place; another needs a free one. Control-plane nodes go one at a time."""
        if node_id in self.control_plane and self.control_plane & (self.unavailable | self.slots) - {node_id}:
            return False
        if node_id in self.slots:
            return True
        if node_id in self.unavailable:
            return len(self.out | {node_id}) + self.reserved <= max(budget, self.taken)
        return self.taken + 1 <= budget

    def taking(self, node_id: int) -> Places:
        return replace(self, out=self.out | {node_id}, slots=self.slots | {node_id})


OPERATORS_AT_WORK = Q(status__in=(Step.Status.APPLYING, Step.Status.VERIFYING)) | Q(
    status=Step.Status.HELD, granted_at__isnull=False
)
"""Steps after whose beginning an operator takes nodes out by itself; one that is held does not stop it."""


def places(cluster_id: UUID, listed: frozenset[int]) -> Places:
    """Counted from rows. `listed` are nodes that the approved plan shows as already unavailable."""
    unavailable = frozenset(Node.objects.filter(cluster_id=cluster_id).unavailable().values_list("pk", flat=True))
    # A node that is gone is out of service no more, whatever became of the step that had its slot (law 9).
    slots = frozenset(Slot.objects.filter(cluster_id=cluster_id, node__gone_at=None).values_list("node_id", flat=True))
    masters = frozenset(
        Node.objects.filter(cluster_id=cluster_id, gone_at=None, is_control_plane=True).values_list("pk", flat=True)
    )
    out = (unavailable - listed) | slots
    return Places(out, unavailable, slots, masters, _reserved(cluster_id, out))


def _reserved(cluster_id: UUID, out: frozenset[int], *, more: Sequence[Step] = ()) -> int:
    """`more`: steps that would begin. An operator's own nodes that are out already are counted as such, not twice."""
    working = Step.objects.of_components().filter(OPERATORS_AT_WORK, rollout__cluster=cluster_id)
    columns = ("plan_component__places", "plan_component__hit")
    found = list(working.filter(plan_component__places__gt=0).values_list(*columns))
    found += [(step.plan_component.places, step.plan_component.hit) for step in more if step.plan_component]
    if not found:
        return 0
    busy = Node.objects.filter(pk__in=out).exclude(driver_upgrade="").values_list("name", flat=True)
    taken = set(busy)
    return sum(max(0, places - len(taken.intersection(hit))) for places, hit in found)


def reserve(steps: Sequence[Step], cluster: Cluster, *, plan_id: UUID, budget: int) -> tuple[set[UUID], Places]:
    """As many places of the budget as their operators may take out at once: all of them, or the step does not begin.

    Runs inside the transaction that also moves the steps: from then on their status is what keeps the places.
    """
    Ledger.objects.get_or_create(cluster=cluster)
    with transaction.atomic():
        Ledger.objects.select_for_update().get(cluster=cluster)
        now_out = places(cluster.pk, _listed(plan_id))
        granted: list[Step] = []
        for step in steps:
            wanted = _reserved(cluster.pk, now_out.out, more=[*granted, step])
            if len(now_out.out) + wanted <= budget:
                granted.append(step)
        return {step.pk for step in granted}, now_out


def _listed(plan_id: UUID) -> frozenset[int]:
    return frozenset(PlanNode.objects.filter(plan_id=plan_id, is_unavailable=True).values_list("node_id", flat=True))


def out_of_service(cluster_id: UUID, plan_id: UUID) -> QuerySet[Node]:
    """Who is out as `places` counts it, with what the plan lists left out: for pages, in one query."""
    listed = PlanNode.objects.filter(plan_id=plan_id, is_unavailable=True, node=OuterRef("pk"))
    slots = Slot.objects.filter(cluster_id=cluster_id, node=OuterRef("pk"))
    rows = Node.objects.filter(gone_at=None).filter(
        Q(cluster_id=cluster_id) & unavailable_now() & ~Exists(listed) | Exists(slots)
    )
    return rows.order_by()


def take(steps: Sequence[Step], cluster: Cluster, *, plan_id: UUID, budget: int) -> tuple[set[UUID], Places]:
    """Slots for as many of these steps as the budget has places, in their order. Returns the steps that have one now.

    Runs inside the transaction that also moves the steps, so that slots and moves are committed together or not at all.
    """
    Ledger.objects.get_or_create(cluster=cluster)
    with transaction.atomic():
        Ledger.objects.select_for_update().get(cluster=cluster)
        listed = _listed(plan_id)
        now_out = places(cluster.pk, listed)
        held = {s.node_id: s for s in Slot.objects.filter(cluster=cluster).select_related("step")}
        granted: set[UUID] = set()
        for step in steps:
            slot = held.get(step.node_key)
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
