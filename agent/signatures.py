"""Marks of file systems, volume managers and partition tables, recognized in the first and last bytes of a disk.

Naming a mark is for people: what decides is that anything but zeros counts as data, known or not. The places are those
of each format's own documentation, as util-linux's libblkid reads them, too.
"""

from __future__ import annotations

EDGE = 1 << 20
"""Bytes read at either end of a disk. All marks below lie within."""

_FIRST: tuple[tuple[str, int, bytes], ...] = (
    ("LUKS", 0, b"LUKS\xba\xbe"),
    ("LUKS", 0x4000, b"SKUL\xba\xbe"),
    ("XFS", 0, b"XFSB"),
    ("Ceph BlueStore", 0, b"bluestore block device"),
    ("Linux RAID", 0, b"\xfc\x4e\x2b\xa9"),
    ("Linux RAID", 4096, b"\xfc\x4e\x2b\xa9"),
    ("LVM", 0, b"LABELONE"),
    ("LVM", 512, b"LABELONE"),
    ("LVM", 1024, b"LABELONE"),
    ("LVM", 1536, b"LABELONE"),
    ("ext2, ext3 or ext4", 1024 + 0x38, b"\x53\xef"),
    ("btrfs", 0x10000 + 0x40, b"_BHRfS_M"),
    ("bcache", 0x1018, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")),
    ("bcachefs", 0x1018, bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef")),
    *(("swap", page - 10, mark) for page in (4096, 16384, 65536) for mark in (b"SWAPSPACE2", b"SWAP-SPACE")),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
)
"""(what it is, bytes from the start, mark)"""
_ZFS = (b"\x0c\xb1\xba\x00\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\xba\xb1\x0c")
"""An uberblock's first bytes, in either byte order: four labels of 256 KiB, two at either end, have 128 of them."""
_DRBD = tuple(bytes.fromhex(mark) for mark in ("8374026b", "8374026c", "8374026d"))
_BOOT = (510, b"\x55\xaa")


def is_zero(data: bytes) -> bool:
    return data == bytes(len(data))


def name_of(head: bytes, tail: bytes, size: int) -> str:
    """Name the mark in the first or the last bytes of a disk of `size` bytes; empty where none is known."""
    for name, at, mark in _FIRST:
        if head[at : at + len(mark)] == mark:
            return name
    if any(tail[len(tail) - back :][:8] == b"EFI PART" for back in (512, 4096) if len(tail) >= back):
        return "a GPT partition table"
    if any(_at_end(tail, size, at, 4) == b"\xfc\x4e\x2b\xa9" for at in _raid_places(size)):
        return "Linux RAID"
    if _has_zfs(head) or _has_zfs(tail):
        return "ZFS"
    last = _at_end(tail, size, (size & ~4095) - 4096, 4096)
    if any(last[at : at + 4] in _DRBD for at in range(0, len(last), 4)):
        return "DRBD"
    if head[_BOOT[0] : _BOOT[0] + 2] == _BOOT[1]:
        return "a partition table or boot record"
    return ""


def _raid_places(size: int) -> tuple[int, int]:
    """Return where mdadm keeps a superblock of version 1.0, and of 0.90, on a disk of this size."""
    return ((size // 512 - 16) & ~7) * 512, (size & ~0xFFFF) - 0x10000


def _at_end(tail: bytes, size: int, at: int, count: int) -> bytes:
    start = at - (size - len(tail))
    return tail[start : start + count] if start >= 0 else b""


def _has_zfs(data: bytes) -> bool:
    return any(data[at : at + 8] in _ZFS for at in range(0, len(data), 1024))
