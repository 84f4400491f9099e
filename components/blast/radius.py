"""The blast of a component that is being prepared: what the cluster is asked for it; `judgment` answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clusters.fleet import FleetRefused
from clusters.kube import discovery
from clusters.kube.apiserver import ApiServer, Call
from clusters.kube.discovery import ServedApis
from clusters.models import Cluster
from components.blast import judgment
from components.blast.ground import Ground
from components.blast.judgment import Scene
from components.catalog.effects import Controller
from components.catalog.entry import Component
from components.plans.diff import Compared
from components.plans.hits import Blast
from components.plans.prepared import Destroyed

_MOST = "500"


def component_blast(  # noqa: PLR0917 — one caller, which has just asked for each of them
    server: ApiServer,
    served: ServedApis,
    cluster: Cluster,
    component: Component,
    place: tuple[str, str],
    compared: Sequence[Compared],
    *,
    action: str,
    destroys: Sequence[Destroyed] = (),
) -> Blast:
    """`place`: release and namespace. Writes nothing; two calls at most. Raises FleetUnavailable."""
    release, namespace = place
    scene = Scene(
        component.effects,
        Ground.of(cluster),
        release,
        daemons=_daemons(server, namespace) if _asks_daemons(component) else (),
        read=lambda controller: read_controller(server, served, controller),
        own={
            (compared_object.wanted.kind, compared_object.wanted.name): compared_object.result
            for compared_object in compared
            if compared_object.result
        },
    )
    gone = [f"every {kind.kind}" for kind in destroys if kind.count]
    return judgment.blast_of(scene, compared, action=action, destroys=gone)


def read_controller(server: ApiServer, served: ServedApis, controller: Controller) -> Mapping[str, Any] | None:
    resource = served.find(controller.api_version, controller.kind)
    if resource is None:
        return None
    try:
        return server.get(Call("get", resource.plural, controller.object), resource.path("", controller.object))
    except FleetRefused:
        return None


def _asks_daemons(component: Component) -> bool:
    return any(effect.restarts for effect in component.effects.changes)


def _daemons(server: ApiServer, namespace: str) -> list[dict[str, Any]]:
    """List the DaemonSets as they run.

    Empty where they may not be listed: the catalog then says where they are.
    """
    path = f"/apis/apps/v1/namespaces/{discovery.segment(namespace)}/daemonsets"
    try:
        page = server.ask(Call("list", "daemonsets"), "GET", path, query={"limit": _MOST}).object()
    except FleetRefused:
        return []
    return list(page.get("items") or ())
