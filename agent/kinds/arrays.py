"""Arrays of local disks: what the kernel has joined, and the superblock by which mdadm knows a member.

Nothing here writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.host import Host

PLACE = 4096
"""Where a superblock of version 1.2 is (md(4)); its fields are those of mdp_superblock_1 in linux/raid/md_p.h."""
_MAGIC = b"\xfc\x4e\x2b\xa9"
_LEAST = 96
_NAME = re.compile(r"md(?:[0-9]{1,7}|_[A-Za-z0-9_-]{1,32})")
_STARTED = ("active", "active-idle", "clean", "write-pending")
"""Of /sys/block/md*/md/array_state (Documentation/admin-guide/md.rst). Not `broken`, where a member died."""


@dataclass(frozen=True, slots=True)
class Superblock:
    uuid: str
    """32 hexadecimal digits."""
    level: int
    members: int


def superblock(host: Host, name: str) -> Superblock | None:
    """Read the superblock of version 1.2 on a disk; None if there is none. Raises OSError."""
    block = host.read_disk(name, PLACE, 4096)
    if len(block) < _LEAST or block[:4] != _MAGIC or int.from_bytes(block[4:8], "little") != 1:
        return None
    return Superblock(
        uuid=block[16:32].hex(),
        level=int.from_bytes(block[72:76], "little", signed=True),
        members=int.from_bytes(block[92:96], "little"),
    )


def holders(host: Host, name: str) -> list[str]:
    """Return what the kernel has made of the disk: arrays, volumes."""
    return _names(host, f"/sys/block/{name}/holders/*")


def array_of(host: Host, names: Sequence[str]) -> str | None:
    """Return the kernel's name of the started RAID 0 of exactly these disks; None if there is none."""
    of_disks = {tuple(holders(host, name)) for name in names}
    if len(of_disks) != 1 or len(joined := of_disks.pop()) != 1 or not _NAME.fullmatch(joined[0]):
        return None
    folder = f"/sys/block/{joined[0]}"
    is_raid0 = _text(host, f"{folder}/md/level") == "raid0" and _text(host, f"{folder}/md/array_state") in _STARTED
    return joined[0] if is_raid0 and _names(host, f"{folder}/slaves/*") == sorted(names) else None


def _names(host: Host, pattern: str) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in host.glob(pattern))


def _text(host: Host, path: str) -> str:
    return (host.read_text(path) or "").strip()
