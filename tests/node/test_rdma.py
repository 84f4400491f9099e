"""RDMA devices allocated to pods on a real node: its kernel's soft RoCE, and the device plugin for shared RDMA devices.

The plugin is built from its Go module, and Setpoint's own are the modules, the limit of locked memory and the policy.
Two things are the test's: the Network Operator, whose program cannot be had here, is played; and because the kernel
gives soft RoCE no PCI function, while the plugin looks for a device below one, its pod sees such an entry in sysfs. All
else is the kernel's and the kubelet's: the device files, their allocation, and what passes between two pods.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.charts.cases import NEEDS_CHARTS, archive
from tests.full.harness.client import eventually
from tests.full.harness.equipping import DEPLOY, RIGHTS
from tests.full.harness.site import SETTINGS, Site
from tests.node.conftest import joined, opened
from tests.nodemachine import companions
from tests.nodemachine.disk import WITH_RDMA
from tests.nodemachine.node import AGENT, Node

pytestmark = [NEEDS_CHARTS, pytest.mark.long, pytest.mark.usefixtures("judged")]

PLUGIN = "rdma-shared-device-plugin"
OPERATOR = "26.4.1"
"""Version of the chart whose definition of a NicClusterPolicy the cluster gets."""
DEVICE, RESOURCE, SHARES = "rxe0", "rdma/roce", "2"
MODULES = ("module.ib_umad", "module.ib_uverbs", "module.rdma_rxe", "module.rdma_ucm")
"""The two last ones use ib_uverbs: a revert has to unload them first."""
MEMLOCK = "containerd.LimitMEMLOCK"
PLUGIN_SECONDS = 2
"""Between the plugin's looks for devices."""
POLICY = f"""
policies:
  - apiVersion: mellanox.com/v1alpha1
    kind: NicClusterPolicy
    metadata: {{name: nic-cluster-policy}}
    spec:
      rdmaSharedDevicePlugin:
        repository: ghcr.io/mellanox
        image: k8s-rdma-shared-dev-plugin
        version: v1.5.3
        config: |
          {{"periodicUpdateInterval": {PLUGIN_SECONDS}, "configList": [
            {{"resourceName": "roce", "rdmaHcaMax": {SHARES}, "selectors": {{"drivers": ["virtio-pci"]}}}}]}}
"""
ADAPTER = "/run/adapter"
VIEW = f"""\
mkdir -p {ADAPTER}/is {ADAPTER}/more {ADAPTER}/work {ADAPTER}/shown
mount --bind {{function}} {ADAPTER}/is
mount -t overlay adapter -o lowerdir={ADAPTER}/is,upperdir={ADAPTER}/more,workdir={ADAPTER}/work {ADAPTER}/shown
"""
"""Of the card's PCI function, with room for an entry that sysfs itself would not take."""
LINK = f"""\
rdma link add {DEVICE} type rxe netdev eth0
mkdir -p {ADAPTER}/shown/infiniband/{DEVICE}
"""
BYTES = 12 << 20
"""Of a message, all of it locked memory: more than containerd's own limit of 8 MiB lets a program have."""
PING = f"ibv_rc_pingpong -d {DEVICE} -g 1 -s {BYTES} -n 2"
"""RoCE v2 from the card's IPv4 address, which is the second entry of the device's table."""
LOOK = f"""\
echo locked $(ulimit -l); echo files $(ls /dev/infiniband); ibv_devices
(ulimit -l 8192; {PING}) && echo 'a lower limit was enough'
"""
SERVE = f"{LOOK}{PING} && echo served; sleep 3600"
ASK = f"{LOOK}until {PING} $1; do sleep 1; done; echo answered; sleep 3600"


@pytest.fixture(scope="module")
def node(cluster: Plane, archives: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    files = [*archives, *companions.images(PLUGIN)]
    folder = tmp_path_factory.mktemp("machine")
    with joined(Node(cluster, Admin(cluster), folder, "node-r", files, packages=WITH_RDMA)) as made:
        yield made


@pytest.fixture(scope="module")
def site(cluster: Plane, node: Node) -> Iterator[Site]:
    """Setpoint may carry out policy objects, and the cluster has the Network Operator's definition."""
    member = "network-operator/crds/mellanox.com_nicclusterpolicies.yaml"
    with tarfile.open(archive("network-operator", OPERATOR)) as chart:
        definition = chart.extractfile(member)
        assert definition is not None
        cluster.kubectl("create", "-f", "-", text=definition.read().decode())
    cluster.kubectl("apply", "-f", str(RIGHTS), "-f", str(DEPLOY / "setpoint-policies.yaml"))
    with opened(node, SETTINGS) as made:
        made.setpoint.start("helm")
        yield made


class Operator:
    """Stand-in for the Network Operator: what a NicClusterPolicy has for the plugin, it makes of its own manifest."""

    def __init__(self, cluster: Plane, function: str) -> None:
        """`function`: the folder of the card's PCI function in sysfs."""
        self._kubectl, self._function = cluster.kubectl, function

    def policy(self) -> dict[str, Any]:
        """The policy in the cluster; empty where there is none."""
        answer = self._kubectl("get", "nicclusterpolicies", "nic-cluster-policy", "--ignore-not-found", "-o", "json")
        return dict(json.loads(answer or "{}"))

    def carry_out(self) -> None:
        part = self.policy()["spec"]["rdmaSharedDevicePlugin"]
        name = {"name": "rdma-devices", "namespace": "kube-system"}
        data = {"config.json": part["config"]}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data}
        plugin = yaml.safe_load((companions.binaries(PLUGIN) / "daemonset.yaml").read_text())
        pod = plugin["spec"]["template"]["spec"]
        pod["containers"][0]["image"] = f"{part['repository']}/{part['image']}:{part['version']}"
        # Names of vendors, which the image of the plugin's authors has; and the view of the card.
        for volume, path, target in (
            ("names", "/usr/share/misc/pci.ids", "/usr/share/misc/pci.ids"),
            ("card", f"{ADAPTER}/shown", self._function),
        ):
            pod["volumes"].append({"name": volume, "hostPath": {"path": path}})
            pod["containers"][0]["volumeMounts"].append({"name": volume, "mountPath": target})
        for made in (config, plugin):
            self._kubectl("apply", "-f", "-", text=json.dumps(made))
        ready = json.dumps({"status": {"state": "ready"}})
        self._kubectl(
            "patch", "nicclusterpolicy", "nic-cluster-policy", "--subresource=status", "--type=merge", "-p", ready
        )

    def clean_up(self) -> None:
        self._kubectl("delete", "-n", "kube-system", "daemonset/rdma-shared-dp-ds", "configmap/rdma-devices")


def run_pod(node: Node, name: str, script: str, *arguments: str, devices: int = 1) -> None:
    """Start a pod with the programs of the node's rdma-core, and so many shares of the device."""
    folders = {"programs": "/usr", "drivers": "/etc/libibverbs.d"}
    limits = {"memory": "256Mi"} | ({RESOURCE: str(devices)} if devices else {})
    container = {
        "name": "program", "image": AGENT, "imagePullPolicy": "Never",
        "command": ["/usr/bin/sh", "-c", f"exec 2>&1; {script}", "sh", *arguments], "resources": {"limits": limits},
        "volumeMounts": [{"name": name, "mountPath": path, "readOnly": True} for name, path in folders.items()],
    }  # fmt: skip
    spec = {
        "containers": [container], "nodeName": node.name, "terminationGracePeriodSeconds": 1,
        "restartPolicy": "Never",
        "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()],
    }  # fmt: skip
    node.admin.create("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def says(node: Node, name: str, words: str) -> str:
    """The pod's output, as soon as it has these words in it."""
    return str(eventually(
        lambda: (text := node.pod_log(name)) and words in text and text,
        lambda: f"{node.pod_log(name)}\n{node.admin.find('pods', name)}\n{node.story()}", seconds=300,
    ))  # fmt: skip


def packets(node: Node) -> int:
    return int(node.machine.read(f"/sys/class/infiniband/{DEVICE}/ports/1/hw_counters/sent_pkts"))


def test_devices_of_soft_roce_are_allocated_to_pods_once_the_profile_is_carried_out(
    cluster: Plane, site: Site, node: Node
) -> None:
    function = node.machine.run("readlink", "-f", "/sys/class/net/eth0/device/..")
    node.machine.shell(VIEW.format(function=function))
    operator = Operator(cluster, function)
    assert set(node.values(MODULES).values()) == {""}
    assert node.machine.shell("ls /dev/infiniband 2>/dev/null || true") == ""

    wanted = {**dict.fromkeys(MODULES, "loaded"), MEMLOCK: "infinity"}
    plan = site.plan(site.pool(pool="machines"), site.revision(wanted, extra=POLICY))
    assert [finding for finding in plan["findings"] if finding["severity"] == "block"] == []
    site.approve(plan)
    rollout = site.start(plan)

    # The operator's word is not enough while no node offers what the policy names.
    node.eventually(operator.policy)
    operator.carry_out()
    site.until_step(rollout, node.name, "succeeded", seconds=300)
    assert set(node.values(MODULES).values()) == {"loaded"}
    lacking = f"no node offers {RESOURCE} yet"
    eventually(lambda: lacking in str(site.steps(rollout)), lambda: site.story(rollout), seconds=300)
    assert node.allocatable(RESOURCE) in ("", "0")

    node.machine.shell(LINK)

    site.until(rollout, "succeeded", seconds=300)
    assert node.allocatable(RESOURCE) == SHARES
    eventually(lambda: site.node(node.name)["allocatable"].get(RESOURCE) == SHARES, node.story, seconds=60)

    before = packets(node)
    run_pod(node, "bare", "ls /dev/infiniband; echo over", devices=0)
    run_pod(node, "server", SERVE)
    says(node, "bare", "over")
    assert "No such file" in node.pod_log("bare"), "who does not ask gets none"
    node.eventually(lambda: node.admin.get("pods", "server")["status"].get("podIP"))
    run_pod(node, "client", ASK, node.admin.get("pods", "server")["status"]["podIP"])
    output = says(node, "client", "answered"), says(node, "server", "served")
    for text in output:
        assert "locked unlimited" in text
        assert {"rdma_cm", "umad0", "uverbs0"} <= set(re.search("files (.*)", text)[1].split())
        assert DEVICE in text
        assert "Couldn't register MR" in text, "eight MiB are not enough, so the plan's limit is what lets it work"
        assert "a lower limit was enough" not in text
    assert packets(node) - before >= 2 * 2 * BYTES // 1024, "that many passed over the device itself"

    run_pod(node, "third", "true")
    refused = node.eventually(lambda: (status := node.admin.get("pods", "third")["status"]).get("reason") and status)
    assert RESOURCE in f"{refused['reason']} {refused['message']}", "two shares, and two pods hold them"

    for name in ("bare", "server", "client", "third"):
        node.admin.delete("pods", name)
    node.eventually(lambda: node.pods() == [])  # no drain takes a pod that has no controller
    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=300)
    assert operator.policy() == {}
    assert node.machine.shell("rdma link") == "", "the link went with its module"
    assert node.machine.shell("ls /sys/module | grep -cxE 'ib_umad|ib_uverbs|rdma_rxe|rdma_ucm' || true").strip() == "0"
    operator.clean_up()
