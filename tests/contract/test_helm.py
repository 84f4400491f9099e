"""helm v3 with the demo's charts, on the simulated fleet and on a real control plane with kwok nodes.

What only a simulated cluster can do, such as an operator that says `ready`, is in tests/simfleet/test_helm.py.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack

import pytest

from clusters.kube.apiserver import ApiServer
from tests.contract.objects import Objects
from tests.contract.worlds import RealWorld
from tests.controlplane.plane import LOOPBACK
from tests.simfleet.site import Helm, Site


class Simulated:
    def __init__(self, folder):
        self._site = Site(folder)
        self.helm, self.credentials = self._site.helm, self._site.credentials

    def node(self, name, labels):
        self._site.sim.add_node(name, labels=labels)

    def until(self, is_so):
        return self._site.until(is_so, locked=False)

    def clean(self):
        self._site.close()


class Real:
    def __init__(self, world, folder):
        self._world, self.credentials = world, world.plane.admin
        self.helm = Helm(folder, self.credentials)

    def node(self, name, labels):
        self._world.node(name, labels=labels)

    def until(self, is_so):
        return self._world.until(is_so)

    def clean(self):
        """Remove what a failed test left, so that the next meets no release, definition, hook nor namespace."""
        kubectl = self._world.plane.kubectl
        print(kubectl("get", "pods,jobs,nodes", "-A", "-o", "wide"))  # shown where the test failed
        with ExitStack() as steps:  # each is taken, whichever fails
            steps.callback(self._world.clean)
            steps.callback(kubectl, *("delete", "crd", *STAY, "--ignore-not-found"))
            for chart, (namespace, *_) in CHARTS.items():
                steps.callback(self._uninstall, chart, namespace)

    def _uninstall(self, chart, namespace):
        if self.helm("list", "--all", "--short", "--namespace", namespace):
            self.helm("uninstall", chart, "--namespace", namespace, "--no-hooks")
        self._world.plane.kubectl("delete", "jobs", "--all", "-n", namespace, "--ignore-not-found")


_serial = itertools.count(1)
STAY = ("clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com")
"""Definitions of a `crds/`, which outlive their release."""


@pytest.fixture(params=["sim", pytest.param("real", marks=pytest.mark.full)])
def place(request, tmp_path):
    if request.param == "sim":
        made = Simulated(tmp_path)
    else:
        world = RealWorld(request.getfixturevalue("deployed"), request.getfixturevalue("cluster_admin"))
        made = Real(world, tmp_path)
    server = ApiServer(made.credentials, policy=LOOPBACK, timeout=20)
    made.objects = Objects(server)
    for _ in range(2):  # never a name of the test before: kwok now and then overlooks a node that is there again
        made.node(f"helm-{next(_serial)}", {"nvidia.com/gpu.present": "true", "kubernetes.io/os": "linux"})
    yield made
    try:
        made.clean()
    finally:
        server.close()


CHARTS = {
    "cilium": (
        "kube-system",
        ["daemonsets/cilium", "deployments/cilium-operator"],
        ("operator.replicas=1", "deployments/cilium-operator", 1),
    ),
    "gpu-operator": (
        "gpu-operator",
        ["deployments/gpu-operator", "daemonsets/gpu-operator-node-feature-discovery-worker"],
        ("nfd.enabled=false", "daemonsets/gpu-operator-node-feature-discovery-worker", None),
    ),
    "volcano": (
        "volcano-system",
        ["deployments/volcano-scheduler", "deployments/volcano-controllers", "deployments/volcano-admission"],
        ("custom.scheduler_replicas=3", "deployments/volcano-scheduler", 3),
    ),
}


@pytest.mark.parametrize("chart", CHARTS)
def test_a_release_is_installed_upgraded_rolled_back_and_removed(place, chart):
    namespace, workloads, (setting, touched, after) = CHARTS[chart]
    apps = f"/apis/apps/v1/namespaces/{namespace}"
    place.helm.install(chart, namespace=namespace)
    for workload in workloads:
        place.until(lambda path=f"{apps}/{workload}": _is_ready(place.objects.get(path)[1]))

    before = place.objects.get(f"{apps}/{touched}")[1]["spec"].get("replicas", "a DaemonSet")
    place.helm.install(chart, "--set", setting, namespace=namespace)
    status, now = place.objects.get(f"{apps}/{touched}")
    assert now["spec"]["replicas"] == after if after else status == 404
    place.helm("rollback", chart, "1", "--namespace", namespace)
    assert place.objects.get(f"{apps}/{touched}")[1]["spec"].get("replicas", "a DaemonSet") == before
    assert place.helm.history(chart, namespace) == [(1, "superseded"), (2, "superseded"), (3, "deployed")]
    place.until(lambda: _is_ready(place.objects.get(f"{apps}/{touched}")[1]))

    place.helm("uninstall", chart, "--namespace", namespace)
    for workload in workloads:
        place.until(lambda path=f"{apps}/{workload}": not place.objects.exists(path))
    place.until(lambda: not _pods(place, namespace, chart))
    assert place.helm("list", "--all", "--short", "--namespace", namespace) == ""


def test_a_release_that_is_gone_leaves_custom_kinds_of_its_crds_folder_only(place):
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    place.helm.install("gpu-operator")
    place.helm.install("volcano", namespace="volcano-system")
    place.helm("uninstall", "gpu-operator", "--namespace", "gpu-operator")
    place.helm("uninstall", "volcano", "--namespace", "volcano-system")
    place.until(lambda: not place.objects.exists(f"{crds}/queues.scheduling.volcano.sh"))
    assert place.objects.exists(f"{crds}/clusterpolicies.nvidia.com")
    for name in STAY:
        place.objects.delete(f"{crds}/{name}")
        place.until(lambda path=f"{crds}/{name}": not place.objects.exists(path))


def test_what_is_upgraded_keeps_what_others_added(place):
    """helm merges three ways: its old manifest, its new one, and what lives there."""
    place.helm.install("volcano", "--wait", "--timeout", "50s", namespace="volcano-system")
    path = "/apis/apps/v1/namespaces/volcano-system/deployments/volcano-scheduler"
    container = {"name": "scheduler", "env": [{"name": "ADDED", "value": "by hand"}]}
    change = {
        "metadata": {"annotations": {"note": "mine"}},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    assert place.objects.patch(path, change, "application/strategic-merge-patch+json", fieldManager="alice")[0] == 200
    place.helm.install("volcano", "--set", "basic.image_tag_version=v1.15.2", namespace="volcano-system")
    now = place.objects.get(path)[1]
    [scheduler] = now["spec"]["template"]["spec"]["containers"]
    assert scheduler["image"].endswith(":v1.15.2")
    assert [e["name"] for e in scheduler["env"]] == ["ADDED"]
    assert now["metadata"]["annotations"]["note"] == "mine"
    place.helm("uninstall", "volcano", "--namespace", "volcano-system")
    place.until(lambda: not place.objects.exists(path))


def _is_ready(raw):
    status = raw.get("status") or {}
    if raw.get("kind") == "DaemonSet":
        wanted = status.get("desiredNumberScheduled")
        numbers = (status.get("numberReady"), status.get("updatedNumberScheduled"))
        return bool(wanted) and numbers == (wanted, wanted)
    numbers = (status.get("readyReplicas"), status.get("updatedReplicas"))
    return numbers == (raw["spec"]["replicas"],) * 2


def _pods(place, namespace, chart):
    """List the chart's pods; the simulated operator's own are deleted with its custom resource a moment later."""
    items = place.objects.get(f"/api/v1/namespaces/{namespace}/pods")[1]["items"]
    return [p for p in items if chart in p["metadata"]["name"]]
