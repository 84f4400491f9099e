"""Plan notes on the identities that carry a component out: is helm's a separate one, and is one too strong?"""

from __future__ import annotations

from collections.abc import Iterator

from clusters.fleet import FleetRefused
from clusters.kube.apiserver import ApiServer, Call
from clusters.models import Cluster, HelmCredential
from components.plans.prepared import BLOCK, WARN, PlanNote
from contract import names

FENCE = "setpoint-controller-tries"
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_OURS = {names.CONTROLLER_SERVICE_ACCOUNT, names.HELM_SERVICE_ACCOUNT, names.HELM_ISSUER_SERVICE_ACCOUNT}


def notes(cluster: Cluster, server: ApiServer) -> Iterator[PlanNote]:
    """Raises FleetUnavailable."""
    if not HelmCredential.objects.filter(cluster=cluster).exists() and _is_fenced(server):
        title = f"No credential for helm is stored for {cluster}"
        detail = f"In this cluster only {names.HELM_SERVICE_ACCOUNT} installs: `manage.py helm_credential {cluster}`."
        yield PlanNote(BLOCK, "helm-credential", title, detail)
    for account, binding in _administrators(server):
        title = f"{account} is a cluster administrator, by the binding {binding}"
        detail = (
            "With it the admission policies that hold Setpoint can be taken away. Remove the binding after this "
            f"rollout: `kubectl delete clusterrolebinding {binding}`."
        )
        yield PlanNote(WARN, "cluster-admin", title, detail)


def _is_fenced(server: ApiServer) -> bool:
    try:
        server.get(Call("get", "validatingadmissionpolicies", FENCE), f"{_POLICIES}/{FENCE}")
    except FleetRefused:
        return False
    return True


def _administrators(server: ApiServer) -> Iterator[tuple[str, str]]:
    """(Account, binding) of each of Setpoint's accounts that holds cluster-admin."""
    try:
        bindings = server.get(Call("list", "clusterrolebindings"), _BINDINGS).get("items") or []
    except FleetRefused:
        return  # an account that may not list them is none, or has no components in this cluster
    for binding in bindings:
        if (binding.get("roleRef") or {}).get("name") != "cluster-admin":
            continue
        for subject in binding.get("subjects") or ():
            if subject.get("namespace") == names.NAMESPACE and subject.get("name") in _OURS:
                yield str(subject["name"]), str((binding.get("metadata") or {}).get("name"))
