"""Local disks of a simulated machine: programs that join and format them, and systemd's units that mount them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.host import Command
from agent.kinds.arrays import PLACE
from contract import disk_layouts

if TYPE_CHECKING:
    from simfleet.machines.machine import Hosting

_MARKS = {"ext4": {1024 + 0x38: b"\x53\xef"}, "xfs": {0: b"XFSB"}}
_UUIDS = {"ext4": 1024 + 0x68, "xfs": 32}
_WANTS = f"{disk_layouts.UNIT_FOLDER}/multi-user.target.wants"
_ARRAY = "md127"
"""The kernel's name of the only array that a machine here has."""
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


def join(machine: Hosting, words: Sequence[str]) -> None:
    """Write the superblocks of a new array to its members, and start it: mdadm --create."""
    names = [word.removeprefix("/dev/") for word in words if word.startswith("/dev/nvme")]
    block = bytearray(256)  # struct mdp_superblock_1: magic, version, UUID, level 0, count of members
    block[0:4], block[4:8] = b"\xfc\x4e\x2b\xa9", (1).to_bytes(4, "little")
    block[16:32] = bytes.fromhex(words[0].removeprefix("--uuid=").replace(":", ""))
    block[92:96] = len(names).to_bytes(4, "little")
    for name in names:
        machine.drives[name] = {PLACE: bytes(block)}
    assemble(machine)


def assemble(machine: Hosting) -> None:
    """Start the array whose members are all there: mdadm --assemble, and udev at boot."""
    names = sorted(name for name, content in machine.drives.items() if PLACE in content)
    if not names or len(names) != int.from_bytes(machine.drives[names[0]][PLACE][92:96], "little"):
        return
    folder = f"/sys/block/{_ARRAY}"
    sectors = sum(int(machine.kernel.read(f"/sys/block/{name}/size") or 0) for name in names)
    files = {"size": str(sectors), "dev": "9:127", "stat": "0 " * 16 + "0", "md/level": "raid0"}
    for name, text in {**files, "md/array_state": "clean", **{f"slaves/{name}": "" for name in names}}.items():
        machine.kernel.set(f"{folder}/{name}", text)
    for name in names:
        machine.kernel.set(f"/sys/block/{name}/holders/{_ARRAY}", "")


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
    """Assemble the array, and mount at boot what is enabled."""
    assemble(machine)
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
