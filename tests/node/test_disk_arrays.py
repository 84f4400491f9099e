"""RAID 0 of local disks on a real machine: its kernel, its mdadm and its udev make and assemble the array."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from agent.kinds.arrays import PLACE
from contract import disk_layouts
from contract.disk_layouts import Volume, parsed
from tests.full.harness.client import eventually
from tests.full.harness.site import Site
from tests.nodemachine.node import Node

pytestmark = [pytest.mark.usefixtures("judged"), pytest.mark.long]

KEY = disk_layouts.KEY
LAYOUT = parsed("layout=raid0,filesystem=ext4,mount=/mnt/fast-disks,options=noatime,label=fast,min=2")
VOLUME = Volume(("SNPAIR1", "SNPAIR2"))
WHERE = LAYOUT.where(VOLUME.name)
BY_SERIAL = "for d in /sys/block/nvme*; do grep -q SNPAIR $d/device/serial && echo ${d##*/}; done"


@pytest.fixture
def pair(site: Site, node: Node) -> Iterator[None]:
    """Two more disks of one size, on which nothing was ever written; the machine loses them at the end."""
    power_cycle(node, VOLUME.serials)
    await_answer(site, node, lambda answer: "SNPAIR1:2,SNPAIR2:2;mkfs=ext4+mdadm" in answer)
    yield
    power_cycle(node, ())
    for serial in VOLUME.serials:
        (node.machine.folder / f"{serial}.img").unlink(missing_ok=True)


def power_cycle(node: Node, serials: tuple[str, ...]) -> None:
    boot = node.boot_id
    node.machine.power_off()
    node.machine.more_disks = serials
    node.machine.power_on()
    node.await_ready(node.machine.await_boot(other_than=boot))


def await_answer(site: Site, node: Node, fits: Callable[[str], bool]) -> None:
    eventually(
        lambda: fits(site.observed(node.name, KEY) or ""), lambda: str(site.observed(node.name, KEY)), seconds=150
    )


def device(node: Node) -> str:
    """Return the array that is mounted at the layout's folder; empty where none is."""
    return node.machine.shell(f"findmnt -no SOURCE {WHERE} || true").strip()


def kept(node: Node) -> str:
    return node.machine.shell(f"cat {WHERE}/weights; blkid -p -s UUID -s LABEL -o export {device(node)} | grep =")


def test_two_disks_become_one_array_whose_data_outlives_power_cuts_a_lost_member_and_the_revert(
    site: Site, node: Node, pair: None
) -> None:
    plan = site.plan(site.pool(pool="machines"), site.revision({KEY: LAYOUT.to_text()}))
    assert plan["summary"]["consent"] == "format 2 disks in atlas"
    site.approve(plan)
    rollout = site.start(plan)
    site.until(rollout, "succeeded", seconds=600)

    array = device(node).rpartition("/")[2]
    assert node.machine.shell(f"cat /sys/block/{array}/md/level").strip() == "raid0"
    members = node.machine.shell(f"ls /sys/block/{array}/slaves").split()
    assert members == sorted(node.machine.shell(BY_SERIAL).split())
    uuid = node.machine.shell(f"od -An -tx1 -j{PLACE + 16} -N16 /dev/{members[0]} | tr -d ' \\n'").strip()
    assert uuid == LAYOUT.array_uuid(VOLUME.name)
    node.machine.shell(f"echo 70 billion > {WHERE}/weights; sync")
    data = kept(node)
    assert LAYOUT.uuid(VOLUME.name) in data

    power_cycle(node, VOLUME.serials)
    await_answer(site, node, LAYOUT.to_text().__eq__)
    assert kept(node) == data

    power_cycle(node, VOLUME.serials[:1])  # a member is missing: drift, and nothing is made of what is left
    await_answer(site, node, disk_layouts.unmounted(VOLUME.serials).__eq__)
    power_cycle(node, VOLUME.serials)
    await_answer(site, node, LAYOUT.to_text().__eq__)
    assert kept(node) == data

    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=600)
    assert not device(node)
    await_answer(site, node, lambda answer: disk_layouts.is_absent(answer) and "SNPAIR" not in answer)
    node.machine.shell(f"mkdir -p {WHERE}; mount UUID={LAYOUT.uuid(VOLUME.name)} {WHERE}")
    assert kept(node) == data
    node.machine.shell(f"umount {WHERE}")
