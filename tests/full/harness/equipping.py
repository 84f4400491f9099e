"""A real control plane on which components can be carried out: the charts, the rights, workers for helm, and those who
answer for what charts bring, which has no operators of its own there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clusters.fleet import FleetError
from contract import names
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness import definitions
from tests.full.harness.site import Site

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
RIGHTS = DEPLOY / "setpoint-components.yaml"
RBAC = "rbac.authorization.k8s.io/v1"
CHARTS = "charts-of-the-demo"
GROUPS = ("cilium.io", "nvidia.com", "scheduling.volcano.sh", "batch.volcano.sh", "bus.volcano.sh", "flow.volcano.sh")
NAMESPACES = {"cilium": "kube-system", "volcano": "volcano-system", "gpu-operator": "gpu-operator"}
"""Where each component of the demo's charts goes."""
STORE = """
from config.demo import stock
stock.fill(by="admin@example.com")
"""
OWN = ("ciliumnodes", "ciliumendpoints")
"""Kinds that Cilium's operator makes itself; they stay."""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.cilium.io}
spec:
  group: cilium.io
  scope: Cluster
  names: {kind: PLURAL, plural: PLURAL}
  versions: [{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
"""
STAY = ("clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com", *(f"{name}.cilium.io" for name in OWN))


class Scheduler(threading.Thread):
    """Stand-in for Volcano's controllers: the queue `default` exists, and every queue is opened."""

    def __init__(self, admin: Admin, queues: Sequence[str]) -> None:
        super().__init__(name="scheduler", daemon=True)
        self._admin, self._queues, self.over = admin, queues, threading.Event()

    def run(self) -> None:
        queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}}
        while not self.over.wait(0.3):
            try:
                if self._admin.find("queues", "default") is None:
                    self._admin.create("queues", queue)
                for name in ("default", *self._queues):
                    if self._admin.find("queues", name):
                        self._admin.patch("queues", name, {"status": {"state": "Open"}}, subresource="status")
            except FleetError:
                continue  # its kind is not there now, or the API server is not


def give_helm(site: Site, plane: Plane, admin: Admin) -> None:
    """Give helm its credential and each component its own rights, as the cluster's administrator does."""
    issuer = admin.token(names.HELM_ISSUER_SERVICE_ACCOUNT)
    site.setpoint.manage("helm_credential", str(site.cluster["name"]), text=issuer)
    # The demo's charts bring objects of definitions that their operators make: all of their groups.
    rules = [{"apiGroups": list(GROUPS), "resources": ["*"], "verbs": ["*"]}]
    # And the roles that the charts grant: a right can be granted only by those that have it.
    watching = ["get", "list", "watch", "patch"]
    rules += [{"apiGroups": [""], "resources": ["nodes", "nodes/status", "pods", "services"], "verbs": watching}]
    rules += [{"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["*"]}]
    role = {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": CHARTS}, "rules": rules}
    subjects = [
        {"kind": "ServiceAccount", "name": account, "namespace": names.NAMESPACE}
        for account in (names.HELM_SERVICE_ACCOUNT, names.CONTROLLER_SERVICE_ACCOUNT)
    ]
    reference = {"apiGroup": RBAC.partition("/")[0], "kind": "ClusterRole", "name": CHARTS}
    binding = {"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": CHARTS}, "roleRef": reference}
    plane.kubectl("apply", "-f", "-", text=json.dumps(role))
    plane.kubectl("apply", "-f", "-", text=json.dumps(binding | {"subjects": subjects}))
    plane.kubectl("apply", "-f", str(DEPLOY / "setpoint-policies.yaml"))


@contextmanager
def equipped(
    site: Site, plane: Plane, admin: Admin, *, workers: Sequence[str] = ("helm",), queues: Sequence[str] = ()
) -> Iterator[None]:
    plane.kubectl("apply", "-f", str(RIGHTS))
    for name in OWN:
        plane.kubectl("apply", "-f", "-", text=DEFINITION.replace("PLURAL", name))
    site.setpoint.manage("shell", "-c", STORE)
    give_helm(site, plane, admin)
    site.setpoint.start(*workers)
    scheduler = Scheduler(admin, queues)
    scheduler.start()
    yield
    scheduler.over.set()
    scheduler.join()
    for name in workers:
        site.setpoint.stop(name)
    definitions.delete(plane, STAY)
    for name in ("volcano-system", "gpu-operator"):
        plane.kubectl("delete", "namespace", name, "--ignore-not-found")  # the next test may create it again
    plane.kubectl("delete", "clusterrolebinding,clusterrole", CHARTS)
    plane.kubectl("delete", "-f", str(RIGHTS))
    plane.kubectl("delete", "-f", str(DEPLOY / "setpoint-policies.yaml"))
