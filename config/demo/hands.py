"""A person's way to the demo's clusters beside Setpoint: a kubeconfig, and what one may break with it.

Each act is one request to the simulated API server, and says the kubectl command that does the same.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clusters.fleet import NotFound
from clusters.kube.apiserver import ApiServer, Call
from clusters.net.credentials import Credentials, from_kubeconfig
from clusters.net.egress import Policy
from config.demo.environment import LOOPBACK
from simfleet.controllers import switches

FILE = "demo.kubeconfig"
"""Beside demo.env."""
APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
MORE_GPUS = {"spec": {"hard": {"requests.nvidia.com/gpu": "64"}}}
NO_IMAGE = "registry.example/volcanosh/vc-scheduler:no-such-tag"
_FAULTS = f"/api/v1/namespaces/{switches.NAMESPACE}/configmaps/{switches.NAME}"


@dataclass(frozen=True, slots=True)
class Act:
    says: str
    kubectl: str
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    content_type: str = "application/json"
    needs: str = ""
    """What must be there first, in words; empty: nothing, and what is gone already is fine."""


def switched(says: str, **data: str) -> Act:
    literals = " ".join(f"--from-literal='{name}={value}'" for name, value in data.items())
    place = {"name": switches.NAME, "namespace": switches.NAMESPACE}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": place, "data": data}
    kubectl = f"-n {switches.NAMESPACE} create configmap {switches.NAME} {literals}"
    return Act(says, kubectl, "PATCH", _FAULTS, body, APPLY)


ACTS: Mapping[str, Act] = {
    "image": Act(
        "Volcano's scheduler has an image that no registry has.",
        f"-n volcano-system set image deployment/volcano-scheduler scheduler={NO_IMAGE}",
        "PATCH",
        "/apis/apps/v1/namespaces/volcano-system/deployments/volcano-scheduler",
        {"spec": {"template": {"spec": {"containers": [{"name": "scheduler", "image": NO_IMAGE}]}}}},
        STRATEGIC,
        needs="Volcano",
    ),
    "config": Act(
        "Cilium's ConfigMap is gone.",
        "-n kube-system delete configmap cilium-config",
        "DELETE",
        "/api/v1/namespaces/kube-system/configmaps/cilium-config",
        needs="Cilium",
    ),
    "quota": Act(
        "The quota of the namespace pretraining allows 64 GPUs: a user made room for their own job.",
        f"-n pretraining patch resourcequota gpus --type=merge -p '{json.dumps(MORE_GPUS)}'",
        "PATCH",
        "/api/v1/namespaces/pretraining/resourcequotas/gpus",
        MORE_GPUS,
        MERGE,
        needs="The quota of pretraining",
    ),
    "no-quota": Act(
        "The quota of the namespace pretraining is gone: its pods may take every GPU.",
        "-n pretraining delete resourcequota gpus",
        "DELETE",
        "/api/v1/namespaces/pretraining/resourcequotas/gpus",
        needs="The quota of pretraining",
    ),
    "registry": switched("From now on no node can pull Volcano's images.", missing="*/vc-*"),
    "crash": switched("From now on Volcano's controllers end as soon as they start.", crashing="*/vc-controller-*"),
    "outage": switched(
        f"When helm next creates a Deployment, the API server is away for {switches.UNREACHABLE_SECONDS:.0f} s.",
        unreachable="deployments",
    ),
    "mend": Act(
        "Registry, programs and API server are sound again. What was changed in the cluster stays: that is drift.",
        f"-n {switches.NAMESPACE} delete configmap {switches.NAME}",
        "DELETE",
        _FAULTS,
    ),
}


def kubeconfig(clusters: Mapping[str, Credentials], current: str) -> str:
    """One context for each cluster, as JSON, which is YAML."""

    def listed(what: str, of: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{"name": name, what: body} for name, body in of.items()]

    servers = {
        name: {
            "server": credentials.server,
            "certificate-authority-data": base64.b64encode(credentials.ca.encode()).decode(),
        }
        for name, credentials in clusters.items()
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": listed("cluster", servers),
        "users": listed("user", {name: {"token": credentials.token} for name, credentials in clusters.items()}),
        "contexts": listed("context", {name: {"cluster": name, "user": name} for name in clusters}),
        "current-context": current,
    }
    return json.dumps(document, indent=1)


def do(act: Act, file: Path, cluster: str) -> None:
    """Raises BadCredentials, FleetError, OSError: no such file, so no demo runs."""
    credentials = from_kubeconfig(file.read_bytes(), now=datetime.now(tz=UTC), context=cluster)
    call = Call(act.method.lower(), act.path.rsplit("/", 2)[1], act.path.rsplit("/", 1)[1])
    # As kubectl names its edits: managedFields then shows a person.
    query = {} if act.method == "DELETE" else {"fieldManager": "kubectl-edit", "force": "true"}
    server = ApiServer(credentials, policy=Policy.of([LOOPBACK]))
    try:
        server.ask(call, act.method, act.path, query=query, body=act.body, content_type=act.content_type)
    except NotFound:
        if act.needs:
            raise
    finally:
        server.close()
