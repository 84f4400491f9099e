"""What the API server makes of an object before it stores it: the two policies of deploy/, defaults, pruning."""

from __future__ import annotations

from typing import Any

from contract import names
from simfleet.callers import Caller
from simfleet.resources import RESOURCES
from simfleet.store import ApiError, Raw, Store, Stored


def check(store: Store, caller: Caller, plural: str, old: Stored | None, new: Raw, *, subresource: str = "") -> None:
    """The two admission policies, while they are installed. Raises ApiError 403."""
    if plural != "nodetunings":
        return
    name = new["metadata"]["name"]
    if caller.user == names.AGENT_USERNAME:
        if store.find("validatingadmissionpolicies", names.AGENT_POLICY) and caller.node != name:
            raise _denied(plural, name, names.AGENT_POLICY, "an agent may write only its own node's object")
    elif caller.user != names.CONTROLLER_USERNAME and not subresource:
        has_changed = old is None or old.raw.get("spec") != new.get("spec")
        if has_changed and store.find("validatingadmissionpolicies", names.SPEC_POLICY):
            raise _denied(plural, name, names.SPEC_POLICY, "only Setpoint may create or change what a node is asked")


def _denied(plural: str, name: str, policy: str, message: str) -> ApiError:
    return ApiError(
        403,
        "Forbidden",
        f"{RESOURCES[plural].qualified} \"{name}\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding "
        f"'{policy}' denied request: {message}",
    )


def defaulted(plural: str, raw: Raw) -> Raw:
    """Without the empty values that Go's encoder leaves out."""
    if plural != "nodes":
        return raw
    spec = dict(raw.get("spec") or {})
    taints = [{k: v for k, v in t.items() if v or k == "key"} for t in spec.pop("taints", None) or ()]
    return raw | {"spec": spec | ({"taints": taints} if taints else {})}


def without_nulls(raw: Any) -> Any:
    """Nulls of fields that are not nullable are pruned from custom resources."""
    if isinstance(raw, dict):
        return {k: without_nulls(v) for k, v in raw.items() if v is not None}
    return [without_nulls(v) for v in raw] if isinstance(raw, list) else raw
