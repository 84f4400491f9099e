"""Periodic inspection of a cluster: its identity, its owner, the parts of deploy/ it has, its agents' Leases."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.conf import settings

from clusters.fleet import Equipment, Fleet, ObjectKind, Page, Untrusted
from clusters.inventory import reachability, store
from clusters.models import Cluster
from common.clock import now


def check_identity(cluster: Cluster, fleet: Fleet) -> str:
    """The version of the cluster that answers. Raises Untrusted when another one does, FleetError."""
    identity = fleet.identify()
    if identity.uid != cluster.uid:
        raise Untrusted(
            f"Another cluster answers at {cluster.server}: its kube-system namespace has the UID {identity.uid}, "
            f"that of {cluster} is {cluster.uid}."
        )
    return identity.version


def truth(cluster: Cluster, fleet: Fleet, kind: ObjectKind) -> Page:
    """All objects of a kind that may have rows (store.KEEP): from the API server's cache, or past it when the cache
    would end or set back a row.

    Raises FleetError.
    """
    keep = store.KEEP.get(kind)
    page = fleet.list(kind, keep=keep)
    return fleet.list(kind, fresh=True, keep=keep) if store.doubts(cluster, kind, page.items) else page


def refresh(cluster: Cluster, fleet: Fleet) -> None:
    """Read the whole cluster into rows now. For callers that cannot wait for the watch. Raises FleetError.

    Nodes first: agents' objects and pods are attached to them.
    """
    at = now()
    check_identity(cluster, fleet)
    for kind, observe in store.OBSERVE.items():
        asked_at = now()
        page = truth(cluster, fleet, kind)
        observe(cluster, page.items, complete=True, at=asked_at, version=page.resource_version)
    hear(cluster, fleet)
    reachability.seen_at(cluster, at)
    reachability.reached(cluster, at=at)


def hear(cluster: Cluster, fleet: Fleet) -> None:
    """List the agents' Leases. Raises FleetError."""
    at = now()
    store.observe_leases(cluster, fleet.list("leases").items, at=at)


def inspect(cluster: Cluster, fleet: Fleet) -> None:
    """Version, ownership and equipment, written where they differ. Raises FleetError."""
    observed: dict[str, Any] = {
        "kubernetes_version": check_identity(cluster, fleet)[:40],
        "equipment": equipment_json(fleet.equipment()),
        **ownership(fleet.installation()),
    }
    changed = {name: value for name, value in observed.items() if getattr(cluster, name) != value}
    if changed:
        Cluster.objects.filter(pk=cluster.pk).update(**changed)
        for name, value in changed.items():
            setattr(cluster, name, value)


def ownership(mark: str | None) -> dict[str, str]:
    """Row fields for the installation id found in a cluster."""
    ours = mark == settings.SETPOINT_INSTALLATION
    state = Cluster.Ownership.OURS if ours else Cluster.Ownership.FOREIGN if mark else Cluster.Ownership.UNCLAIMED
    return {"ownership": state, "ownership_mark": (mark or "")[:64]}


def equipment_json(equipment: Equipment) -> dict[str, Any]:
    return asdict(equipment) | {"missing": list(equipment.missing)}
