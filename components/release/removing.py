"""A component made ready to be removed: what goes with its release, what stays, and who still uses it.

What helm deletes is what it recorded of the revision in force; a stored chart is rendered only to name what stays. helm
keeps that record, so that a revert can put the release back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from clusters.connection import registry
from clusters.fleet import FleetRefused
from clusters.kube import discovery
from clusters.kube.apiserver import ApiServer, Call
from clusters.kube.discovery import Resource, ServedApis
from clusters.models import Cluster
from components.access import identities, permitting, rights
from components.blast import occupied, radius
from components.blast.ground import Ground
from components.blast.judgment import NONE, REMOVE
from components.catalog import catalog
from components.catalog.entry import Component, ComponentUse
from components.helm import client
from components.plans import gitops, impact
from components.plans.authority import undoing
from components.plans.diff import Comparison
from components.plans.prepared import BLOCK, INFO, WARN, PlanNote, Prepared
from components.release import approved_entry, brought
from components.release.location import ReleaseLocation, find, installed
from profiles.content.cluster import WantedComponent

_SHOWN = 6
_MOST = "500"


def prepare(cluster: Cluster, wanted: WantedComponent) -> Prepared:
    """Writes nothing. Raises Refusal, HelmError, FleetError."""
    component = catalog.get(wanted.name)
    with registry.api_server(cluster) as server:
        served = discovery.read(server)
        place = find(server, component, component.chart.chart.rpartition("/")[2])
        last = place.history.last
        if last is None or place.current is None:
            return Prepared(
                component.name,
                place.release,
                place.namespace,
                "",
                action=NONE,
                from_revision=last.number if last else 0,
            )
        comparison = Comparison(server=server, served=served, release=place.release, namespace=place.namespace)
        compared = comparison.compare([], installed(place))
        destroys = impact.destroyed(server, served, compared)
        deployed = place.history.deployed
        notes = [*place.notes, *approved_entry.notes(component), *identities.notes(cluster, server)]
        notes += impact.notes(server, served, compared, (), destroys)
        stays = {*component.crds, *brought.definitions(served, place.history, place.current)}
        goes = {compared_object.wanted.name for compared_object in compared}
        goes |= set() if component.crds_stay else {*component.crds}  # a hook of the chart may delete what helm leaves
        notes += _stays(server, served, stays - goes)
        notes += _in_use(server, served, cluster, component)
        notes += _removal_notes(place, is_put_back=deployed is not None)
        if who := gitops.manager(
            [compared_object.live for compared_object in compared if compared_object.live is not None]
        ):
            notes.append(PlanNote(BLOCK, "managed", f"{place.release} is kept by {who.owner}", "Remove it there."))
        where = (place.release, place.namespace)
        hit = radius.component_blast(
            server, served, cluster, component, where, compared, action=REMOVE, destroys=destroys
        )
        needed = rights.needed(component.name, installed(place), place.namespace, served)
        authority, more = permitting.assess(cluster, server, replace(needed, needs=tuple(undoing(needed.needs))))
        notes += more
        return Prepared(
            **approved_entry.of(component),
            release=place.release,
            namespace=place.namespace,
            version=place.current.chart_version,
            helm_version=client.program().version,
            action=REMOVE,
            from_revision=last.number,
            objects=tuple(comparison.shown(compared)),
            notes=tuple(sorted(notes, key=lambda note: (BLOCK, WARN, INFO).index(note.severity))),
            destroys=destroys,
            back_to=deployed.number if deployed else 0,
            blast=hit,
            authority=authority,
            caveats=component.caveats(REMOVE, place.version, ""),
        )


def _stays(server: ApiServer, served: ServedApis, left: Iterable[str]) -> Iterator[PlanNote]:
    """Definitions that helm leaves, with how many objects each has."""
    by_name = {
        f"{resource.plural}.{resource.api_version.rpartition('/')[0]}": resource
        for resource in served.resources.values()
    }
    counted = []
    for name in sorted(left):
        if resource := by_name.get(name):
            number = impact.count(server, served, name, resource.kind)
            counted.append(f"{name} ({number:,})" if number >= 0 else name)
    if counted:
        title = f"{len(counted)} definition{'' if len(counted) == 1 else 's'} and their objects stay when it is removed"
        more = f" and {len(counted) - _SHOWN} more" if len(counted) > _SHOWN else ""
        yield PlanNote(
            INFO, "crds-stay", title, f"With the number of their objects: {', '.join(counted[:_SHOWN])}{more}."
        )


def _removal_notes(place: ReleaseLocation, *, is_put_back: bool) -> Iterator[PlanNote]:
    if not place.is_ours:
        yield PlanNote(WARN, "not-ours", f"Setpoint did not install {place.release}, and removes it")
    if not is_put_back:
        title = f"A revert cannot bring {place.release} back: helm has no revision of it that was in force"
        yield PlanNote(WARN, "no-way-back", title)
    hooks = place.current.removal_hooks if place.current else ()
    if hooks:
        more = f" and {len(hooks) - _SHOWN} more" if len(hooks) > _SHOWN else ""
        title = f"helm runs hooks of the chart: {', '.join(hooks[:_SHOWN])}{more}"
        yield PlanNote(INFO, "hooks", title, "What they delete or make is not in the differences.")


def _in_use(server: ApiServer, served: ServedApis, cluster: Cluster, component: Component) -> Iterator[PlanNote]:
    for use in component.uses:
        if users := _use(server, served, cluster, use):
            yield PlanNote(BLOCK if use.is_block else WARN, "in-use", users, use.why)


def _use(server: ApiServer, served: ServedApis, cluster: Cluster, use: ComponentUse) -> str:
    """Name the users of the component, as a sentence without its period; empty: none that can be seen."""
    if use.of == "gpu-pods":
        pods = Ground.of(cluster).held
        gpus = sum(pod.gpus for pod in pods)
        return (
            f"{len(pods):,} pod{'' if len(pods) == 1 else 's'} hold{'s' if len(pods) == 1 else ''} {gpus:,} GPUs"
            if pods
            else ""
        )
    if use.of == "no-daemonset":
        there = _daemonsets(server)
        if there is None:
            return f"Whether another of these runs cannot be seen: {', '.join(use.names)}"
        return "" if there & set(use.names) else f"None of these runs in its place: {', '.join(use.names)}"
    for name in use.names:
        resource = next(
            (r for r in served.resources.values() if f"{r.plural}.{r.api_version.rpartition('/')[0]}" == name), None
        )
        if resource and (work := _occupied(server, resource)):
            return work
    return ""


def _occupied(server: ApiServer, resource: Resource) -> str:
    counted = occupied.states(server, resource)
    if counted is None:
        return f"The cluster may have objects of the kind {resource.kind}: how many cannot be seen"
    running, waiting = counted[occupied.RUNNING], counted[occupied.WAITING]
    if not running + waiting:
        return ""
    is_single = running + waiting == 1
    return (
        f"{running + waiting:,} {resource.kind}{'' if is_single else 's'} {'is' if is_single else 'are'} not done: "
        f"{running:,} running, {waiting:,} waiting"
    )


def _daemonsets(server: ApiServer) -> set[str] | None:
    """Names of all that have pods; None: they may not be listed."""
    try:
        page = server.ask(
            Call("list", "daemonsets"), "GET", "/apis/apps/v1/daemonsets", query={"limit": _MOST}
        ).object()
    except FleetRefused:
        return None
    return {
        str((daemonset.get("metadata") or {}).get("name"))
        for daemonset in page.get("items") or ()
        if (daemonset.get("status") or {}).get("numberReady")
    }
