"""Acts of a cluster's administrator and its workloads, for tests: nodes, pods, budgets, tokens; editing, deleting."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from clusters.fleet import NotFound
from clusters.kube.apiserver import JSON, MERGE, ApiServer, Call
from contract import names
from tests.controlplane.plane import LOOPBACK, Plane

WAIT_SECONDS = 60
"""The garbage collector looks for new kinds of objects every 30 s: no wait is shorter than that."""
_serial = itertools.count(1)
_GROUPS = {
    "resourceslices": ("resource.k8s.io/v1", False),
    "nodes": ("", False),
    "namespaces": ("", False),
    "pods": ("", True),
    "configmaps": ("", True),
    "serviceaccounts": ("", True),
    "resourcequotas": ("", True),
    "limitranges": ("", True),
    "priorityclasses": ("scheduling.k8s.io/v1", False),
    "poddisruptionbudgets": ("policy/v1", True),
    "replicasets": ("apps/v1", True),
    "deployments": ("apps/v1", True),
    "daemonsets": ("apps/v1", True),
    "jobs": ("batch/v1", True),
    "cronjobs": ("batch/v1", True),
    "leases": ("coordination.k8s.io/v1", True),
    "nodetunings": (names.API_VERSION, False),
    "queues": ("scheduling.volcano.sh/v1beta1", False),
    "persistentvolumes": ("", False),
    "networkpolicies": ("networking.k8s.io/v1", True),
    "roles": ("rbac.authorization.k8s.io/v1", True),
    "rolebindings": ("rbac.authorization.k8s.io/v1", True),
}
FAKE = {"kwok.x-k8s.io/node": "fake"}
"""kwok keeps a node with this annotation Ready and runs its pods."""
LEFT_ALONE = {"kwok.x-k8s.io/status": "custom"}
"""kwok writes no status of what has this annotation."""
EVICTED: dict[str, Any] = {"tolerations": []}
"""The spec of a pod that a NoExecute taint ends: tests' pods tolerate every taint."""


class Admin:
    """Raw verbs as cluster-admin, or with the given credentials. Errors are clusters.fleet's."""

    def __init__(self, plane: Plane, credentials: Any = None) -> None:
        self.plane = plane
        self._server = ApiServer(credentials or plane.admin, policy=LOOPBACK, timeout=20)

    def close(self) -> None:
        self._server.close()

    # ── raw verbs ─────────────────────────────────────────────────────────────────────────────────────────────────
    def get(self, plural: str, name: str, namespace: str = "") -> dict[str, Any]:
        return self._ask("get", "GET", plural, namespace, name)

    def find(self, plural: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        try:
            return self.get(plural, name, namespace)
        except NotFound:
            return None

    def create(self, plural: str, raw: Mapping[str, Any], namespace: str = "") -> dict[str, Any]:
        return self._ask("create", "POST", plural, namespace, body=raw)

    def patch(
        self, plural: str, name: str, change: Mapping[str, Any], namespace: str = "", *, subresource: str = ""
    ) -> dict[str, Any]:
        """A merge patch."""
        return self._ask("patch", "PATCH", plural, namespace, name, subresource, body=change, content_type=MERGE)

    def post(
        self, plural: str, name: str, subresource: str, raw: Mapping[str, Any], namespace: str = ""
    ) -> dict[str, Any]:
        return self._ask("create", "POST", plural, namespace, name, subresource, body=raw)

    def delete(self, plural: str, name: str, namespace: str = "", *, grace: int | None = None) -> None:
        """Delete an object; one that is gone already is no error."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace  # type: ignore[assignment]
        try:
            self._ask("delete", "DELETE", plural, namespace, name, body=options)
        except NotFound:
            pass

    def _ask(
        self,
        verb: str,
        method: str,
        plural: str,
        namespace: str,
        name: str = "",
        subresource: str = "",
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
    ) -> dict[str, Any]:
        group, is_namespaced = _GROUPS[plural]
        parts = [f"/apis/{group}" if group else "/api/v1"]
        parts += [f"namespaces/{namespace or 'default'}"] if is_namespaced else []
        path = "/".join([*parts, plural, *filter(None, (name, subresource))])
        call = Call(verb, plural, name)
        query = None if method in ("GET", "DELETE") else {"fieldManager": "kubectl-edit"}
        return self._server.ask(call, method, path, body=body, content_type=content_type, query=query).object()

    # ── things ────────────────────────────────────────────────────────────────────────────────────────────────────
    def node(
        self,
        name: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        gpus: int = 0,
        kwok: bool = True,
    ) -> dict[str, Any]:
        """A node. kwok makes it Ready and runs its pods; without, it is a bare object for a test's own agent."""
        name = name or f"node-{next(_serial)}"
        # Both names of the system, as kubelets register; the controller-manager adds a missing one some time later.
        system = {"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
        self.create(
            "nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {"kubernetes.io/hostname": name, **system, **(labels or {})},
                    "annotations": {**(FAKE if kwok else {}), **(annotations or {})},
                },
                "status": {"capacity": capacity, "allocatable": capacity},
            },
        )
        if kwok:
            return self._started("nodes", name, "", is_schedulable)
        return self.get("nodes", name)

    def pod(
        self,
        name: str = "",
        *,
        node: str = "",
        namespace: str = "default",
        labels: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
        owner: Mapping[str, Any] | None = None,
        running: bool = True,
        address: str = "",
    ) -> dict[str, Any]:
        """A pod bound to a node. `running` waits for kwok to start it.

        With an `address` it is kept from kwok, which could write an address of its own over that one at any time.
        """
        name = name or f"pod-{next(_serial)}"
        owners = [{**owner, "controller": True}] if owner else []
        self.create(
            "pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "labels": dict(labels or {}),
                    "annotations": LEFT_ALONE if address else {},
                    "ownerReferences": owners,
                },
                "spec": {
                    "containers": [{"name": "main", "image": "none"}],
                    "terminationGracePeriodSeconds": 1,
                    "tolerations": [{"operator": "Exists"}],
                    **({"nodeName": node} if node else {}),
                    **(spec or {}),
                },
            },
            namespace,
        )
        if address:
            status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
            return self.patch("pods", name, {"status": status}, namespace, subresource="status")
        if running:
            return self._started("pods", name, namespace, is_running)
        return self.get("pods", name, namespace)

    def budget(
        self, name: str, *, selector: Mapping[str, str], min_available: int, namespace: str = "default"
    ) -> dict[str, Any]:
        """A PodDisruptionBudget, once its controller has counted."""
        spec = {"minAvailable": min_available, "selector": {"matchLabels": dict(selector)}}
        raw = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
        made = self.create("poddisruptionbudgets", raw, namespace)
        generation = made["metadata"]["generation"]
        return self.wait(
            "poddisruptionbudgets",
            name,
            namespace,
            until=lambda pdb: (pdb.get("status") or {}).get("observedGeneration") == generation,
        )

    def namespace(self, name: str) -> None:
        if self.find("namespaces", name) is None:
            self.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.wait("serviceaccounts", "default", name, until=bool)

    def set_ready(self, node: str, *, ready: bool) -> None:
        """Report a node's condition as a kubelet does. kwok leaves the node's status alone from now on."""
        self.leave_alone("nodes", node)
        conditions = [c for c in self.get("nodes", node)["status"]["conditions"] if c["type"] != "Ready"]
        conditions.append({"type": "Ready", "status": str(ready), "reason": "Test", "message": "said by the test"})
        self.patch("nodes", node, {"status": {"conditions": conditions}}, subresource="status")

    def _started(
        self, plural: str, name: str, namespace: str, until: Callable[[dict[str, Any]], object]
    ) -> dict[str, Any]:
        """kwok now and then overlooks what took the name of something just deleted; any change makes it look again."""
        try:
            return self.wait(plural, name, namespace, until=until, seconds=5)
        except AssertionError:
            self.patch(plural, name, {"metadata": {"annotations": {"test/nudge": str(next(_serial))}}}, namespace)
        return self.wait(plural, name, namespace, until=until)

    def leave_alone(self, plural: str, name: str, namespace: str = "") -> dict[str, Any]:
        """kwok changes its status no more; a pod that is told to end stays, unless told with grace 0."""
        return self.patch(plural, name, {"metadata": {"annotations": LEFT_ALONE}}, namespace)

    def set_boot_id(self, node: str, boot_id: str) -> None:
        info = self.get("nodes", node)["status"].get("nodeInfo") or {}
        self.patch("nodes", node, {"status": {"nodeInfo": {**info, "bootID": boot_id}}}, subresource="status")

    def wait(
        self,
        plural: str,
        name: str,
        namespace: str = "",
        *,
        until: Callable[[dict[str, Any]], object],
        seconds: float = WAIT_SECONDS,
    ) -> dict[str, Any]:
        """The object as soon as it is there and `until` says so. Raises AssertionError after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            current = self.find(plural, name, namespace)
            if current is not None and until(current):
                return current
            if time.monotonic() > deadline:
                raise AssertionError(f"{plural} {name} is not as awaited after {seconds:g} s: {current}")
            time.sleep(0.1)

    def wait_gone(self, plural: str, name: str, namespace: str = "") -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while current := self.find(plural, name, namespace):
            if time.monotonic() > deadline:
                raise AssertionError(f"{plural} {name} is still there after {WAIT_SECONDS} s: {current}")
            time.sleep(0.1)

    # ── who may ───────────────────────────────────────────────────────────────────────────────────────────────────
    def token(self, account: str, namespace: str = names.NAMESPACE, *, pod: Mapping[str, Any] | None = None) -> str:
        """A service account's token, bound to a pod (and so to its node) when one is given. Lives an hour."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if pod:
            meta = pod["metadata"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str(self.post("serviceaccounts", account, "token", request, namespace)["status"]["token"])

    def agent_token(self, node: str) -> str:
        """Return the token that the agent's pod on this node mounts: the service account's, bound to a pod there."""
        pod = self.pod(
            f"agent-on-{node}-{next(_serial)}",
            node=node,
            namespace=names.NAMESPACE,
            spec={"serviceAccountName": names.AGENT_SERVICE_ACCOUNT},
            running=False,
        )
        return self.token(names.AGENT_SERVICE_ACCOUNT, pod=pod)

    def controller_token(self) -> str:
        return self.token(names.CONTROLLER_SERVICE_ACCOUNT)


def is_schedulable(node: Mapping[str, Any]) -> bool:
    """Ready, and the node controller has taken its not-ready taints away."""
    conditions = (node.get("status") or {}).get("conditions") or []
    is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = (node.get("spec") or {}).get("taints") or []
    return is_ready and not any(t["key"].startswith("node.kubernetes.io/not-ready") for t in taints)


def is_running(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"
