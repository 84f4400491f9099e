"""Definitions (CustomResourceDefinitions) that have to be served before helm can work on objects of their kinds.

helm builds every object that it recorded before it touches one. Where a kind is not served, because a removal was ended
half way or because the release was removed, it can neither finish the removal nor put the release back. And what is in
a chart's `crds/` helm v4 applies over definitions that are there, which the plan said would stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from clusters.fleet import Conflict
from clusters.kube import discovery
from clusters.kube.apiserver import ApiServer, Call
from components.helm import rendering
from components.helm.client import HelmTimeout, Job, Stopped
from components.helm.rendering import Manifest

KIND = "CustomResourceDefinition"
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SECONDS = 60.0
"""How long the API server is given to serve what was made: as long as helm gives it."""
_PAUSE_SECONDS = 0.2


def create(server: ApiServer, definitions: Sequence[Manifest], job: Job) -> list[str]:
    """Makes those that are not there, and waits until their kinds are served; returns the names of those made.

    One that is there is left as it is. Raises FleetError, HelmTimeout, Stopped.
    """
    until, made = min(job.deadline, time.monotonic() + SECONDS), []
    for one in definitions:
        call = Call("create", "customresourcedefinitions", one.name)
        try:
            server.ask(call, "POST", PATH, body=one.raw, query={"fieldManager": "helm"})
        except Conflict:
            continue
        made.append(one.name)
    while waiting := _unserved(server, definitions):
        if job.stop():
            raise Stopped("was stopped while the API server was getting to know new kinds")
        if time.monotonic() >= until:
            raise HelmTimeout(f"the API server does not serve the kind {waiting[0]} in time")
        time.sleep(_PAUSE_SECONDS)
    return made


def needed(server: ApiServer, definitions: Iterable[Manifest], objects: Iterable[Manifest]) -> list[Manifest]:
    """Of the definitions, those whose kind an object has that the API server does not serve. Raises FleetError."""
    served = discovery.read(server)
    unknown = {(one.api_version, one.kind) for one in objects if served.find(one.api_version, one.kind) is None}
    return [one for one in definitions if one.kind == KIND and unknown & set(rendering.served_kinds(one.raw))]


def names(files: Iterable[bytes]) -> list[str]:
    """Of the definitions in files of a `crds/`. Raises HelmRefused for what is no object."""
    found = [Manifest(raw) for text in files for raw, _ in rendering.split(text)]
    return [one.name for one in found if one.kind == KIND]


def _unserved(server: ApiServer, definitions: Sequence[Manifest]) -> list[str]:
    """Kinds of which no version is served: an older definition that was there may have other versions."""
    wanted = {_group_kind(*pair) for one in definitions for pair in rendering.served_kinds(one.raw)}
    if not wanted:
        return []
    there = {_group_kind(api_version, kind) for api_version, kind in discovery.read(server).resources}
    return sorted(kind for _, kind in wanted - there)


def _group_kind(api_version: str, kind: str) -> tuple[str, str]:
    return api_version.rpartition("/")[0], kind
