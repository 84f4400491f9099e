"""Two machines: nodes are drained and rebooted one at a time, and pods move as their disruption budget allows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.site import Site
from tests.nodemachine.node import AGENT, Node

pytestmark = [pytest.mark.usefixtures("judged"), pytest.mark.long]

APP = {"app": "serves"}
DEPLOYMENT = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "serves"},
    "spec": {
        "replicas": 2, "selector": {"matchLabels": APP},
        "template": {
            "metadata": {"labels": APP},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "serves", "image": AGENT, "imagePullPolicy": "Never",
                    "command": ["python", "-S", "-c", "import time; time.sleep(86400)"],
                }],
            },
        },
    },
}  # fmt: skip


WANTED = {
    "cmdline.hugepagesz": "1G",
    "cmdline.hugepages": "1",
    "cmdline.iommu": "pt",
    "vm.swappiness": "23",
    "transparent_hugepage.enabled": "madvise",
    "block.nvme.scheduler": "mq-deadline",
    "module.tcp_bbr": "loaded",
}


@pytest.fixture(scope="module")
def nodes(node: Node, second_node: Node) -> list[Node]:
    return [node, second_node]


@pytest.fixture
def deployment(cluster_admin: Admin, nodes: list[Node]) -> Iterator[None]:
    """Two pods, of which one has to be available at any time."""
    cluster_admin.create("deployments", DEPLOYMENT)
    cluster_admin.budget("serves", selector=APP, min_available=1)
    try:
        nodes[0].eventually(lambda: available(cluster_admin) == 2)
        yield
    finally:
        cluster_admin.delete("deployments", "serves")
        cluster_admin.delete("poddisruptionbudgets", "serves")


def available(admin: Admin) -> int:
    return int(admin.get("deployments", "serves")["status"].get("availableReplicas", 0))


class Watcher:
    """Looks at the cluster until it is stopped, and keeps the worst of what it saw."""

    def __init__(self, plane: Plane, admin: Admin) -> None:
        self._plane, self._admin, self._over = plane, admin, threading.Event()
        self.most_out, self.fewest_pods, self.looks = 0, 99, 0
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            machines = json.loads(self._plane.kubectl("get", "nodes", "-l", "pool=machines", "-o", "json"))["items"]
            self.most_out = max(self.most_out, sum(bool(node["spec"].get("unschedulable")) for node in machines))
            self.fewest_pods = min(self.fewest_pods, available(self._admin))
            self.looks += 1


def test_one_node_at_a_time_is_drained_and_rebooted_and_the_service_keeps_its_pods(
    site: Site, deployed: Plane, cluster_admin: Admin, nodes: list[Node], deployment: None
) -> None:
    site.await_observed([node.name for node in nodes])
    before = [node.values(WANTED) for node in nodes]
    boots = [node.boot_id for node in nodes]

    with Watcher(deployed, cluster_admin) as seen:
        rollout = site.rollout_of(site.pool(pool="machines"), site.revision(WANTED), canary=1, batch="1")
        site.until(rollout, "succeeded", seconds=1200)

    assert (seen.most_out, seen.fewest_pods) == (1, 1)
    assert any("evict" in event.lower() for event in site.events(rollout)), site.story(rollout)
    for node, boot in zip(nodes, boots, strict=True):
        assert node.boot_id not in ("", boot)
        assert node.machine.read("/proc/sys/kernel/random/boot_id") == node.boot_id
        assert node.values(WANTED) == WANTED, "what is persisted holds in the next boot, too"
        arguments = node.machine.read("/proc/cmdline").split()
        assert arguments.index("hugepagesz=1G") + 1 == arguments.index("hugepages=1")
        assert not node.object()["spec"].get("unschedulable")
    nodes[0].eventually(lambda: available(cluster_admin) == 2)
    nodes[0].eventually(lambda: nodes[0].allocatable("hugepages-1Gi") == "1Gi")
    nodes[0].use_a_page("hugepages-1Gi")

    boots = [node.boot_id for node in nodes]
    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=1200)

    assert [node.values(WANTED) for node in nodes] == before
    for node, boot in zip(nodes, boots, strict=True):
        assert node.boot_id not in ("", boot)
        assert node.machine.shell("ls /etc/default/grub.d /etc/*.d | grep setpoint || echo none") == "none"
        assert not node.object()["spec"].get("unschedulable")
