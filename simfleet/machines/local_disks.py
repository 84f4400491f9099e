"""Local disks of a simulated machine: programs that format them, and systemd's units that mount them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.host import Command
from contract import disk_layouts

if TYPE_CHECKING:
    from simfleet.machines.machine import Hosting

_MARKS = {"ext4": {1024 + 0x38: b"\x53\xef"}, "xfs": {0: b"XFSB"}}
_UUIDS = {"ext4": 1024 + 0x68, "xfs": 32}
_WANTS = f"{disk_layouts.UNIT_FOLDER}/multi-user.target.wants"
_ROOT = "24 1 8:1 / / rw - ext4 /dev/root rw\n"


def format_disk(machine: Hosting, filesystem: str, words: Sequence[str]) -> None:
    """Put a file system with the UUID among the words on the disk that is the last of them."""
    name = words[-1].removeprefix("/dev/")
    uuid = words[1].removeprefix("uuid=")
    mark = bytes.fromhex(uuid.replace("-", ""))
    machine.drives[name] = {**_MARKS[filesystem], _UUIDS[filesystem]: mark}
    counters = f"/sys/block/{name}/stat"
    fields = (machine.kernel.read(counters) or "0").split()
    machine.kernel.set(counters, " ".join(str(int(field) + (place == 4)) for place, field in enumerate(fields)))


def mount_table(machine: Hosting) -> str:
    """Return /proc/1/mountinfo: the node's own file system, and the disks that are mounted."""
    lines = [
        f"{30 + number} 24 {(machine.kernel.read(f'/sys/block/{name}/dev') or '').strip()} / {where} rw - "
        f"{filesystem} /dev/{name} rw\n"
        for number, (where, (name, filesystem)) in enumerate(sorted(machine.mounts.items()))
    ]
    return _ROOT + "".join(lines)


def systemctl(machine: Hosting, command: Command, unit: str) -> str:
    """Enable and start, stop or disable a unit that mounts a disk; return the complaint, empty for none."""
    path = f"{disk_layouts.UNIT_FOLDER}/{unit}"
    where = disk_layouts.where_of(unit) or ""
    if command is Command.UNMOUNT_UNIT:
        machine.mounts.pop(where, None)
        return ""
    text = machine.kernel.read(path)
    if text is None:
        return f"Unit {unit} does not exist."
    machine.kernel.store(f"{_WANTS}/{unit}", text if command is Command.MOUNT_UNIT else None)
    return _mount(machine, where, text) if command is Command.MOUNT_UNIT else ""


def mount_enabled(machine: Hosting) -> None:
    """Mount at boot what is enabled."""
    for path in machine.kernel.glob(f"{_WANTS}/*"):
        _mount(machine, disk_layouts.where_of(path.rpartition("/")[2]) or "", machine.kernel.read(path) or "")


def _mount(machine: Hosting, where: str, text: str) -> str:
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    uuid = bytes.fromhex(fields["What"].rpartition("/")[2].replace("-", ""))
    filesystem = fields["Type"]
    for name, content in machine.drives.items():
        if content.get(_UUIDS[filesystem]) == uuid:
            machine.mounts[where] = (name, filesystem)
            return ""
    return f"Dependency failed for {where}."
