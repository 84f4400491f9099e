"""CustomResourceDefinitions that Setpoint itself makes before helm runs, as helm's identity.

helm builds every object of a manifest before it does anything, and ends where the cluster does not know a kind. So it
finishes no removal that ended after the definition was gone, and rolls back to no revision whose definitions went with
it. One that is there is never changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from clusters import objects
from clusters.fleet import Conflict, NotFound
from clusters.kube import discovery
from clusters.kube.apiserver import APPLY, ApiServer, Call
from clusters.kube.discovery import ServedApis, segment
from components.helm import patches, releases, rendering
from components.helm.client import HelmJob
from components.helm.errors import HelmRefused, HelmTimeout, HelmUnavailable, Stopped
from components.helm.releases import Release, ReleaseRevision
from components.helm.rendering import Manifest
from components.plans.impact import DEFINITION, defined

SECONDS = 60.0
"""Until one that goes is gone, and until a new one is established and served: helm's own patience with `crds/`."""
LOOK_SECONDS = 0.2
_PLURAL = "customresourcedefinitions"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_ROOT = f"/apis/apiextensions.k8s.io/v1/{_PLURAL}"


def restore(server: ApiServer, job: HelmJob, recorded: Release, *, is_server_side: bool = False) -> None:
    """Those of a revision that are gone while it has objects of their kinds, as it recorded them.

    With helm's marks, by which it knows them as its own. Raises HelmError, FleetError.
    """
    if lacking := _lacking(server, recorded):
        marked = [patches.marked(manifest.raw, recorded.name, recorded.namespace) for manifest in lacking]
        for name in make(server, job, marked, is_server_side=is_server_side):
            job.tell(f"The definition {name} is made once more: helm's record has objects of its kind.")


def restore_for_rollback(
    server: ApiServer, job: HelmJob, newest: ReleaseRevision, target: Release, *, is_server_side: bool
) -> None:
    """The same, in the record of the newest revision as well: helm v3 goes back to no object that is there without.

    One that is being deleted is waited for: what helm made of it would go, too. Raises HelmError, FleetError.
    """
    until = min(job.deadline, time.monotonic() + SECONDS)
    for definition in _own(_objects(target)):
        _wait_gone(server, job, definition.raw, until)
    known = {manifest.key for manifest in _objects(newest.read())}
    # Before they are made: a worker that dies in between leaves them to be made, not made and unrecorded.
    if unrecorded := [manifest.raw for manifest in _lacking(server, target) if manifest.key not in known]:
        releases.record_also(server, newest, unrecorded)
    restore(server, job, target, is_server_side=is_server_side)


def make(
    server: ApiServer, job: HelmJob, wanted: Iterable[Mapping[str, Any]], *, is_server_side: bool = False
) -> list[str]:
    """Create those that are not there, wait until the cluster serves their kinds, and return their names.

    Some charts have other objects in `crds/`, too: they come behind. Raises HelmError, FleetError.
    """
    until, raws = min(job.deadline, time.monotonic() + SECONDS), list(wanted)
    made = [
        raw
        for raw in raws
        if raw.get("kind") == DEFINITION and _is_made(server, job, raw, until, is_server_side=is_server_side)
    ]
    for raw in made:
        _wait(server, job, raw, until)
    others = [raw for raw in raws if raw.get("kind") != DEFINITION]
    served = discovery.read(server) if others else None
    made += [raw for raw in others if served and _is_made_besides(server, served, job, raw)]
    return [_name(raw) for raw in made]


def _objects(recorded: Release) -> list[Manifest]:
    texts = (recorded.manifest, *recorded.hooks)
    return [Manifest(raw) for text in texts for raw, _ in rendering.split(text.encode())]


def _own(manifests: Iterable[Manifest]) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest.kind == DEFINITION]


def _lacking(server: ApiServer, recorded: Release) -> list[Manifest]:
    """Definitions among a revision's templates without which helm cannot build others of its objects."""
    manifests = _objects(recorded)
    if not (own := _own(manifests)):
        return []
    served = discovery.read(server)
    unknown = {
        (manifest.api_version.rpartition("/")[0], manifest.kind)
        for manifest in manifests
        if not served.find(manifest.api_version, manifest.kind)
    }
    return [manifest for manifest in own if defined(manifest.raw) in unknown]


def _is_made(server: ApiServer, job: HelmJob, raw: Mapping[str, Any], until: float, *, is_server_side: bool) -> bool:
    """Return whether it was missing and is created.

    One that is being deleted is waited for: it would take its objects along.
    """
    if not _wait_gone(server, job, raw, until):
        return False
    try:
        _create(server, raw, is_server_side=is_server_side)
    except Conflict:
        return False  # another party was faster
    return True


def _is_made_besides(server: ApiServer, served: ServedApis, job: HelmJob, raw: Mapping[str, Any]) -> bool:
    resource = served.find(str(raw.get("apiVersion")), str(raw.get("kind")))
    if resource is None:
        raise HelmRefused(f"the cluster does not know the kind of {raw.get('kind')} {_name(raw)} in the chart's crds/")
    place = str(objects.meta(raw).get("namespace") or job.namespace) if resource.is_namespaced else ""
    call, query = Call("create", resource.plural, _name(raw)), {"fieldManager": "helm"}
    try:
        server.ask(call, "POST", resource.path(place), query=query, body=raw)
    except Conflict:
        return False
    return True


def _wait_gone(server: ApiServer, job: HelmJob, raw: Mapping[str, Any], until: float) -> bool:
    """Return whether it is missing, after waiting for one that is being deleted."""
    while (there := _live(server, raw)) is not None:
        if not objects.meta(there).get("deletionTimestamp"):
            return False
        _pause(job, until, f"the definition {_name(raw)} is being deleted, and is not gone yet")
    return True


def _create(server: ApiServer, raw: Mapping[str, Any], *, is_server_side: bool) -> None:
    query = {"fieldManager": "helm"}
    if is_server_side:  # as helm v4 applies it, whose next apply can then take fields away again
        path = f"{_ROOT}/{segment(_name(raw))}"
        server.ask(Call("patch", _PLURAL, _name(raw)), "PATCH", path, query=query, body=raw, content_type=APPLY)
    else:
        server.ask(Call("create", _PLURAL, _name(raw)), "POST", _ROOT, query=query, body=raw)


def _wait(server: ApiServer, job: HelmJob, raw: Mapping[str, Any], until: float) -> None:
    while not (_is_established(_live(server, raw), _name(raw)) and _is_served(discovery.read(server), raw)):
        _pause(job, until, f"the definition {_name(raw)} was created, and the cluster does not serve its kind yet")


def _is_established(live: Mapping[str, Any] | None, name: str) -> bool:
    conditions = ((live or {}).get("status") or {}).get("conditions") or ()
    states = {condition.get("type"): condition for condition in conditions}
    refused = states.get("NamesAccepted") or {}
    if refused.get("status") == "False":
        raise HelmRefused(f"the cluster does not take the names of the definition {name}: {refused.get('message')}")
    return (states.get("Established") or {}).get("status") == "True"


def _is_served(served: ServedApis, raw: Mapping[str, Any]) -> bool:
    group, kind = defined(raw)
    versions = [
        version.get("name") for version in (raw.get("spec") or {}).get("versions") or () if version.get("served", True)
    ]
    return all(served.find(f"{group}/{version}", kind) for version in versions)


def is_there(server: ApiServer, name: str) -> bool:
    """Return whether the cluster has the definition, and is not deleting it.

    Asks for its metadata alone. Raises FleetError.
    """
    try:
        answer = server.ask(Call("get", _PLURAL, name), "GET", f"{_ROOT}/{segment(name)}", accept=_METADATA)
    except NotFound:
        return False
    return not objects.meta(answer.object()).get("deletionTimestamp")


def _live(server: ApiServer, raw: Mapping[str, Any]) -> dict[str, Any] | None:
    name = _name(raw)
    try:
        return server.get(Call("get", _PLURAL, name), f"{_ROOT}/{segment(name)}", DEFINITION)
    except NotFound:
        return None


def _name(raw: Mapping[str, Any]) -> str:
    return str(objects.meta(raw).get("name") or "")


def _pause(job: HelmJob, until: float, why: str) -> None:
    if job.stop():
        raise Stopped("stopped before helm was started")
    if time.monotonic() > until:
        raise HelmTimeout(why) if until >= job.deadline else HelmUnavailable(why)
    time.sleep(LOOK_SECONDS)
