"""Questions about a whole cluster: its identity, what Setpoint may do there, what is installed, and whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters import objects
from clusters.fleet import Conflict, Equipment, Forbidden, Identity, NotFound, Permission, Review, Untrusted
from clusters.kube.apiserver import MERGE, ApiServer, Call
from contract import names

CONFLICT_TRIES = 5
"""Losing five races in a row means that something else is wrong; kubelets write a node's status every few seconds."""

_NAMESPACES = "/api/v1/namespaces"
_CONFIGMAPS = f"{_NAMESPACES}/{names.NAMESPACE}/configmaps"
_MARK = f"{_CONFIGMAPS}/{names.INSTALLATION_CONFIGMAP}"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_CRD = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.PLURAL}.{names.GROUP}"
_DAEMONS = f"/apis/apps/v1/namespaces/{names.NAMESPACE}/daemonsets/{names.AGENT_DAEMONSET}"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def identify(server: ApiServer) -> Identity:
    space = server.get(Call("get", "namespaces", "kube-system"), f"{_NAMESPACES}/kube-system", "Namespace")
    version = server.get(Call("get", "version"), "/version")
    uid, git = objects.meta(space).get("uid"), version.get("gitVersion")
    if not isinstance(uid, str) or not uid or not isinstance(git, str):
        raise Untrusted("the server does not identify itself as a Kubernetes API server")
    return Identity(uid=uid, version=git)


def review(server: ApiServer, permission: Permission) -> Review:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": permission.namespace,
        "name": permission.name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = server.ask(Call("create", "selfsubjectaccessreviews"), "POST", _REVIEWS, body=body)
    status = answer.object("SelfSubjectAccessReview").get("status") or {}
    return Review(permission, allowed=status.get("allowed") is True, reason=str(status.get("reason") or ""))


def equipment(server: ApiServer) -> Equipment:
    missing: list[str] = []

    def present(resource: str, path: str, label: str) -> dict[str, Any]:
        try:
            return server.get(Call("get", resource), path)
        except NotFound:
            missing.append(f"{label} is not installed")
        except Forbidden as error:
            missing.append(f"{label}: {error}")
        return {}

    def in_force(name: str) -> bool:
        policies, bindings = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
        policy = present(policies, f"{_ADMISSION}/{policies}/{name}", f"admission policy {name}")
        binding = present(bindings, f"{_ADMISSION}/{bindings}/{name}", f"binding of admission policy {name}")
        return bool(policy and binding)

    crd = present("customresourcedefinitions", _CRD, "the NodeTuning resource definition")
    is_served = bool(crd) and objects.condition(crd, "Established") == "True"
    if crd and not is_served:
        missing.append("the NodeTuning resource definition is not established")
    agent_policy, spec_policy = in_force(names.AGENT_POLICY), in_force(names.SPEC_POLICY)
    daemons = (
        present("daemonsets", _DAEMONS, f"DaemonSet {names.NAMESPACE}/{names.AGENT_DAEMONSET}").get("status") or {}
    )
    needed = tuple(missing)  # the last policy is optional
    return Equipment(
        crd=is_served,
        agent_policy=agent_policy,
        spec_policy=spec_policy,
        agent_desired=int(daemons.get("desiredNumberScheduled") or 0),
        agent_ready=int(daemons.get("numberReady") or 0),
        missing=needed,
        hold_policy=in_force(names.HOLD_POLICY),
    )


def holder(server: ApiServer) -> str | None:
    mark = _read_mark(server)
    return (_installation(mark) or None) if mark else None


def claim(server: ApiServer, installation: str, *, take_over: bool) -> str:
    """Creating the ConfigMap is the claim: of two installations, the API server lets one be first."""
    mark = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.INSTALLATION_CONFIGMAP, "namespace": names.NAMESPACE},
        "data": {"installation": installation},
    }
    for _ in range(CONFLICT_TRIES):
        try:
            server.ask(Call("create", "configmaps"), "POST", _CONFIGMAPS, body=mark)
            return installation
        except Conflict:
            present = _read_mark(server)
        if not present:
            continue  # removed meanwhile
        owner = _installation(present)
        if owner == installation or (owner and not take_over):
            return owner
        change = {"metadata": _as_read(present), "data": {"installation": installation}}
        call = Call("patch", "configmaps", names.INSTALLATION_CONFIGMAP)
        try:
            server.ask(call, "PATCH", _MARK, body=change, content_type=MERGE)
            return installation
        except (Conflict, NotFound):
            continue  # another party was faster: look again
    raise Conflict("the installation mark changes faster than it can be read")


def release(server: ApiServer, installation: str) -> None:
    mark = _read_mark(server)
    if not mark or _installation(mark) != installation:
        return
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": _as_read(mark)}
    try:
        server.ask(Call("delete", "configmaps", names.INSTALLATION_CONFIGMAP), "DELETE", _MARK, body=options)
    except (NotFound, Conflict):
        return  # gone, or taken over since it was read: not ours any more


def _read_mark(server: ApiServer) -> dict[str, Any] | None:
    try:
        return server.get(Call("get", "configmaps", names.INSTALLATION_CONFIGMAP), _MARK, "ConfigMap")
    except NotFound:
        return None


def _installation(mark: Mapping[str, Any]) -> str:
    return str((mark.get("data") or {}).get("installation") or "")


def _as_read(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {"uid": objects.meta(raw).get("uid"), "resourceVersion": objects.meta(raw).get("resourceVersion")}
