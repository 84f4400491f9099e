"""Objects that helm passed over although it ended well: made or deleted, as its record of the release has them.

An API server that has just started forbids everything for a moment. helm v4's removal continues without an object that
it may not read. In an upgrade and a rollback both helms continue without the deletion of one that they cannot read (v3:
or cannot delete), and fail on any other. Neither helm's exit status nor its record shows it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from clusters import objects
from clusters.fleet import Conflict, NotFound, Untrusted
from clusters.kube import discovery
from clusters.kube.apiserver import APPLY, ApiServer, Call
from components.helm import patches, rendering
from components.helm.client import HelmJob
from components.helm.releases import Release
from components.helm.rendering import Manifest
from components.plans.prepared import ObjectDifference

_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_RUN_ONCE = frozenset({"Job", "Pod"})
"""Kinds that may be gone because they are done: made again, they would run again."""
_HOLDS_OTHERS = frozenset({"CustomResourceDefinition", "Namespace"})
"""Kinds whose deletion takes along objects that were not there when the plan was approved."""
SECONDS = 5.0
"""How long discovery may continue listing a kind whose definition is gone."""
PAUSE_SECONDS = 0.2


class _Object(NamedTuple):
    manifest: Manifest
    call: Call
    path: str
    identity: tuple[str, str, str, str]
    """Group, plural, namespace, name: under another version of its API it is the same."""


def make(server: ApiServer, job: HelmJob, release: Release) -> None:
    """Create what the release records and the cluster does not have, with helm's marks. Raises FleetError."""
    for manifest, call, path, _ in _served(server, job, _manifests(release)):
        if manifest.kind in _RUN_ONCE or _live(server, call, path, manifest) is not None:
            continue
        body, query = patches.marked(manifest.raw, job.release, job.namespace), {"fieldManager": "helm"}
        try:
            if release.is_server_side:  # as helm v4 applies it, whose next apply can then take fields away again
                server.ask(call, "PATCH", path, query=query, body=body, content_type=APPLY)
            else:
                server.ask(call, "POST", path.rpartition("/")[0], query=query, body=body)
        except Conflict:
            continue  # another client was faster
        job.tell(f"{manifest.kind} {manifest.name} was passed over by helm, and is created.")


def delete(server: ApiServer, job: HelmJob, release: Release) -> None:
    """Delete what carries helm's marks of a release that it records as removed. Raises FleetError."""
    for entry in _served(server, job, _manifests(release)):
        if not entry.manifest.is_kept and (live := _left(server, job, entry)):
            _delete(server, job, entry, live)


def delete_dropped(
    server: ApiServer, job: HelmJob, release: Release | None, dropped: Iterable[ObjectDifference]
) -> None:
    """Delete what of `dropped`, as the plan showed it, the release does not record and still carries its marks.

    `release` None: there is none any more. A definition or a namespace is told, and stays. Raises FleetError.
    """
    kept = {entry.identity for entry in _served(server, job, _manifests(release))} if release else frozenset()
    for entry in _served(server, job, (_manifest(shown) for shown in dropped)):
        if entry.identity in kept or (live := _left(server, job, entry)) is None:
            continue
        if entry.manifest.kind in _HOLDS_OTHERS:
            job.tell(
                f"{entry.manifest.kind} {entry.manifest.name} was passed over by helm, and stays: delete it by hand."
            )
        else:
            _delete(server, job, entry, live)


def _left(server: ApiServer, job: HelmJob, entry: _Object) -> Mapping[str, Any] | None:
    """Its metadata, where it is of this release, is not to be kept and is not going already."""
    live = _live(server, entry.call, entry.path, entry.manifest)
    if live is None or not patches.is_owned(live, job.release, job.namespace):
        return None
    return None if objects.meta(live).get("deletionTimestamp") or Manifest(live).is_kept else live


def _delete(server: ApiServer, job: HelmJob, entry: _Object, live: Mapping[str, Any]) -> None:
    how = {"propagationPolicy": "Background", "preconditions": {"uid": objects.meta(live).get("uid")}}
    try:
        server.ask(entry.call, "DELETE", entry.path, body=how)
    except (Conflict, NotFound):
        return
    job.tell(f"{entry.manifest.kind} {entry.manifest.name} was passed over by helm, and is deleted.")


def _manifests(release: Release) -> Iterator[Manifest]:
    return (Manifest(raw) for raw, _ in rendering.split(release.manifest.encode()))


def _manifest(shown: ObjectDifference) -> Manifest:
    meta = {"name": shown.name, "namespace": shown.namespace}
    return Manifest({"apiVersion": shown.api_version, "kind": shown.kind, "metadata": meta})


def _served(server: ApiServer, job: HelmJob, manifests: Iterable[Manifest]) -> Iterator[_Object]:
    """Those of kinds that the cluster serves, with their addresses."""
    served = discovery.read(server)
    for manifest in manifests:
        resource = served.find(manifest.api_version, manifest.kind)
        if resource is not None and manifest.name:
            place = (manifest.namespace or job.namespace) if resource.is_namespaced else ""
            identity = manifest.api_version.rpartition("/")[0], resource.plural, place, manifest.name
            yield _Object(
                manifest, Call("get", resource.plural, manifest.name), resource.path(place, manifest.name), identity
            )


def _live(server: ApiServer, call: Call, path: str, manifest: Manifest) -> dict[str, object] | None:
    """Its metadata; None where it is not there. Raises FleetError."""
    try:
        return server.ask(call, "GET", path, accept=_METADATA).object()
    except NotFound:
        return None
    except Untrusted:
        if _is_served(server, manifest):
            raise
        return None


def _is_served(server: ApiServer, manifest: Manifest) -> bool:
    """Return whether the cluster serves its kind, for good.

    An API server answers with a page instead of a Status where a definition has just gone, and so does a load balancer
    that knows nothing of the object: discovery, which follows a moment later, tells them apart.
    """
    until = time.monotonic() + SECONDS
    while discovery.read(server).find(manifest.api_version, manifest.kind) is not None:
        if time.monotonic() >= until:
            return True
        time.sleep(PAUSE_SECONDS)
    return False
