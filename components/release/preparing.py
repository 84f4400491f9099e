"""A component made ready for a plan: what would be installed, from which archive, and what that changes in the cluster.

Nothing is written to the cluster. Every mistake that can be seen before is seen here, so that an approval means
something: the archive, the values, the rendered manifest and the answers of the API server are all of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clusters import objects
from clusters.connection import registry
from clusters.fleet import Forbidden, NotFound
from clusters.kube import discovery
from clusters.kube.apiserver import ApiServer, Call
from clusters.kube.discovery import ServedApis
from clusters.models import Cluster
from components.access import identities, permitting, rights
from components.access.rights import Rights
from components.blast import radius
from components.catalog import catalog, values_check
from components.catalog.entry import Component
from components.catalog.versions import is_older
from components.charts import archives, store
from components.helm import client, recorded, releases
from components.helm.client import HelmRefused
from components.helm.rendering import Rendered
from components.models import ClusterValues
from components.plans import adopt, folding, gitops, impact, taken_back
from components.plans.authority import Right
from components.plans.diff import Compared, Comparison
from components.plans.gitops import ProposedChange
from components.plans.prepared import BLOCK, INFO, WARN, Destroyed, ObjectDifference, PlanNote, Prepared
from components.release import approved_entry, kernel_needs, revision_labels
from components.release.component_rendering import ComponentRendering, RenderedComponent
from components.release.conflicting import ConflictCheck
from components.release.kube_proxy import ProxySearch
from components.release.location import ReleaseLocation, find, installed
from profiles.content.cluster import WantedComponent

ENFORCE = "pod-security.kubernetes.io/enforce"
STRICTNESS = ("privileged", "baseline", "restricted")


def prepare(cluster: Cluster, wanted: WantedComponent, peers: Sequence[WantedComponent] = ()) -> Prepared:
    """`peers`: what else is wanted in the cluster. Raises Refusal, HelmError, FleetError."""
    try:
        return _prepared(cluster, wanted, peers)
    except Forbidden as error:
        raise Forbidden(
            f"{error}; to install components, apply deploy/setpoint-components.yaml, and for this one what "
            f"`manage.py component_rights {cluster} {wanted.name}` prints"
        ) from error


def rights_for(cluster: Cluster, wanted: WantedComponent) -> Rights:
    """Return the rights that Setpoint's accounts need, from the chart as it renders there.

    Raises Refusal, HelmError, FleetError.
    """
    component = catalog.get(wanted.name)
    if wanted.is_gone:
        return _rights_to_remove(cluster, component)
    version = wanted.version or component.newest
    content = archives.content(store.fetch(component.chart, version).pk)
    chart = archives.judge(content)
    layered = _layered(cluster, component, version, wanted)
    with registry.api_server(cluster) as server:
        served, place = discovery.read(server), find(server, component, chart.name)
        rendering = ComponentRendering(cluster, client.program(), server, served, place, content, layered.values)
        return _needed(component, rendering.render().rendered, place, served)


def _needed(
    component: Component,
    made: Rendered,
    place: ReleaseLocation,
    served: ServedApis,
    besides: Sequence[Right] = (),
) -> Rights:
    """Return the rights to install it, to delete what it no longer has, and to go back to the revision in force."""
    manifests = [*made.objects, *made.hooks, *made.crds, *installed(place)]
    needed = rights.needed(component.name, manifests, place.namespace, served, place.release)
    return replace(needed, needs=(*needed.needs, *besides))


def _rights_to_remove(cluster: Cluster, component: Component) -> Rights:
    with registry.api_server(cluster) as server:
        place = find(server, component, component.chart.chart.rpartition("/")[2])
        return rights.needed(component.name, installed(place), place.namespace, discovery.read(server))


def _prepared(cluster: Cluster, wanted: WantedComponent, peers: Sequence[WantedComponent]) -> Prepared:
    component = catalog.get(wanted.name)
    version = wanted.version or component.newest
    archive = store.fetch(component.chart, version)
    content = archives.content(archive.pk)
    chart = archives.judge(content)
    layered = _layered(cluster, component, version, wanted)
    notes, program = [*approved_entry.notes(component), *_values_notes(layered, chart)], client.program()
    with registry.api_server(cluster) as server:
        served = discovery.read(server)
        place = find(server, component, chart.name)
        notes += [*place.notes, *_unsupported(component, version, served, place), *identities.notes(cluster, server)]
        wishes, kept, adopted = _adopted(place, layered.values)
        made = ComponentRendering(cluster, program, server, served, place, content, wishes).render()
        spaces, more = _namespace(_space(server, place.namespace), component, place)
        notes += [*adopted, *made.notes, *more]
        comparison = _comparison(server, served, place, made, program)
        compared, destroys, effects = _effects(comparison, place, made, chart.version)
        wish = ProposedChange(component.chart, version, place.release, place.namespace, values_check.masked(wishes))
        effects = _with_takes(effects, compared, place, made)
        proxy = ProxySearch(server, cluster, component, wanted.presets).find(wishes, chart.values, place.current)
        seen, folds = folding.folded(compared) if place.version not in ("", chart.version) else (compared, [])
        effects += folds
        notes += _kept_by_others([each.live for each in compared if each.live is not None], wish)
        seen, compared = [*seen, *proxy.compared], [*compared, *proxy.compared]
        shown = (*spaces, *comparison.shown(seen))
        is_same = _is_same(place, chart.version, made.given, shown, made.rendered)
        notes += ConflictCheck(server, cluster, place, peers).notes(component, wishes, chart.values, is_kept=is_same)
        notes += kernel_needs.notes(cluster, component, wanted.presets, made.rendered.objects, is_kept=is_same)
        notes += proxy.notes_of(is_kept=is_same)
        action, at = "none" if is_same else _action(place), (place.release, place.namespace)
        needed = None if is_same else _needed(component, made.rendered, place, served, proxy.rights)
        authority, more = permitting.assess(cluster, server, needed)
        hit = radius.component_blast(server, served, cluster, component, at, compared, action=action, destroys=destroys)
    notes += [] if is_same else [*effects, *more]  # nothing is done, so nothing comes of it
    return Prepared(
        **approved_entry.of(component),
        release=place.release,
        namespace=place.namespace,
        version=version,
        archive=archive.pk,
        values=_mutable_copy(wishes),
        helm_version=program.version,
        manifest_digest=made.rendered.digest,
        action=action,
        from_revision=place.history.last.number if place.history.last else 0,
        after=component.after,
        requires=component.needs(wanted.presets),
        objects=() if is_same else shown,
        notes=tuple(sorted(notes, key=lambda note: (BLOCK, WARN, INFO).index(note.severity))),
        masked=made.rendered.masked,
        kept=kept,
        destroys=destroys,
        back_to=place.history.deployed.number if place.history.deployed else 0,
        blast=hit,
        from_version=place.version if place.version != chart.version else "",
        authority=authority,
        caveats=() if is_same else component.caveats(action, place.version, chart.version),
        replaced=() if is_same else tuple(proxy.objects),
    )


def _with_takes(
    effects: Sequence[PlanNote], compared: Sequence[Compared], place: ReleaseLocation, made: RenderedComponent
) -> list[PlanNote]:
    """Return the effects with the fields that are taken from others, which say more than a conflict's own words."""
    takes = taken_back.notes(compared, made.secrets) if place.is_ours else []
    return [*(note for note in effects if not takes or note.code != "conflict"), *takes]


def _values_notes(layered: values_check.Layered, chart: archives.ChartContent) -> list[PlanNote]:
    judged = values_check.judge(
        layered, chart.values, chart.schema, text=chart.values_text, subcharts=frozenset(chart.subcharts)
    )
    return [
        PlanNote(
            finding.severity, finding.code, f"{finding.path}: {finding.message}" if finding.path else finding.message
        )
        for finding in judged
    ]


def _layered(cluster: Cluster, component: Component, version: str, wanted: WantedComponent) -> values_check.Layered:
    row = ClusterValues.objects.filter(cluster=cluster, component=component.name).first()
    return values_check.layered(component, version, wanted.presets, wanted.values, row.values if row else {})


def _adopted(
    place: ReleaseLocation, wishes: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any], Sequence[PlanNote]]:
    """The values to install, and of them those that a release of another party had: all of them are kept."""
    if not place.current or place.is_ours:
        return wishes, {}, ()
    taken = adopt.adopted(place.current, wishes)
    return values_check.merged(taken.kept, wishes), _mutable_copy(taken.kept), taken.notes


def _comparison(
    server: ApiServer, served: ServedApis, place: ReleaseLocation, made: RenderedComponent, program: client.Helm
) -> Comparison:
    return Comparison(
        server=server,
        served=served,
        release=place.release,
        namespace=place.namespace,
        is_server_side=place.current.is_server_side if place.current else program.is_v4,
        hidden=made.secrets,
        is_whole=True,
        spares_definitions=True,
        is_tried_as_far_as_allowed=True,
    )


def _effects(
    comparison: Comparison, place: ReleaseLocation, made: RenderedComponent, version: str
) -> tuple[list[Compared], tuple[Destroyed, ...], list[PlanNote]]:
    """Each object against the cluster's, the definitions of `crds/` that are absent with them; and what comes of it."""
    server, served = comparison.server, comparison.served
    compared = _compared(comparison, place, made, version)
    destroys = impact.destroyed(server, served, compared)
    is_first = place.current is None
    effects = impact.notes(server, served, compared, made.rendered.crds, destroys, is_install=is_first)
    effects += impact.hooks(made.rendered.hooks, is_upgrade=not is_first)
    absent = comparison.absent(made.rendered.crds)
    effects += impact.unserved(served, compared, made.rendered.crds, absent)
    effects += impact.created(absent)
    return compared + absent, destroys, effects


def _compared(comparison: Comparison, place: ReleaseLocation, made: RenderedComponent, version: str) -> list[Compared]:
    """Compare with annotations that hold the revision's number as they are; where helm has to run, as it makes them."""
    old, current, last = installed(place), place.current, place.history.last
    if current is None or last is None:
        return comparison.compare(made.real.objects, old)
    in_force = place.history.numbered(current.revision) or last
    numbers = {revision.number for revision in revision_labels.way_back(place.history, in_force)}
    as_is = recorded.renumbered(made.real.objects, current, numbers)
    compared = comparison.compare(as_is, old)
    if _is_same(place, version, made.given, comparison.shown(compared), made.rendered):
        return compared
    then = recorded.renumbered(made.real.objects, current, numbers, last.number + 1)
    moved = {index: manifest for index, manifest in enumerate(then) if manifest.raw != as_is[index].raw}
    of_old = {comparison.identity(manifest) for manifest in moved.values()}
    again = comparison.compare(
        [*moved.values()], [manifest for manifest in old if comparison.identity(manifest) in of_old]
    )
    for index, compared_object in zip(moved, again, strict=True):
        compared[index] = compared_object
    return compared


def _action(place: ReleaseLocation) -> str:
    if place.current is None:
        return "install"
    return "upgrade" if place.is_ours else "adopt"


def _is_same(
    place: ReleaseLocation,
    version: str,
    given: Mapping[str, Any],
    shown: Sequence[ObjectDifference],
    rendered: Rendered,
) -> bool:
    """Installed already as it is wanted. Passwords that a chart makes again are no reason to install it again."""
    last, current = place.history.last, place.current
    if last is None or current is None or last.status != releases.DEPLOYED or not place.is_ours:
        return False
    generated = {
        (manifest.kind, manifest.name) for manifest in (*rendered.objects, *rendered.hooks) if manifest.generated
    }
    others = [difference for difference in shown if (difference.kind, difference.name) not in generated]
    return current.chart_version == version and _mutable_copy(current.values) == _mutable_copy(given) and not others


def _unsupported(component: Component, version: str, served: ServedApis, place: ReleaseLocation) -> Iterator[PlanNote]:
    tested = component.tested(version)
    if tested is None:
        yield PlanNote(WARN, "untested", f"{version} is no version that {component.title}'s presets were tested with")
    elif not tested.permits(served.version):
        title = f"{component.title} {version} is for Kubernetes {tested.kubernetes}; this cluster has {served.version}"
        yield PlanNote(BLOCK, "kubernetes", title)
    before = place.current.chart_version if place.current else ""
    if before and (why := component.upgrades.refuses(before, version)):
        yield PlanNote(BLOCK, "version-skip", why)
    if before and is_older(version, before):
        title = f"This is a downgrade: {component.title} {before} is installed, and {version} is older"
        detail = "What the newer version stored, in its objects or in data of its own, the older one may not read."
        yield PlanNote(WARN, "downgrade", title, f"{detail} Its definitions go back with it where they are templates.")


def _kept_by_others(live: Sequence[Mapping[str, Any]], wish: ProposedChange) -> Iterator[PlanNote]:
    if who := gitops.manager(live):
        yield PlanNote(BLOCK, "managed", who.refusal(wish.release), gitops.to_commit(who, wish))


def _space(server: ApiServer, name: str) -> Mapping[str, Any] | None:
    """The namespace, where there is one. Raises HelmRefused while it is being deleted, FleetError."""
    try:
        live = server.get(Call("get", "namespaces", name), f"/api/v1/namespaces/{discovery.segment(name)}", "Namespace")
    except NotFound:
        return None
    if objects.meta(live).get("deletionTimestamp"):
        raise HelmRefused(f"the namespace {name} is being deleted, and takes nothing new; plan again when it is gone")
    return live


def _namespace(
    live: Mapping[str, Any] | None, component: Component, place: ReleaseLocation
) -> tuple[list[ObjectDifference], list[PlanNote]]:
    name = place.namespace
    if live is None:
        diff = f"+apiVersion: v1\n+kind: Namespace\n+metadata:\n+  labels:\n+    {ENFORCE}: {component.pod_security}\n"
        made = ObjectDifference("created", "v1", "Namespace", "", name, f"{diff}+  name: {name}", 12)
        note = PlanNote(INFO, "namespace", f"The namespace {name} is created, and stays when the component is removed")
        return [made], [note]
    have = str((objects.meta(live).get("labels") or {}).get(ENFORCE) or "privileged")
    if have in STRICTNESS and STRICTNESS.index(have) > STRICTNESS.index(component.pod_security):
        title = f"The namespace {name} enforces {have} pods; {component.title} needs {component.pod_security}"
        return [], [PlanNote(BLOCK, "pod-security", title, f"Set its label {ENFORCE}={component.pod_security}.")]
    return [], []


def _mutable_copy(raw: Any) -> Any:
    if isinstance(raw, Mapping):
        return {str(key): _mutable_copy(value) for key, value in raw.items()}
    return [_mutable_copy(value) for value in raw] if isinstance(raw, list | tuple) else raw
