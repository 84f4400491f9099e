"""A layout made on a real block device by real programs: claims, file systems and mounts are this kernel's.

The device is a loop device that a folder of files presents as a local NVMe disk; in place of systemd, mount and umount
carry out the units that the agent wrote.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from agent.host import Command, CommandResult, LinuxHost
from agent.journal import FileStore, Journal
from agent.reconcile import Reconciler
from contract import disk_layouts
from contract.disk_layouts import parsed
from contract.nodetuning import Restore, Spec, Wanted

pytestmark = pytest.mark.full
SIZE = 256 << 20
KEY = disk_layouts.KEY
VALUE = "layout=single,filesystem=ext4,mount=/mnt/setpoint-disks,options=noatime,label=fast"
WHERE = parsed(VALUE).where("SN0001")
EMPTY = "empty=SN0001:0;mkfs=ext4"


def _ran(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


class LoopHost(LinuxHost):
    """A node in `folder` whose only disk is a loop device."""

    def __init__(self, folder: pathlib.Path, device: str) -> None:
        super().__init__(root=str(folder), proc="/proc", sys=f"{folder}/sys", init_pid=None)
        self.folder, self.device = folder, device
        self.mkfs = 0
        """Programs that formatted."""

    def has(self, program: str) -> bool:
        return program in ("systemctl", "mkfs.ext4")

    def run(self, command: Command, *words: str) -> CommandResult:
        argv = ["true"]
        if command is Command.MAKE_EXT4:
            self.mkfs += 1
            argv = [*command.value, *words[:-1], self.device]
        elif command is Command.MOUNT_UNIT:
            text = (self.folder / "etc/systemd/system" / words[0]).read_text()
            unit = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
            pathlib.Path(unit["Where"]).mkdir(parents=True, exist_ok=True)
            uuid = unit["What"].rpartition("/")[2]
            argv = ["mount", "-t", unit["Type"], "-o", unit["Options"], "-U", uuid, unit["Where"]]
            if os.path.ismount(unit["Where"]):
                argv = ["true"]
        elif command is Command.UNMOUNT_UNIT:
            argv = ["umount", str(disk_layouts.where_of(words[0]))]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return CommandResult(done.returncode, done.stderr.strip())


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Iterator[LoopHost]:
    if os.geteuid() != 0:
        pytest.skip("making a loop device needs root")
    with (tmp_path / "disk.img").open("wb") as file:
        file.truncate(SIZE)
    device = _ran("losetup", "--find", "--show", str(tmp_path / "disk.img"))
    number = os.stat(device).st_rdev
    node = tmp_path / "node"
    for path, text in {
        "size": str(SIZE // 512),
        "ro": "0",
        "dev": f"{os.major(number)}:{os.minor(number)}",
        "queue/rotational": "0",
        "device/serial": "SN0001",
        "device/model": "A loop device",
        "device/transport": "pcie",
    }.items():
        (node / "sys/block/nvme0n1" / path).parent.mkdir(parents=True, exist_ok=True)
        (node / "sys/block/nvme0n1" / path).write_text(text)
    (node / "dev").mkdir()
    os.mknod(node / "dev/nvme0n1", 0o60600, number)
    try:
        yield LoopHost(node, device)
    finally:
        subprocess.run(["umount", WHERE], check=False, capture_output=True)
        _ran("losetup", "--detach", device)


def agent(host: LoopHost) -> Reconciler:
    journal = Journal(FileStore(str(host.folder.parent / "journal")))
    return Reconciler(host, journal, lambda: 0.0, node_uid="uid-1", agent_version="test")


def ask(host: LoopHost, generation: int, **more: Any) -> Any:
    return agent(host).reconcile(Spec("uid-1", mode="apply", **more), generation).setting(KEY)


WANTED = {"settings": (Wanted(KEY, "=", VALUE, EMPTY),)}
REVERT = {"restore": (Restore(KEY, EMPTY, VALUE),)}


def content(host: LoopHost) -> str:
    with open(host.device, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def test_data_outlives_a_second_run_and_the_revert_and_a_busy_folder_stays_mounted(host: LoopHost) -> None:
    made = ask(host, 1, **WANTED)
    assert made.state == "Effective", made.reason
    assert _ran("blkid", "-p", "-s", "UUID", "-o", "value", host.device) == parsed(VALUE).uuid("SN0001")
    assert _ran("blkid", "-p", "-s", "LABEL", "-o", "value", host.device) == "fast"
    assert "noatime" in _ran("findmnt", "-no", "OPTIONS", WHERE)
    weights = pathlib.Path(WHERE, "weights")
    weights.write_text("70 billion")

    assert ask(host, 2, **WANTED).state == "Effective"
    with weights.open():
        busy = ask(host, 3, **REVERT)
        assert busy.state == "Failed"
        assert WHERE in busy.reason
        assert os.path.ismount(WHERE)
    reverted = ask(host, 4, **REVERT)

    assert reverted.state == "Restored", reverted.reason
    assert not os.path.ismount(WHERE)
    assert not list(host.folder.glob("etc/systemd/system/*.mount"))
    _ran("mount", host.device, WHERE)
    assert weights.read_text() == "70 billion"
    assert host.mkfs == 1


@pytest.mark.parametrize("claim", ["exclusive", "swap", "mark"])
def test_a_disk_that_this_kernel_or_its_content_calls_used_is_not_written_to(host: LoopHost, claim: str) -> None:
    fd = -1
    if claim == "exclusive":
        fd = os.open(host.device, os.O_RDONLY | os.O_EXCL)
    elif claim == "mark":
        with open(host.device, "r+b") as file:
            file.seek(SIZE - 1)
            file.write(b"x")
    else:
        (host.folder / "sys/block/nvme0n1/dev").write_text("7:250")  # the kernel's name means another disk now
    before = content(host)

    setting = ask(host, 1, **WANTED)

    assert setting.state != "Effective"
    assert (host.mkfs, content(host)) == (0, before)
    if fd >= 0:
        os.close(fd)
        assert ask(host, 2, **WANTED).state == "Effective"
