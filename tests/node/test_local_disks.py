"""Local NVMe disks of a real machine: shown as empty until something is on them, and never written to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contract.disks import Disk
from tests.full.harness.site import Site
from tests.nodemachine.node import Node

pytestmark = [pytest.mark.usefixtures("judged"), pytest.mark.long]
NAME = "nvme0n1"


@pytest.fixture
def _blank(node: Node) -> Iterator[None]:
    """A disk of zeros again, whatever the test left on it."""
    yield
    node.machine.shell(f"dd if=/dev/zero of=/dev/{NAME} bs=1M oflag=direct status=none || true", seconds=300)


def seen(site: Site, node: Node) -> Disk | None:
    return Disk.from_text(NAME, site.observed(node.name, f"disk.{NAME}") or "")


def state(site: Site, node: Node) -> str:
    disk = seen(site, node)
    return disk.state if disk else ""


@pytest.mark.usefixtures("_blank")
def test_a_disk_is_empty_until_a_file_system_is_on_it_and_its_marks_wiped_do_not_make_it_empty(
    site: Site, node: Node
) -> None:
    serial = node.machine.read(f"/sys/block/{NAME}/device/serial")
    node.eventually(lambda: state(site, node) == "empty")
    assert seen(site, node) == Disk(NAME, serial, "QEMU NVMe Ctrl", 1 << 30, False, 0, "empty")

    node.machine.run("mkfs.ext4", "-q", f"/dev/{NAME}")
    node.eventually(lambda: state(site, node) == "has a signature: ext2, ext3 or ext4")

    node.machine.shell(f"mkdir -p /mnt/disk && mount /dev/{NAME} /mnt/disk && echo kept > /mnt/disk/file")
    node.eventually(lambda: state(site, node) == "is mounted at /mnt/disk")
    assert node.machine.read("/mnt/disk/file") == "kept"

    node.machine.shell(f"umount /mnt/disk && wipefs --quiet --all /dev/{NAME}")
    node.eventually(lambda: state(site, node).startswith("has data"))
