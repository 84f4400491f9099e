"""One node at a time, on request, and which nodes a pool holds."""

from __future__ import annotations

from django.db.models import QuerySet

from accounts.models import User
from clusters.connection import registry
from clusters.fleet import FleetError, NotFound
from clusters.inventory import store
from clusters.models import Node, Pool
from clusters.services import label_selectors, lifecycle
from common.errors import WrongState


def refresh(node: Node, *, by: User) -> None:
    """Read node and NodeTuning uncached into their rows. Raises NotAllowed, WrongState (it does not answer)."""
    lifecycle.may_refresh(node.cluster, by)
    try:
        fleet = registry.connect(node.cluster)
        try:
            store.observe_nodes(node.cluster, [fleet.node(node.name)], complete=False)
        except NotFound:
            gone = {"metadata": {"uid": node.uid, "name": node.name}}
            store.observe_nodes(node.cluster, [], complete=False, deleted=[gone])
            return
        try:
            store.observe_tunings(node.cluster, [fleet.tuning(node.name)], complete=False)
        except NotFound:
            pass  # not enrolled yet
    except FleetError as error:
        raise WrongState(f"{node.cluster} could not be queried: {error}") from error


def in_pool(nodes: QuerySet[Node], pool: Pool | None) -> QuerySet[Node]:
    """Those a pool selects; none without a pool, for a filter on something unknown must not show everything."""
    if pool is None:
        return nodes.none()
    return label_selectors.nodes(pool.selector, nodes.filter(cluster=pool.cluster_id))
