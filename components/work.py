"""What the engine asks of this room: prepare a component for a plan, carry it out, and look whether it is ready.

Each does bounded work and no transaction is open around it.
"""

from __future__ import annotations

from clusters import connections, discovery
from clusters.apiserver import ApiServer, Call
from clusters.discovery import Served
from clusters.fleet import NotFound
from clusters.models import Cluster
from components import catalogue, marks, releases
from components.carrying import carry_out, is_back
from components.prepared import Look, Note, ObjectDifference, Prepared
from components.preparing import prepare
from components.readiness import Readiness

__all__ = ["Look", "Note", "ObjectDifference", "Prepared", "carry_out", "look", "prepare"]

_STAYS = ("Namespace", "CustomResourceDefinition")
"""What a removal leaves: what is in them is not ours to delete."""


def look(cluster: Cluster, prepared: Prepared, *, direction: str, seen: int | None = None) -> Look:
    """One look, now: is it what was approved (or what it was before), and ready? Raises FleetError.

    `seen`: how many looks just before were steady, for tests that want several; None: this one is enough.
    """
    with connections.api_server(cluster) as server:
        served = discovery.read(server)
        last = releases.history(server, prepared.namespace, prepared.release).last
        if direction != "forward" and not prepared.back_to:
            return _removed(server, served, prepared, last)
        if last is None:
            return Look(False, missing=f"helm has no release {prepared.release} in {prepared.namespace}.")
        is_there = (
            is_back(last, prepared.back_to)
            if direction != "forward"
            else last.status == releases.DEPLOYED
            and (prepared.action == "none" or marks.plan_of(last) == marks.of(prepared))
        )
        if not is_there:
            if direction == "forward" and last.status == releases.DEPLOYED and last.number > prepared.from_revision:
                changed = f"Revision {last.number} of {prepared.release} is not of this plan"
                return Look(False, failed=f"{changed}: somebody changed the release meanwhile.")
            failed = last.read().description if last.status == releases.FAILED else ""
            words = f"Revision {last.number} of {prepared.release} is {last.status}{f': {failed}' if failed else ''}."
            return Look(False, missing=words)
        component = catalogue.get(prepared.component)
        readiness = Readiness(server, served, prepared.namespace)
        return readiness.look(component.tests(prepared.release, prepared.values), seen=seen)


def _removed(server: ApiServer, served: Served, prepared: Prepared, last: releases.Revision | None) -> Look:
    if last is not None and last.status != releases.UNINSTALLED:
        return Look(False, missing=f"helm still has the release {prepared.release}: revision {last.number}.")
    for one in prepared.objects:
        resource = served.find(one.api_version, one.kind)
        if one.change not in ("created", "unvalidated") or one.kind in _STAYS or resource is None:
            continue
        try:
            server.get(Call("get", resource.plural, one.name), resource.path(one.namespace, one.name))
        except NotFound:
            continue
        place = f"{one.namespace}/" if one.namespace else ""
        return Look(False, missing=f"{one.kind} {place}{one.name} is still there.")
    return Look(True)
