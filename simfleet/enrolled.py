"""Enrollment of a simulated cluster as the port asks of it: what is installed, and which installation owns it."""

from __future__ import annotations

from typing import Any

from clusters import objects
from clusters.fleet import Equipment
from contract import names
from simfleet.apiserver.api import Api
from simfleet.apiserver.callers import Caller
from simfleet.apiserver.store import ApiError, Stored

_MARK = (names.INSTALLATION_CONFIGMAP, names.NAMESPACE)
_TRIES = 5


def equipment(api: Api, caller: Caller) -> Equipment:
    """Raises ApiError, but for what is only absent."""
    missing: list[str] = []

    def present(plural: str, name: str, label: str, namespace: str = "") -> dict[str, Any]:
        stored = _find(api, caller, plural, name, namespace)
        if stored is None:
            missing.append(f"{label} is not installed")
        return stored.raw if stored else {}

    def in_force(name: str) -> bool:
        policy = present("validatingadmissionpolicies", name, f"admission policy {name}")
        binding = present("validatingadmissionpolicybindings", name, f"binding of admission policy {name}")
        return bool(policy and binding)

    resource = f"{names.PLURAL}.{names.GROUP}"
    crd = present("customresourcedefinitions", resource, "the NodeTuning resource definition")
    is_served = bool(crd) and objects.condition(crd, "Established") == "True"
    if crd and not is_served:
        missing.append("the NodeTuning resource definition is not established")
    agent_policy, spec_policy = in_force(names.AGENT_POLICY), in_force(names.SPEC_POLICY)
    label = f"DaemonSet {names.NAMESPACE}/{names.AGENT_DAEMONSET}"
    daemons = present("daemonsets", names.AGENT_DAEMONSET, label, names.NAMESPACE).get("status") or {}
    needed = tuple(missing)  # the last policy is optional
    return Equipment(
        is_served,
        agent_policy,
        spec_policy,
        daemons.get("desiredNumberScheduled", 0),
        daemons.get("numberReady", 0),
        needed,
        in_force(names.HOLD_POLICY),
    )


def holder(api: Api, caller: Caller) -> str | None:
    mark = _find(api, caller, "configmaps", *_MARK)
    return _installation(mark) or None if mark else None


def claim(api: Api, caller: Caller, installation: str, *, take_over: bool) -> str:
    """Creating the mark is the claim: of two installations, the API server lets one be first. Raises ApiError."""
    body = {"metadata": {"name": _MARK[0]}, "data": {"installation": installation}}
    for _ in range(_TRIES):
        try:
            api.create(caller, "configmaps", body, names.NAMESPACE)
            return installation
        except ApiError as error:
            if error.code != 409:
                raise
        mark = _find(api, caller, "configmaps", *_MARK)
        if mark is None:
            continue  # removed meanwhile
        owner = _installation(mark)
        if owner == installation or (owner and not take_over):
            return owner
        metadata = {k: mark.raw["metadata"][k] for k in ("uid", "resourceVersion")}
        try:
            api.patch(caller, "configmaps", _MARK[0], {"metadata": metadata, "data": body["data"]}, _MARK[1])
            return installation
        except ApiError as error:
            if error.code not in (404, 409):
                raise
    raise ApiError(409, "Conflict", "the installation mark changes faster than it can be read")


def release(api: Api, caller: Caller, installation: str) -> None:
    mark = _find(api, caller, "configmaps", *_MARK)
    if mark is not None and _installation(mark) == installation:
        try:
            api.delete(caller, "configmaps", *_MARK, uid=mark.raw["metadata"]["uid"])
        except ApiError as error:
            if error.code not in (404, 409):  # gone, or taken over since it was read: not ours any more
                raise


def _find(api: Api, caller: Caller, plural: str, name: str, namespace: str = "") -> Stored | None:
    try:
        return api.get(caller, plural, name, namespace)
    except ApiError as error:
        if error.code != 404:
            raise
        return None


def _installation(mark: Stored) -> str:
    return str((mark.raw.get("data") or {}).get("installation") or "")
