"""helm v3 itself against the simulated fleet: charts shaped like real ones, and charts that go wrong in one way."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from clusters.kube import discovery
from clusters.kube.apiserver import ApiServer
from components.catalog import catalog
from components.release.readiness import Readiness
from config.demo import packing
from simfleet import WallClock
from simfleet.apiserver.callers import person
from simfleet.apiserver.store import ApiError
from simfleet.controllers.operators import is_rolled_out
from simfleet.controllers.programs import Program
from simfleet.fleets import TAINT, TOLERATION, training_cluster
from simfleet.machines.hardware import Hardware
from tests.controlplane.plane import LOOPBACK
from tests.simfleet.site import BROKEN, SPEED, Site

NOT_READY = {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}
GPU_NODE = {"nvidia.com/gpu.present": "true"}


@pytest.fixture
def site(tmp_path, caplog):
    made = Site(tmp_path)
    for name in ("n1", "n2", "n3"):
        made.sim.add_node(name, gpus=8, labels=GPU_NODE)
    yield made
    made.close()
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


def test_a_network_plugin_clears_its_taint_is_upgraded_rolled_back_and_removed(site):
    for name in ("t1", "t2"):
        site.sim.add_node(name, taints=[NOT_READY])
    site.until(lambda: site.status("daemonsets", "setpoint-agent", "setpoint-system")["numberReady"] == 5)
    before = site.inventory()

    site.helm.install("cilium", namespace="kube-system")
    assert site.helm.history("cilium", "kube-system") == [(1, "deployed")]
    daemons = ("daemonsets", "cilium", "kube-system")
    site.until(lambda: site.status(*daemons).get("numberReady") == 5)
    assert "taints" not in site.object("nodes", "t1")["spec"]
    assert site.until(lambda: site.status("deployments", "cilium-operator", "kube-system").get("readyReplicas")) == 2
    site.until(lambda: site.sim.kind_key("cilium.io/v2", "CiliumNode"))  # the operator defines it when it runs

    site.helm.install("cilium", "--set", "MTU=9000", "--set", "operator.replicas=1", namespace="kube-system")
    site.until(lambda: site.status("deployments", "cilium-operator", "kube-system").get("replicas") == 1)
    assert site.object("configmaps", "cilium-config", "kube-system")["data"]["mtu"] == "9000"
    generation = site.object(*daemons)["metadata"]["generation"]
    assert generation == 2  # the checksum of the ConfigMap is in the template
    site.until(lambda: is_rolled_out(site.object(*daemons)))

    site.helm("rollback", "cilium", "1", "--namespace", "kube-system")
    assert [s for _, s in site.helm.history("cilium", "kube-system")] == ["superseded", "superseded", "deployed"]
    assert site.object("configmaps", "cilium-config", "kube-system")["data"]["mtu"] == "0"
    assert site.object("deployments", "cilium-operator", "kube-system")["spec"]["replicas"] == 2

    site.helm("uninstall", "cilium", "--namespace", "kube-system")
    left = {("customresourcedefinitions", "", f"cilium{what}s.cilium.io") for what in ("node", "endpoint")}
    site.until(lambda: site.inventory() - before <= left)
    assert site.inventory() == before | left  # what the operator made is not the release's


def test_an_operator_runs_its_hooks_makes_its_operands_and_says_ready(site):
    site.sim.add_node("bare", labels=GPU_NODE, hardware=Hardware(gpus=4, has_plugin=False))
    assert "nvidia.com/gpu" not in site.object("nodes", "bare")["status"]["allocatable"]
    before = site.inventory()

    site.helm.install("gpu-operator")
    site.until(lambda: site.status("clusterpolicies.nvidia.com", "cluster-policy").get("state") == "ready")
    assert site.status("daemonsets", "nvidia-operator-validator", "gpu-operator")["numberReady"] == 4
    site.until(lambda: site.object("nodes", "bare")["status"]["allocatable"].get("nvidia.com/gpu") == "4")
    jobs = [e.name for e in site.sim.audit if (e.verb, e.resource, e.code) == ("create", "jobs", 201)]
    assert jobs == ["gpu-operator-pre-install", "gpu-operator-post-install"]
    assert site.sim.objects("jobs") == []  # hook-succeeded

    site.helm.install("gpu-operator", "--set", "devicePlugin.version=v0.21.0")
    plugin = ("daemonsets", "nvidia-device-plugin-daemonset", "gpu-operator")
    site.until(lambda: "v0.21.0" in str(site.object(*plugin)["spec"]))
    site.until(lambda: is_rolled_out(site.object(*plugin)))
    site.until(lambda: site.status("clusterpolicies.nvidia.com", "cluster-policy").get("state") == "ready")

    site.helm("uninstall", "gpu-operator", "--namespace", "gpu-operator")
    crds = {("customresourcedefinitions", "", f"{p}.nvidia.com") for p in ("clusterpolicies", "nvidiadrivers")}
    site.until(lambda: site.inventory() == before | crds)  # from crds/: helm never takes them away
    # the kubelet's next look after the last pod of the plugin went
    site.until(lambda: site.object("nodes", "bare")["status"]["allocatable"]["nvidia.com/gpu"] == "0")


def test_a_scheduler_brings_webhooks_and_kinds_and_takes_the_objects_of_them_along(site):
    before = site.inventory()
    site.helm.install("volcano", namespace="volcano-system")
    queues = "queues.scheduling.volcano.sh"
    site.until(lambda: site.sim.store.find(queues, "default") and site.status(queues, "default").get("state") == "Open")
    webhook = site.object("validatingwebhookconfigurations", "volcano-admission-service-queues-validate")
    secret = site.object("secrets", "volcano-admission-secret", "volcano-system")
    assert webhook["webhooks"][0]["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]

    site.helm.install("volcano", "--set", "custom.scheduler_replicas=3", namespace="volcano-system")
    again = site.object("secrets", "volcano-admission-secret", "volcano-system")
    assert again["data"]["ca.crt"] != secret["data"]["ca.crt"]  # genCA: another one with every rendering
    site.until(lambda: site.status("deployments", "volcano-scheduler", "volcano-system").get("readyReplicas") == 3)

    site.helm("uninstall", "volcano", "--namespace", "volcano-system")
    site.until(lambda: site.inventory() == before)
    assert site.sim.kind_key("scheduling.volcano.sh/v1beta1", "Queue") == ""


def test_helm_asks_for_the_kinds_again_once_it_has_made_definitions(site):
    """Helm takes its cache of an earlier run for fresh while that is dated ahead of the wall clock."""
    site.until(lambda: site.sim.clock.now() > WallClock().now() + timedelta(minutes=1))
    site.helm.install("cilium", namespace="kube-system")
    site.helm.install("gpu-operator")


def missing(site, name):
    """Return what the catalog's readiness still lacks, as a rollout's step checks it."""
    component, server = catalog.get(name), ApiServer(site.credentials, policy=LOOPBACK)
    look = Readiness(server, discovery.read(server), component.namespace).look(component.tests(name, component.values))
    server.close()
    return look.missing


def test_a_bare_cluster_becomes_one_that_work_can_run_on(tmp_path):
    """The demo's story: network, GPUs, scheduler; and then one is broken by hand."""
    sim = training_cluster("bare", nodes=4, clock=WallClock(SPEED), live=True, is_busy=False, is_equipped=False)
    sim.add_pod("train", gpus=8, tolerations=[TOLERATION])
    site = Site(tmp_path, sim)
    train = ("pods", "train", "default")
    site.until(lambda: "0/7 nodes" in str(site.status(*train)))
    site.helm.install("cilium", namespace="kube-system")
    site.helm.install("gpu-operator")
    site.helm.install("volcano", namespace="volcano-system")
    site.until(lambda: site.status(*train).get("phase") == "Running")
    for name in ("cilium", "gpu-operator", "volcano"):
        site.until(lambda name=name: not missing(site, name), locked=False)
    assert sum(int(n["status"]["allocatable"].get("nvidia.com/gpu", 0)) for n in sim.objects("nodes")) == 32
    assert {n["metadata"]["name"]: n["spec"]["taints"] for n in sim.objects("nodes")}["bare-gpu-001"] == [TAINT]

    containers = [{"name": "cilium-agent", "image": "registry.example/cilium/cilium:no-such-tag"}]
    change = {"spec": {"template": {"spec": {"containers": containers}}}}
    daemons = ("daemonsets", "cilium", "kube-system")
    sim.api.patch(person("mallory"), "daemonsets", "cilium", change, "kube-system", is_strategic=True)
    site.until(lambda: site.status(*daemons)["numberReady"] < 7)
    entries = site.object(*daemons)["metadata"]["managedFields"]
    [hers] = [e for e in entries if "f:image" in str(e) and e["manager"] != "helm"]
    assert hers["manager"] == "kubectl-edit"
    site.helm("rollback", "cilium", "1", "--namespace", "kube-system")
    site.until(lambda: is_rolled_out(site.object(*daemons)))
    site.close()


def test_what_others_hold_is_not_taken_over(site):
    site.sim.pods.workload("DaemonSet", "cilium", namespace="kube-system")
    complaint = site.helm.install("cilium", namespace="kube-system", fails=True)
    assert 'DaemonSet "cilium" in namespace "kube-system" exists and cannot be imported' in complaint


def test_templates_are_validated_against_the_kinds_that_are_served(site):
    site.helm("template", "volcano", site.helm.chart("volcano"), "--validate")
    complaint = site.helm("template", "x", site.helm.chart("gpu-operator"), "--validate", fails=True)
    assert 'no matches for kind "ClusterPolicy" in version "nvidia.com/v1"' in complaint


# ── what goes wrong ───────────────────────────────────────────────────────────────────────────────────────────────────
def _pods(site, namespace):
    with site.sim.lock:
        return [p.raw for p in site.sim.store.all("pods", namespace)]


def _waiting(site, namespace):
    statuses = [s for p in _pods(site, namespace) for s in p["status"].get("containerStatuses") or ()]
    return {s["state"]["waiting"]["reason"] for s in statuses if "waiting" in s["state"]}


def test_an_image_that_no_registry_has_keeps_its_pod_waiting_until_it_is_there(site):
    site.helm.install("unpullable")
    site.until(lambda: _waiting(site, "unpullable") == {"ImagePullBackOff"})
    assert site.status("deployments", "broken", "unpullable")["unavailableReplicas"] == 1
    site.until(lambda: site.status("deployments", "sound", "unpullable").get("readyReplicas") == 1)
    [event] = site.sim.objects("events")
    assert (event["reason"], event["type"]) == ("Failed", "Warning")
    assert "no-such-image:1: not found" in event["message"]

    site.sim.programs.add(Program("*/no-such-image:1"))  # it is pushed by then
    site.until(lambda: site.status("deployments", "broken", "unpullable").get("readyReplicas") == 1)
    site.helm("uninstall", "unpullable", "--namespace", "unpullable")
    site.until(lambda: _pods(site, "unpullable") == [])


def test_a_program_that_ends_at_once_is_restarted_ever_more_slowly_and_an_upgrade_mends_it(site):
    site.helm.install("crash-loop")
    site.until(lambda: len(_pods(site, "crash-loop")) == 3)
    pod = _pods(site, "crash-loop")[0]["metadata"]["name"]
    restarts = lambda: site.status("pods", pod, "crash-loop").get("containerStatuses", [{}])[0].get("restartCount", 0)  # noqa: E731
    site.until(lambda: restarts() >= 2)
    assert site.status("daemonsets", "agent", "crash-loop")["numberReady"] == 0

    site.helm.install("crash-loop", "--set", "image=registry.example/agent:2")
    site.until(lambda: site.status("daemonsets", "agent", "crash-loop").get("numberReady") == 3)
    site.helm("rollback", "crash-loop", "1", "--namespace", "crash-loop")
    site.until(lambda: site.status("daemonsets", "agent", "crash-loop").get("numberReady", 3) < 3)


def test_a_hook_that_fails_ends_the_installation_before_anything_else_is_there(site):
    complaint = site.helm.install("failing-hook", fails=True)
    assert "pre-install hooks failed" in complaint or "failed pre-install" in complaint
    assert "BackoffLimitExceeded" in complaint
    assert site.helm.history("failing-hook") == [(1, "failed")]
    with pytest.raises(ApiError, match="not found"):
        site.object("configmaps", "settings", "failing-hook")


@pytest.mark.parametrize(
    ("chart", "words", "complaint"),
    [
        ("unrenderable", (), "endpoint must be set"),
        ("strict-values", ("--set", "replicas=9"), "replicas: Must be less than or equal to 5"),
        ("strict-values", ("--set", "replica=2"), "Additional property replica is not allowed"),
    ],
)
def test_what_does_not_render_leaves_nothing(site, chart, words, complaint):
    before = site.inventory()
    assert complaint in site.helm.install(chart, *words, fails=True)
    assert site.inventory() == before


def test_an_api_server_lost_half_way_leaves_a_pending_release_and_is_back_when_it_says(site):
    site.sim.faults.add("vanish", verb="create", resource="deployments", times=1, outage_seconds=20)
    site.helm.install("cilium", namespace="kube-system", fails=True)
    site.until(lambda: not site.sim.faults.outage)
    assert site.helm.history("cilium", "kube-system") == [(1, "pending-install")]
    assert site.object("daemonsets", "cilium", "kube-system")
    assert "another operation" in site.helm.install("cilium", namespace="kube-system", fails=True)


def test_archives_are_the_same_bytes_every_time(tmp_path):
    charts = [*packing.CHARTS.iterdir(), *BROKEN.iterdir()]
    folders = [c for c in charts if c.is_dir()]
    assert len(folders) == 8
    for folder in folders:
        assert packing.pack(folder) == packing.pack(folder)
        assert (folder / "Chart.yaml").read_text().splitlines()[1] == f"name: {folder.name}"
