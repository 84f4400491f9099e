"""Ownership of a component that several pools of a cluster want: one of them, its owner, decides about it.

The pool whose target wanted it first owns it, and keeps it through every later revision that wants it. Its
plans change it, and say which other pools want it otherwise afterwards; plans of the others that want it otherwise are
blocked. When the owner's target wants it no more, or is taken back, the pool that has wanted it longest comes next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db import transaction

from clusters.models import Cluster, Pool
from common.errors import WrongState
from compliance.models import Assignment
from jobs.forecast.findings import PlanFinding
from jobs.models import ComponentOwner, Ledger, Plan, PlanComponent
from profiles.content.cluster import WantedComponent

SHOWN = 3


@dataclass(slots=True)
class ComponentDemand:
    """Demands of one cluster's pools for one component."""

    owner: Pool
    of_pools: dict[Pool, WantedComponent] = field(default_factory=dict)
    """Those whose target has stood longest first."""

    def others(self, pool: Pool) -> list[tuple[Pool, WantedComponent]]:
        return [(other, wish) for other, wish in self.of_pools.items() if other != pool]


def component_demands(cluster: Cluster) -> dict[str, ComponentDemand]:
    """Return, by component, every one that a target of this cluster wants."""
    out: dict[str, ComponentDemand] = {}
    rows = Assignment.objects.filter(pool__cluster=cluster).select_related("pool", "revision").order_by("set_at", "pk")
    for row in rows:
        for wish in row.revision.flat.components:
            out.setdefault(wish.name, ComponentDemand(row.pool)).of_pools[row.pool] = wish
    for name, pool in ComponentOwner.objects.filter(cluster=cluster).values_list("component", "pool"):
        wishes = out.get(name)
        known = {other.pk: other for other in wishes.of_pools} if wishes else {}
        if wishes and pool in known:
            wishes.owner = known[pool]
    return out


def owners() -> Iterator[tuple[UUID, str, int]]:
    """Yield the owners of every cluster's components, for the rooms below (common.hooks.component_owners)."""
    yield from ComponentOwner.objects.values_list("cluster_id", "component", "pool_id")


def store_owners(cluster: Cluster) -> None:
    """A target was set or taken back: write down who owns what now. In the caller's transaction."""
    Ledger.objects.get_or_create(cluster=cluster)
    with transaction.atomic():
        Ledger.objects.select_for_update().get(cluster=cluster)  # two rollouts may begin at once
        there = component_demands(cluster)
        before = {row.component: row for row in ComponentOwner.objects.filter(cluster=cluster)}
        gone = [row.pk for name, row in before.items() if name not in there or there[name].owner.pk != row.pool_id]
        ComponentOwner.objects.filter(pk__in=gone).delete()
        new = [name for name in there if name not in before or before[name].pk in gone]
        ComponentOwner.objects.bulk_create(
            ComponentOwner(cluster=cluster, component=name, pool=there[name].owner) for name in new
        )


def refuse_start(plan: Plan) -> None:
    """Raises WrongState where a component of the plan has become another pool's since."""
    rows = plan.components.filter(left_out="", kind=PlanComponent.Kind.RELEASE)
    names = list(rows.values_list("component", flat=True))
    there = component_demands(plan.cluster) if names else {}
    for name in names:
        if name in there and there[name].owner != plan.pool:
            raise WrongState(
                f"{there[name].owner.name} owns {name} in {plan.cluster} since this plan was made. Plan again."
            )


def contended_finding(
    cluster: Cluster, component: WantedComponent, owner: Pool, theirs: WantedComponent
) -> PlanFinding:
    return PlanFinding(
        "block",
        "component-owner",
        f"{component.name} is {owner.name}'s in {cluster}, and configured differently there",
        f"{owner.name} wanted it first, as {_describe_wanted(theirs)}; this revision wants "
        f"{_describe_wanted(component)}. Change it with a plan for {owner.name}, have this revision want the same, or "
        "take it out of one of them.",
    )


def differing_findings(component: WantedComponent, others: Sequence[tuple[Pool, WantedComponent]]) -> list[PlanFinding]:
    """Other pools that want the component of its owner differently from what the owner's plan makes of it."""
    differing = [pool.name for pool, wish in others if wish.meaning != component.meaning]
    if not differing:
        return []
    if component.is_gone:
        title = f"{component.name} is still wanted by {', '.join(differing[:SHOWN])}"
        detail = "It is not removed while the target of another pool wants it. Change that target first."
        return [PlanFinding("block", "removal-wanted", title, detail)]
    named = ", ".join(differing[:SHOWN]) + (f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else "")
    return [
        PlanFinding(
            "warn",
            "component-shared",
            f"{component.name} changes for {named}, too, whose target configures it differently",
            f"This pool owns it, so this plan decides: afterwards it is {_describe_wanted(component)} for all of them. "
            "Have their profiles want the same.",
        )
    ]


def dropped_findings(
    pool: Pool, wanted: Sequence[WantedComponent], there: dict[str, ComponentDemand]
) -> list[PlanFinding]:
    """Components that the pool's present revision wants and the new one does not: they stay."""
    names = {component.name for component in wanted}
    out = []
    for name, wishes in there.items():
        if pool not in wishes.of_pools or name in names or wishes.of_pools[pool].is_gone:
            continue
        detail = f"To have it removed by a reviewed plan, write `{name}: {{remove: true}}` under components."
        if others := wishes.others(pool):
            is_owner = wishes.owner == pool
            heir = others[0][0] if is_owner else wishes.owner
            detail = f"{heir.name} wants it, too, and owns it{' from then on' if is_owner else ''}."
        title = f"{name} is not in this revision, and stays installed"
        out.append(PlanFinding("note", "component-dropped", title, detail))
    return out


def _describe_wanted(wanted: WantedComponent) -> str:
    if wanted.is_gone:
        return "removed"
    presets = f" with {', '.join(wanted.presets)}" if wanted.presets else ""
    values = " and values of its own" if wanted.values else ""
    return f"{wanted.version or 'the newest tested version'}{presets}{values}"
