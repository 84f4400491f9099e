"""A layout of local disks on a real machine: its NVMe disk is formatted once, and what is on it outlives everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from contract import disk_layouts
from contract.disk_layouts import parsed
from tests.full.harness.client import Problem, eventually
from tests.full.harness.site import Site
from tests.nodemachine.node import Node

pytestmark = [pytest.mark.usefixtures("judged"), pytest.mark.long]

KEY = disk_layouts.KEY
VALUE = "layout=single,filesystem=ext4,mount=/mnt/fast-disks,options=noatime,label=fast"
SERIAL = "SN0001"
DISK = "/dev/nvme0n1"
WHERE = parsed(VALUE).where(SERIAL)
EMPTY = f"empty={SERIAL}:1;mkfs=ext4+mdadm"


@pytest.fixture
def blank(site: Site, node: Node) -> Iterator[None]:
    """The machine's disk, zeroed before and after: by hand, as an operator does."""
    wipe(node)
    await_answer(site, node, EMPTY)
    yield
    node.machine.shell(f"systemctl stop holder 2>/dev/null || true; umount {WHERE} || true")
    wipe(node)


def wipe(node: Node) -> None:
    node.machine.shell(f"dd if=/dev/zero of={DISK} bs=1M oflag=direct status=none || true; sync", seconds=300)


def await_answer(site: Site, node: Node, answer: str) -> None:
    eventually(lambda: site.observed(node.name, KEY) == answer, lambda: str(site.observed(node.name, KEY)), seconds=150)


def mounts(node: Node) -> str:
    return node.machine.shell(f"grep ' {WHERE} ' /proc/1/mountinfo || true").strip()


def kept(node: Node) -> str:
    return node.machine.shell(f"cat {WHERE}/weights; blkid -p -s UUID -s LABEL -o export {DISK} | sort").strip()


def planned(site: Site) -> dict[str, Any]:
    return site.plan(site.pool(pool="machines"), site.revision({KEY: VALUE}))


def test_a_disk_is_formatted_once_and_its_data_outlives_runs_power_cuts_and_the_revert(
    site: Site, node: Node, blank: None
) -> None:
    plan = planned(site)
    assert plan["worst_class"] == "drain"
    assert plan["summary"]["consent"] == "format 1 disk in atlas"
    requested = site.operator.post(f"plans/{plan['id']}/actions/request", {"comment": "please"})
    with pytest.raises(Problem) as refused:
        site.approver.post(f"plans/{plan['id']}/actions/approve", {"digest": plan["digest"]})
    assert plan["summary"]["consent"] in str(refused.value.problem)
    for approver in (site.approver, site.second)[: requested["approval"]["needed"]]:
        typed = {"digest": plan["digest"], "consent": plan["summary"]["consent"]}
        approver.post(f"plans/{plan['id']}/actions/approve", typed)
    rollout = site.start(plan)
    site.until(rollout, "succeeded", seconds=600)

    assert " ext4 /dev/nvme0n1 " in mounts(node)
    assert "noatime" in mounts(node)
    node.machine.shell(f"echo 70 billion > {WHERE}/weights; sync")
    data = kept(node)
    assert parsed(VALUE).uuid(SERIAL) in data

    node.machine.shell("pkill -9 -f -- '-m agen[t]'")  # a second run, from the journal
    eventually(node.agent_is_running, node.story, seconds=120)
    await_answer(site, node, VALUE)
    boot = node.boot_id
    node.machine.power_off()
    node.machine.power_on()
    node.await_ready(node.machine.await_boot(other_than=boot))
    await_answer(site, node, VALUE)
    assert " ext4 /dev/nvme0n1 " in mounts(node)
    assert kept(node) == data

    # Not by --working-directory: that makes a unit which systemd stops with the mount.
    node.machine.shell(f"systemd-run --unit=holder sh -c 'cd {WHERE} && exec sleep infinity'")
    node.machine.shell(f"until ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -q {WHERE}; do sleep 0.1; done")
    site.act(rollout, "revert")
    step = site.until_step(rollout, node.name, "held", "failed", says="busy", seconds=600)
    assert mounts(node)
    assert kept(node) == data
    node.machine.shell("systemctl stop holder")
    site.act(rollout, "retry-failed", step=step["id"])
    site.until(rollout, "reverted", seconds=600)

    assert not mounts(node)
    assert not node.machine.shell("ls /etc/systemd/system/*.mount | grep fast || true").strip()
    node.machine.shell(f"mount {DISK} {WHERE}")
    assert kept(node) == data


def test_a_mark_that_appears_after_the_approval_is_left_alone(site: Site, node: Node, blank: None) -> None:
    plan = planned(site)
    site.approve(plan)
    node.machine.shell(f"printf XFSB | dd of={DISK} conv=notrunc oflag=sync status=none")
    before = node.machine.shell(f"sha256sum {DISK}", seconds=120)

    rollout = site.start(plan)
    site.until_step(rollout, node.name, "held", "failed", seconds=600)

    assert node.machine.shell(f"sha256sum {DISK}", seconds=120) == before
    assert not mounts(node)
    # The agent refused it, and the rollout stopped; or its report came first, and the node is held for an operator.
    if site.rollout(rollout)["status"] == "running":
        site.act(rollout, "pause")
    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=600)
    assert node.machine.shell(f"sha256sum {DISK}", seconds=120) == before
