"""Objects that a component takes the place of (`Prepared.replaced`): deleted once it is ready, put back by a revert.

Each is deleted as the plan saw it, by its UID and content, at exactly the version that was looked at. Both directions
are idempotent: a worker may die between any two calls, and another continues from what the cluster shows.
"""

from __future__ import annotations

from typing import Any

from clusters import objects
from clusters.fleet import Conflict, NotFound
from clusters.kube import paging
from clusters.kube.apiserver import ApiServer, Call
from clusters.kube.discovery import ServedApis
from components.catalog.entry import ReadinessTest
from components.helm.client import HelmJob, HelmRefused
from components.helm.errors import HelmWaits
from components.plans.prepared import Prepared, ReadinessResult, ReplacedObject
from components.release.kube_proxy import folder, kept
from components.release.readiness import Readiness

TRIES = 5
"""How often an object is looked at again that another client wrote between a look and its deletion."""
_OWN = {"fieldManager": "setpoint"}


def check_unmoved(server: ApiServer, prepared: Prepared) -> None:
    """Check, before anything is done, that each is there as the plan saw it. Raises HelmRefused, FleetError."""
    for each in prepared.replaced:
        if _as_planned(server, each) is None:
            raise HelmRefused(f"{each} was removed since the plan; plan again")


def remove(server: ApiServer, job: HelmJob, prepared: Prepared) -> None:
    """Delete what is there still; nothing, where one is not as the plan saw it. Raises HelmError, FleetError."""
    for each in prepared.replaced:
        _as_planned(server, each)
    for each in prepared.replaced:
        _delete(server, job, each)


def put_back(server: ApiServer, served: ServedApis, job: HelmJob, prepared: Prepared) -> None:
    """Make again what is not there, and wait until it does its work. Raises HelmWaits, FleetError."""
    for each in reversed(prepared.replaced):
        _make(server, job, each)
    readiness = Readiness(server, served, "")
    for each in prepared.replaced:
        if missing := _idle(readiness, each):
            raise HelmWaits(f"{prepared.component} stays until {each} does its work again: {missing}")


def forward(server: ApiServer, prepared: Prepared) -> ReadinessResult:
    """One look: is each of them gone, with its pods? Raises FleetError."""
    for each in prepared.replaced:
        there = _live(server, each)
        if there is not None and objects.meta(there).get("uid") != each.uid:
            return ReadinessResult(False, failed=f"{each} was made again by another party since it was deleted.")
        if there is not None:
            return ReadinessResult(False, missing=f"{each} is still there.")
        if count := _pods_left(server, each):
            pods = "1 pod" if count == 1 else f"{count:,} pods"
            return ReadinessResult(False, missing=f"{pods} of {each} still run{'s' if count == 1 else ''}.")
    return ReadinessResult(True)


def backward(server: ApiServer, served: ServedApis, prepared: Prepared) -> ReadinessResult:
    """One look: is each of them there, and at work? Raises FleetError."""
    readiness = Readiness(server, served, "")
    for each in reversed(prepared.replaced):
        if _live(server, each) is None:
            return ReadinessResult(False, missing=f"{each} is not back yet.")
        if missing := _idle(readiness, each):
            return ReadinessResult(False, missing=missing)
    return ReadinessResult(True)


def _as_planned(server: ApiServer, each: ReplacedObject) -> dict[str, Any] | None:
    """Return the live object; None where it is not there. Raises HelmRefused where it is not what the plan saw."""
    raw = _live(server, each)
    if raw is None:
        return None
    if objects.meta(raw).get("uid") != each.uid:
        raise HelmRefused(f"{each} was made again by another party since the plan, and is left alone; plan again")
    if kept(raw) != dict(each.original):
        raise HelmRefused(f"{each} was changed since the plan, and is left alone; plan again")
    return raw


def _delete(server: ApiServer, job: HelmJob, each: ReplacedObject) -> None:
    for _ in range(TRIES):
        raw = _as_planned(server, each)
        if raw is None or objects.meta(raw).get("deletionTimestamp"):
            return
        seen = {"uid": each.uid, "resourceVersion": objects.meta(raw).get("resourceVersion")}
        how = {"propagationPolicy": "Background", "preconditions": seen}
        try:
            server.ask(Call("delete", each.plural, each.name), "DELETE", _path(each), body=how)
        except Conflict:
            continue  # another client, mostly its controller, wrote it since the look
        except NotFound:
            return
        job.tell(f"{each} is removed; the plan keeps it, and a revert puts it back.")
        return
    raise HelmWaits(f"{each} changes at every look, and is not deleted yet")


def _make(server: ApiServer, job: HelmJob, each: ReplacedObject) -> None:
    raw = _live(server, each)
    if raw is None:
        call, path = Call("create", each.plural, each.name), folder(each.api_version, each.plural, each.namespace)
        try:
            server.ask(call, "POST", path, query=_OWN, body=dict(each.original))
        except Conflict as error:
            raise HelmWaits(f"{each} is made by another client, and looked at again") from error
        job.tell(f"{each} is there again, as the plan kept it.")
    elif objects.meta(raw).get("deletionTimestamp"):
        raise HelmWaits(f"{each} is still being deleted; it is put back when it is gone")
    elif kept(raw) != dict(each.original):
        job.tell(f"{each} was made again by another party, and is left as it is.")


def _idle(readiness: Readiness, each: ReplacedObject) -> str:
    if each.kind != "DaemonSet":
        return ""
    what = {"namespace": each.namespace, "kind": each.kind, "names": [each.name]}
    return readiness.look([ReadinessTest("workloads", what)]).missing


def _pods_left(server: ApiServer, each: ReplacedObject) -> int:
    """Count the pods of the deleted object that have not ended."""
    labels = ((each.original.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    if not labels:
        return 0
    query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
    path = folder("v1", "pods", each.namespace)
    page = paging.listed(server, Call("list", "pods"), path, limit=500, query=query)
    return sum(_is_of(pod, each.uid) and not objects.is_finished(pod) for pod in page.items)


def _is_of(pod: dict[str, Any], uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in objects.meta(pod).get("ownerReferences") or ())


def _live(server: ApiServer, each: ReplacedObject) -> dict[str, Any] | None:
    try:
        return server.get(Call("get", each.plural, each.name), _path(each), each.kind)
    except NotFound:
        return None


def _path(each: ReplacedObject) -> str:
    return f"{folder(each.api_version, each.plural, each.namespace)}/{each.name}"
