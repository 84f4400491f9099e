"""Places where GPUs were held: seconds by node, namespace and day, added in the step that adds to the cost page's rows.

Each group of nodes is one read and one upsert, for any number of pods: a key has no pod in it, and no owner unless a
rule of teams names that owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date
from uuid import UUID

from gpus.models import NodeUse, TeamRules
from gpus.storage import payers
from gpus.storage.accumulator import ClosedFine, instant

Key = tuple[date, str, str, str]
"""Day, node, namespace, owner."""
AT_ONCE = 1000
MOST_NAMED = 4096
"""Nodes in one condition; beyond, the whole day is read. SQLite takes 32,766 values in a statement."""
ACTIVE = 2
"""Of the states of GpuUse, the first two: effective and low."""


def add(cluster_id: UUID, fine: Iterable[ClosedFine]) -> None:
    """Add what was held in these steps. Within the caller's transaction."""
    is_named = _owners_of_rules()
    new: dict[Key, tuple[float, float]] = {}
    for step in fine:
        day = instant(step.start).date()
        for payer, amounts in step.payers.items():
            owner = payers.owner(payer)[:317]
            key = day, step.node[:253], payers.namespace(payer)[:253], owner if is_named(owner) else ""
            held, active = new.get(key, (0.0, 0.0))
            new[key] = held + sum(amounts.states), active + sum(amounts.states[:ACTIVE])
    if not new:
        return
    for key, held, active in _stored(cluster_id, new):
        new[key] = new[key][0] + held, new[key][1] + active
    NodeUse.objects.bulk_create(
        [
            NodeUse(
                cluster_id=cluster_id, day=day, node_name=node, namespace=space, owner=owner, held=held, active=active
            )
            for (day, node, space, owner), (held, active) in sorted(new.items())
        ],
        update_conflicts=True,
        unique_fields=["cluster", "day", "node_name", "namespace", "owner"],
        update_fields=["held", "active"],
        batch_size=AT_ONCE,
    )


def _stored(cluster_id: UUID, new: dict[Key, tuple[float, float]]) -> Iterable[tuple[Key, float, float]]:
    rows = NodeUse.objects.filter(cluster=cluster_id, day__in={day for day, *_ in new})
    nodes = {node for _, node, *_ in new}
    if len(nodes) <= MOST_NAMED:
        rows = rows.filter(node_name__in=nodes)
    columns = ("day", "node_name", "namespace", "owner", "held", "active")
    for *key, held, active in rows.order_by().values_list(*columns):
        if (place := (key[0], key[1], key[2], key[3])) in new:
            yield place, held, active


def _owners_of_rules() -> Callable[[str], bool]:
    """Return whether a rule of teams names an owner, as gpus.showback.rules reads patterns. One query."""
    saved = TeamRules.objects.first()
    patterns = [row["pattern"] for row in saved.rules if row["by"] == "owner"] if saved else []
    names = {pattern for pattern in patterns if not pattern.endswith("*")}
    beginnings = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))
    return lambda owner: bool(owner) and (owner in names or owner.startswith(beginnings))
