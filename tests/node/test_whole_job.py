"""The whole job over REST on a machine with its own kernel, boot loader, kubelet and container runtime."""

from __future__ import annotations

import pytest

from tests.full.harness.client import Problem, eventually
from tests.full.harness.site import Site
from tests.nodemachine.node import Node

pytestmark = pytest.mark.usefixtures("judged")

LIVE = {
    "vm.swappiness": "17",
    "vm.max_map_count": ">= 1048576",
    "kernel.msgmax": "65536",  # of the IPC namespace
    "net.core.somaxconn": "8192",  # of the network namespace
    "net.ipv4.tcp_keepalive_time": "600",
    "fs.inotify.max_user_instances": "2048",  # of the user namespace
    "transparent_hugepage.enabled": "madvise",
    "module.tcp_bbr": "loaded",
    "block.nvme.read_ahead_kb": "4096",
}
SCHEDULER = "block.nvme.scheduler"
OTHER = {"none": "mq-deadline", "mq-deadline": "none"}
"""The kernel chooses the first for a disk with a queue for each of several processors, the second for one queue."""
PAGES = 64
"""Of 2 MiB."""


@pytest.fixture
def pool(site: Site) -> int:
    return site.pool(pool="machines")


def test_live_settings_and_huge_pages_reach_the_kernel_the_kubelet_and_a_pod_and_go_back(
    site: Site, node: Node, pool: int
) -> None:
    wanted = {**LIVE, SCHEDULER: OTHER[node.values([SCHEDULER])[SCHEDULER]], "hugepages-2Mi": str(PAGES)}
    before = node.values(wanted)
    assert before["module.tcp_bbr"] == ""
    kubelet = node.machine.run("systemctl", "show", "--property=MainPID", "kubelet")
    boot = node.boot_id
    assert site.observed(node.name, "boot.fallback") == "grub"

    plan = site.plan(pool, site.revision(wanted))
    shown = {c["key"]: c["before"] for group in plan["differences"] for c in group["changes"]}
    assert {key: value or "" for key, value in shown.items()} == before
    assert plan["worst_class"] == "kubelet-restart"
    with pytest.raises(Problem) as refused:
        site.start(plan)
    assert refused.value.status == 409
    site.approve(plan)
    assert node.values(wanted) == before, "nothing is written before the start"
    rollout = site.start(plan)
    site.until(rollout, "succeeded", seconds=300)

    assert node.values(wanted) == {key: value.removeprefix(">= ") for key, value in wanted.items()}
    assert node.machine.run("systemctl", "show", "--property=MainPID", "kubelet") != kubelet
    assert node.machine.read("/proc/sys/kernel/random/boot_id") == boot
    node.eventually(lambda: node.allocatable("hugepages-2Mi") == f"{2 * PAGES}Mi")
    node.use_a_page("hugepages-2Mi")

    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=300)

    now = node.values(wanted)
    assert {**now, "module.tcp_bbr": ""} == before, "a module that something may use stays until the next boot"
    node.eventually(lambda: node.allocatable("hugepages-2Mi") == "0")
    assert not node.object()["spec"].get("unschedulable")


def test_a_value_changed_by_hand_inside_the_machine_is_drift_and_a_new_plan_repairs_it(
    site: Site, node: Node, pool: int
) -> None:
    key = "net.ipv4.tcp_keepalive_time"
    before = node.values((key,))[key]
    revision = site.revision({key: "900"})
    rollout = site.rollout_of(pool, revision)
    site.until(rollout, "succeeded", seconds=120)

    node.machine.run("sysctl", "-w", f"{key}=901")

    eventually(lambda: site.observed(node.name, key) == "901", lambda: str(site.node(node.name)["tuning"]), seconds=120)
    eventually(lambda: site.compliance(node.name) == "drifted", lambda: str(site.node(node.name)), seconds=60)
    repair = site.plan(pool, revision)
    changes = [c for group in repair["differences"] for c in group["changes"]]
    assert [(c["key"], c["before"], c["after"]) for c in changes] == [(key, "901", "900")]
    site.approve(repair)
    mended = site.start(repair)
    site.until(mended, "succeeded", seconds=120)
    assert node.values((key,))[key] == "900"
    eventually(lambda: site.compliance(node.name) == "compliant", lambda: str(site.node(node.name)), seconds=60)

    site.act(mended, "revert")
    site.until(mended, "reverted", seconds=120)
    assert node.values((key,))[key] == "900", "the revision that the node had before the repair"
    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=120)
    assert node.values((key,))[key] == before
