"""Distribution of clusters over watch processes: shares by number of nodes, handovers to a process with too few.

A process that is above its share gives clusters to the one with the least, the lightest that fit first: stopped here,
then the lease is the other's, which starts at its next tick. Each such step makes the two more equal, by more than a
margin, so that shares settle and stay: no cluster moves back and forth because a node came or went. The giver has all
processes' rows locked meanwhile, so that two never give to the same one without knowing of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import Count

from clusters.models import Cluster, Node, Watcher
from common.clock import now

C = TypeVar("C")

MARGIN = 0.1
"""Of a share: within it a process keeps what it has, and a hand-over must make two processes more equal by more."""
AT_ONCE = 16
"""Clusters handed over in one turn, so that their new holder has started all long before the leases end."""
FORGOTTEN = timedelta(hours=1)


def hand_over(me: str, mine: Mapping[C, int], loads: Mapping[str, float], total: float) -> list[tuple[C, str]]:
    """List my clusters to hand over, and to whom. `loads` are all live processes', mine too; `total` is their sum."""
    loads, left = dict(loads), dict(mine)
    out: list[tuple[C, str]] = []
    share = total / len(loads)
    while loads[me] > share * (1 + MARGIN) and len(out) < AT_ONCE:
        to = min(loads, key=lambda owner: (loads[owner], owner))
        fitting = [cluster for cluster, weight in left.items() if loads[to] + weight < loads[me] - MARGIN * share]
        if not fitting:
            break
        cluster = min(fitting, key=lambda candidate: (left[candidate], str(candidate)))
        weight = left.pop(cluster)
        loads[me] -= weight
        loads[to] += weight
        out.append((cluster, to))
    return out


def register(owner: str, lease: timedelta) -> None:
    """This process is alive, for as long as a lease lasts."""
    at = now()
    Watcher.objects.update_or_create(owner=owner, defaults={"lease_until": at + lease})
    Watcher.objects.filter(lease_until__lt=at - FORGOTTEN).delete()


def unregister(owner: str) -> None:
    Watcher.objects.filter(owner=owner).delete()


def weights() -> dict[UUID, int]:
    """Return every cluster's weight: its nodes, and one for the work that an empty one is."""
    nodes = dict(Node.objects.present().values_list("cluster").annotate(n=Count("pk")).order_by())
    return {pk: 1 + nodes.get(pk, 0) for pk in Cluster.objects.values_list("pk", flat=True)}


def loads() -> dict[str, dict[UUID, int]]:
    """Return what each live process holds now, and each of these clusters' weights."""
    at, weight_of = now(), weights()
    weights_by_owner: dict[str, dict[UUID, int]] = {
        owner: {} for owner in Watcher.objects.filter(lease_until__gt=at).values_list("owner", flat=True)
    }
    leases = Cluster.objects.filter(watch_lease_until__gt=at).values_list("pk", "watch_owner")
    for pk, owner in leases:
        if owner in weights_by_owner and pk in weight_of:
            weights_by_owner[owner][pk] = weight_of[pk]
    return weights_by_owner


def balance(me: str, mine_before: Collection[UUID], let_go: Callable[[UUID], None], lease: timedelta) -> int:
    """Hand over what is above this process's share. `let_go` ends its watch here first. Returns how many."""
    if Watcher.objects.filter(lease_until__gt=now()).count() < 2:
        return 0
    with transaction.atomic():
        list(Watcher.objects.select_for_update().order_by("owner"))
        by_owner = loads()
        if me not in by_owner:
            return 0
        mine = {pk: weight for pk, weight in by_owner[me].items() if pk in mine_before}
        given = hand_over(
            me, mine, {owner: sum(of.values()) for owner, of in by_owner.items()}, sum(weights().values())
        )
        for pk, to in given:
            let_go(pk)
            Cluster.objects.filter(pk=pk, watch_owner=me).update(watch_owner=to, watch_lease_until=now() + lease)
    return len(given)
