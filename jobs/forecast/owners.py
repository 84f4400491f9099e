"""Teams that own what a plan touches: those of the day it was made, which its digest covers, and those of now.

Both count. A pool that is given to a team after an approval needs that team, too, and a team that gives a pool away
keeps its say on the plans that were made before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from accounts.people import owners
from clusters.models import Pool
from clusters.services.pools import matching
from jobs.models import Plan, PlanComponent, PlanNode


@dataclass(frozen=True, slots=True, order=True)
class PlanOwner:
    name: str
    team: int
    """Its key."""
    is_gone: bool = False
    """The team was removed since; no one can approve for it."""


def owners_of(plans: Sequence[Plan], names: Mapping[int, str] | None = None) -> dict[UUID, list[PlanOwner]]:
    """Return the owners of each plan, by name. `names`: of the teams that there are, where they were read already."""
    teams = touched_teams(plans)
    frozen = {plan.pk: {int(key): str(name) for key, name in (plan.owners or {}).items()} for plan in plans}
    if not any(teams.values()) and not any(frozen.values()):
        return {plan.pk: [] for plan in plans}
    names = owners.team_names() if names is None else names
    return {
        plan.pk: sorted(
            PlanOwner(
                names.get(team) or frozen[plan.pk].get(team) or owners.named(team, names), team, team not in names
            )
            for team in teams[plan.pk] | frozen[plan.pk].keys()
        )
        for plan in plans
    }


def touched_teams(plans: Sequence[Plan]) -> dict[UUID, set[int]]:
    """Return, by plan, the keys of the teams that own now its pool, its profile, or a pool of which it changes or
    disturbs a node. A query or two, and as many as there are owned pools in these clusters."""
    teams = {plan.pk: {plan.pool.owner_team, plan.revision.profile.owner_team} - {None} for plan in plans}
    owned = list(Pool.objects.filter(cluster__in={plan.cluster_id for plan in plans}, owner_team__isnull=False))
    disturbed = _disturbed(plans) if owned else {}
    for pool in owned:
        others = [
            plan for plan in plans if plan.cluster_id == pool.cluster_id and pool.owner_team not in teams[plan.pk]
        ]
        for pk in _plans_in(pool, others, disturbed):
            teams[pk].add(pool.owner_team)
    return {pk: {team for team in keys if team is not None} for pk, keys in teams.items()}


def _plans_in(pool: Pool, plans: Collection[Plan], disturbed: Mapping[UUID, set[str]]) -> set[UUID]:
    """Return which of these plans change or disturb a node that the pool selects now."""
    if not plans:
        return set()
    nodes = matching(pool).order_by()
    changed = PlanNode.objects.filter(plan__in=plans, left_out="", node__in=nodes.values("pk")).order_by()
    touching = set(changed.values_list("plan_id", flat=True).distinct())
    if rest := [plan for plan in plans if plan.pk not in touching and plan.pk in disturbed]:
        names = set(nodes.values_list("name", flat=True))
        touching |= {plan.pk for plan in rest if not names.isdisjoint(disturbed[plan.pk])}
    return touching


def _disturbed(plans: Sequence[Plan]) -> dict[UUID, set[str]]:
    """Return the names of the nodes that components and policy objects of each plan disturb."""
    names: dict[UUID, set[str]] = defaultdict(set)
    rows = PlanComponent.objects.filter(plan__in=plans, left_out="").exclude(hit=[]).values_list("plan", "hit")
    for pk, hit in rows:
        names[pk].update(hit)
    return names
