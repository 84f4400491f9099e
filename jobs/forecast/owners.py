"""Teams that own what a plan touches: those of the day it was made, which its digest covers, and those of now.

Both count. A pool that is given to a team after an approval needs that team, too, and a team that gives a pool away
keeps its say on the plans that were made before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import Q

from accounts.people import owners
from clusters.models import Node, Pool
from clusters.objects import selects
from jobs.models import Plan, PlanComponent, PlanNode


@dataclass(frozen=True, slots=True, order=True)
class PlanOwner:
    name: str
    team: int
    """Its key."""
    is_gone: bool = False
    """The team was removed since; no one can approve for it."""


_KEPT: ContextVar[_KeptOwners | None] = ContextVar("owners of plans", default=None)


class _KeptOwners:
    """The owners of some plans, read for all of them when the first is asked for."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self.keys = {plan.pk for plan in plans}

    @cached_property
    def names(self) -> dict[int, str]:
        return owners.team_names()

    @cached_property
    def rows(self) -> dict[UUID, list[PlanOwner]]:
        return _read(self._plans)


@contextmanager
def kept(plans: Sequence[Plan]) -> Iterator[None]:
    """Read the owners of these plans at most once in what is done within: one answer, by one state of the database."""
    token = _KEPT.set(_KeptOwners(plans))
    try:
        yield
    finally:
        _KEPT.reset(token)


def team_names() -> dict[int, str]:
    """Return the teams that there are, by key; those that were read already where owners are kept."""
    kept_rows = _KEPT.get()
    return kept_rows.names if kept_rows else owners.team_names()


def owners_of(plans: Sequence[Plan]) -> dict[UUID, list[PlanOwner]]:
    """Return the owners of each plan, by name."""
    kept_rows = _KEPT.get()
    if kept_rows and kept_rows.keys.issuperset(plan.pk for plan in plans):
        return {plan.pk: kept_rows.rows[plan.pk] for plan in plans}
    return _read(plans)


def _read(plans: Sequence[Plan]) -> dict[UUID, list[PlanOwner]]:
    teams = touched_teams(plans)
    frozen = {plan.pk: named_when_planned(plan) for plan in plans}
    if not any(teams.values()) and not any(frozen.values()):
        return {plan.pk: [] for plan in plans}
    names = team_names()
    return {
        plan.pk: sorted(
            PlanOwner(
                names.get(team) or frozen[plan.pk].get(team) or owners.named(team, names), team, team not in names
            )
            for team in teams[plan.pk] | frozen[plan.pk].keys()
        )
        for plan in plans
    }


def named_when_planned(plan: Plan) -> dict[int, str]:
    """Return the owners of the day the plan was made, by key. What is no key was written outside Setpoint: the digest,
    which covers all of it, tells of that."""
    there = plan.owners if isinstance(plan.owners, dict) else {}
    return {int(key): str(name) for key, name in there.items() if str(key).isdecimal() and len(key) < 19}


def touched_teams(plans: Sequence[Plan]) -> dict[UUID, set[int]]:
    """Return, by plan, the keys of the teams that own now its pool, its profile, or a pool of which it changes or
    disturbs a node. As many queries for any number of plans and of owned pools."""
    teams = {plan.pk: {plan.pool.owner_team, plan.revision.profile.owner_team} - {None} for plan in plans}
    owned = list(Pool.objects.filter(cluster__in={plan.cluster_id for plan in plans}, owner_team__isnull=False))
    kinds = _kinds_of_nodes(plans, owned) if owned else {}
    matched: dict[tuple[int, _Kind], bool] = {}
    for plan in plans:
        for pool in owned:
            if plan.cluster_id != pool.cluster_id or pool.owner_team in teams[plan.pk]:
                continue
            for kind in kinds.get(plan.pk, ()):
                if (pool.pk, kind) not in matched:
                    matched[pool.pk, kind] = selects(pool.selector, dict(kind))
                if matched[pool.pk, kind]:
                    teams[plan.pk].add(pool.owner_team)
                    break
    return {pk: {team for team in keys if team is not None} for pk, keys in teams.items()}


def teams_of_nodes(cluster: UUID, nodes: Sequence[Node]) -> dict[int, set[int]]:
    """Return, by node, the keys of the teams that own a pool which selects it. One query."""
    owned = list(Pool.objects.filter(cluster=cluster, owner_team__isnull=False))
    return {
        node.pk: {pool.owner_team for pool in owned if pool.owner_team and selects(pool.selector, node.labels)}
        for node in nodes
    }


_Kind = tuple[tuple[str, str], ...]
"""The labels of a node that selectors name: many nodes are of few kinds."""


def _kinds_of_nodes(plans: Sequence[Plan], owned: Sequence[Pool]) -> dict[UUID, set[_Kind]]:
    """Return, by plan, the kinds of the present nodes that it changes, or that its components disturb."""
    keys = {key for pool in owned for key in _keys_of(pool.selector)}
    changed = PlanNode.objects.filter(plan__in=plans, left_out="").order_by()
    disturbed = _disturbed(plans)
    touched = Q(pk__in=changed.values("node"))
    for cluster, names in _by_cluster(plans, disturbed).items():
        touched |= Q(cluster=cluster, name__in=names)
    by_key: dict[int, _Kind] = {}
    by_name: dict[tuple[UUID, str], _Kind] = {}
    rows = Node.objects.present().filter(touched).order_by().values_list("pk", "cluster_id", "name", "labels")
    for pk, cluster_id, name, labels in rows:
        kind = tuple(sorted((key, labels[key]) for key in keys & labels.keys()))
        by_key[pk] = by_name[cluster_id, name] = kind
    kinds: dict[UUID, set[_Kind]] = defaultdict(set)
    for plan_id, node_id in changed.values_list("plan_id", "node_id"):
        if node_id in by_key:
            kinds[plan_id].add(by_key[node_id])
    for plan in plans:
        there = ((plan.cluster_id, name) for name in disturbed.get(plan.pk, ()))
        kinds[plan.pk].update(by_name[place] for place in there if place in by_name)
    return kinds


def _keys_of(selector: Mapping[str, Any]) -> set[str]:
    return {*(selector.get("matchLabels") or ()), *(item["key"] for item in selector.get("matchExpressions") or ())}


def _by_cluster(plans: Sequence[Plan], disturbed: Mapping[UUID, set[str]]) -> dict[UUID, set[str]]:
    names: dict[UUID, set[str]] = defaultdict(set)
    for plan in plans:
        if plan.pk in disturbed:
            names[plan.cluster_id] |= disturbed[plan.pk]
    return names


def _disturbed(plans: Sequence[Plan]) -> dict[UUID, set[str]]:
    """Return the names of the nodes that components and policy objects of each plan disturb."""
    names: dict[UUID, set[str]] = defaultdict(set)
    rows = PlanComponent.objects.filter(plan__in=plans, left_out="").exclude(hit=[]).values_list("plan", "hit")
    for pk, hit in rows:
        names[pk].update(hit)
    return names
