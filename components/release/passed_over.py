"""Objects that helm passed over although it ended well: made or deleted, as its record of the release has them.

helm v4 looks at each object first, and continues without one that it may not read; an API server that has just started
forbids everything for a moment. Neither helm's exit status nor its record shows it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from clusters import objects
from clusters.fleet import Conflict, NotFound, Untrusted
from clusters.kube import discovery
from clusters.kube.apiserver import APPLY, ApiServer, Call
from components.helm import patches, rendering
from components.helm.client import Job
from components.helm.releases import Release
from components.helm.rendering import Manifest

_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_RUN_ONCE = frozenset({"Job", "Pod"})
"""Kinds that may be gone because they are done: made again, they would run again."""
SECONDS = 5.0
"""How long discovery may go on listing a kind whose definition is gone."""
PAUSE_SECONDS = 0.2


def make(server: ApiServer, job: Job, release: Release) -> None:
    """Create what the release records and the cluster does not have, with helm's marks. Raises FleetError."""
    for call, path, one in _recorded(server, job, release):
        if one.kind in _RUN_ONCE or _live(server, call, path, one) is not None:
            continue
        body, query = patches.marked(one.raw, job.release, job.namespace), {"fieldManager": "helm"}
        try:
            if release.is_server_side:  # as helm v4 applies it, whose next apply can then take fields away again
                server.ask(call, "PATCH", path, query=query, body=body, content_type=APPLY)
            else:
                server.ask(call, "POST", path.rpartition("/")[0], query=query, body=body)
        except Conflict:
            continue  # another client was faster
        job.tell(f"{one.kind} {one.name} was passed over by helm, and is created.")


def delete(server: ApiServer, job: Job, release: Release) -> None:
    """Delete what carries helm's marks of a release that it records as removed. Raises FleetError."""
    for call, path, one in _recorded(server, job, release):
        live = None if one.is_kept else _live(server, call, path, one)
        if live is None or not patches.is_owned(live, job.release, job.namespace):
            continue
        meta = objects.meta(live)
        if meta.get("deletionTimestamp"):
            continue
        how = {"propagationPolicy": "Background", "preconditions": {"uid": meta.get("uid")}}
        try:
            server.ask(call, "DELETE", path, body=how)
        except (Conflict, NotFound):
            continue
        job.tell(f"{one.kind} {one.name} was passed over by helm, and is deleted.")


def _recorded(server: ApiServer, job: Job, release: Release) -> Iterator[tuple[Call, str, Manifest]]:
    """Those of kinds that the cluster serves, with their addresses."""
    served = discovery.read(server)
    for raw, _ in rendering.split(release.manifest.encode()):
        one = Manifest(raw)
        resource = served.find(one.api_version, one.kind)
        if resource is not None and one.name:
            place = (one.namespace or job.namespace) if resource.is_namespaced else ""
            yield Call("get", resource.plural, one.name), resource.path(place, one.name), one


def _live(server: ApiServer, call: Call, path: str, one: Manifest) -> dict[str, object] | None:
    """Its metadata; None where it is not there. Raises FleetError."""
    try:
        return server.ask(call, "GET", path, accept=_METADATA).object()
    except NotFound:
        return None
    except Untrusted:
        if _is_served(server, one):
            raise
        return None


def _is_served(server: ApiServer, one: Manifest) -> bool:
    """Whether the cluster serves its kind, for good.

    An API server answers with a page instead of a Status where a definition has just gone, and so does a load balancer
    that knows nothing of the object: discovery, which follows a moment later, tells them apart.
    """
    until = time.monotonic() + SECONDS
    while discovery.read(server).find(one.api_version, one.kind) is not None:
        if time.monotonic() >= until:
            return True
        time.sleep(PAUSE_SECONDS)
    return False
