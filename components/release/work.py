"""The engine's interface to this room: prepare a component for a plan, carry it out, and look whether it is ready.

Each does bounded work and no transaction is open around it.
"""

from __future__ import annotations

from collections.abc import Sequence

from clusters.connection import registry
from clusters.fleet import NotFound
from clusters.kube import discovery
from clusters.kube.apiserver import ApiServer, Call
from clusters.kube.discovery import ServedApis
from clusters.models import Cluster
from components.blast.judgment import REMOVE
from components.catalog import catalog
from components.helm import releases
from components.plans.prepared import ObjectDifference, PlanNote, Prepared, ReadinessResult
from components.release import approved_entry, preparing, removing, revision_labels
from components.release.applying import carry_out
from components.release.readiness import Readiness
from components.release.reverting import is_back
from profiles.content.cluster import WantedComponent

__all__ = ["ObjectDifference", "PlanNote", "Prepared", "ReadinessResult", "carry_out", "check_readiness", "prepare"]

_STAYS = ("Namespace", "CustomResourceDefinition")
"""What a removal leaves: what is in them is not ours to delete."""


def prepare(cluster: Cluster, wanted: WantedComponent, peers: Sequence[WantedComponent] = ()) -> Prepared:
    """Prepare a component to be installed, changed or removed. `peers`: what else is wanted there, for its conflicts.

    Raises Refusal, HelmError, FleetError.
    """
    with catalog.held(is_fresh=True):
        return removing.prepare(cluster, wanted) if wanted.is_gone else preparing.prepare(cluster, wanted, peers)


def check_readiness(
    cluster: Cluster, prepared: Prepared, *, direction: str, seen: int | None = None
) -> ReadinessResult:
    """One look, now: is it what was approved (or what it was before), and ready? Raises FleetError.

    `seen`: how many looks just before were steady, for tests that want several; None: this one is enough.
    """
    with registry.api_server(cluster) as server:
        served = discovery.read(server)
        last = releases.history(server, prepared.namespace, prepared.release).last
        is_removal = prepared.action == REMOVE
        if (direction == "forward") == is_removal and (is_removal or not prepared.back_to):
            return _removed(server, served, prepared, last)
        if last is None:
            return ReadinessResult(False, missing=f"helm has no release {prepared.release} in {prepared.namespace}.")
        is_there = (
            is_back(last, prepared.back_to)
            if direction != "forward"
            else last.status == releases.DEPLOYED
            and (prepared.action == "none" or revision_labels.plan_of(last) == revision_labels.plan_label(prepared))
        )
        if not is_there:
            if direction == "forward" and last.status == releases.DEPLOYED and last.number > prepared.from_revision:
                changed = f"Revision {last.number} of {prepared.release} is not of this plan"
                return ReadinessResult(False, failed=f"{changed}: the release was changed meanwhile.")
            failed = last.read().description if last.status == releases.FAILED else ""
            words = f"Revision {last.number} of {prepared.release} is {last.status}{f': {failed}' if failed else ''}."
            return ReadinessResult(False, missing=words)
        if direction == "forward" and (changed := approved_entry.changed_reason(prepared)):
            return ReadinessResult(False, failed=changed)
        try:
            component = catalog.get(prepared.component)
        except catalog.Unknown as error:  # going back needs no entry, but to see it ready
            return ReadinessResult(False, failed=str(error))
        readiness = Readiness(server, served, prepared.namespace)
        given = last.read().values if is_removal else prepared.values
        return readiness.look(component.tests(prepared.release, given, prepared.namespace), seen=seen)


def _goes(prepared: Prepared, difference: ObjectDifference) -> bool:
    if prepared.action == REMOVE:
        return difference.change == "deleted"
    return difference.change in ("created", "unvalidated") and difference.kind not in _STAYS


def _removed(
    server: ApiServer, served: ServedApis, prepared: Prepared, last: releases.ReleaseRevision | None
) -> ReadinessResult:
    if last is not None and last.status != releases.UNINSTALLED:
        return ReadinessResult(False, missing=f"helm still has the release {prepared.release}: revision {last.number}.")
    for difference in prepared.objects:
        resource = served.find(difference.api_version, difference.kind)
        if resource is None or not _goes(prepared, difference):
            continue
        try:
            server.get(
                Call("get", resource.plural, difference.name), resource.path(difference.namespace, difference.name)
            )
        except NotFound:
            continue
        place = f"{difference.namespace}/" if difference.namespace else ""
        return ReadinessResult(False, missing=f"{difference.kind} {place}{difference.name} is still there.")
    return ReadinessResult(True)
