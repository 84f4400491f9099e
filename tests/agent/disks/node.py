"""A node with local NVMe disks: files of /sys as the kernel has them, and content by its offsets."""

from __future__ import annotations

import errno
from functools import lru_cache

from tests.agent.kernel import Kernel

SIZE = 1 << 30


@lru_cache(maxsize=8)
def _blank(count: int) -> bytes:
    return bytes(count)


class DisksNode(Kernel):
    """Disks are empty until `put` writes to one; every write counts in the disk's own counters, as the kernel's do."""

    def __init__(self, *serials: str) -> None:
        super().__init__()
        self.live = {path: text for path, text in self.live.items() if not path.startswith("/sys/block/")}
        self.live |= {"/proc/1/mountinfo": "24 1 8:1 / / rw - ext4 /dev/sda1 rw", "/proc/swaps": "Filename Type"}
        self.content: dict[str, dict[int, bytes]] = {}
        self.sizes: dict[str, int] = {}
        self.failing: set[str] = set()
        self.reads: list[tuple[str, int, int]] = []
        for serial in serials:
            self.add(serial)

    def add(self, serial: str, *, name: str = "", model: str = "QEMU NVMe Ctrl", size: int = SIZE) -> str:
        name = name or f"nvme{len(self.sizes)}n1"
        self.sizes[name], self.content[name] = size, {}
        folder = f"/sys/block/{name}"
        self.live |= {
            f"{folder}/size": str(size // 512),
            f"{folder}/ro": "0",
            f"{folder}/dev": f"259:{len(self.sizes)}",
            f"{folder}/stat": "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
            f"{folder}/queue/rotational": "0",
            f"{folder}/queue/iostats": "1",
            f"{folder}/device/serial": f"{serial:<20}",
            f"{folder}/device/model": f"{model:<40}",
            f"{folder}/device/transport": "pcie",
        }
        return name

    def put(self, name: str, at: int, data: bytes, *, counts: bool = True) -> None:
        self.content[name][at] = data
        words = self.live[f"/sys/block/{name}/stat"].split()
        words[4] = str(int(words[4]) + counts)
        self.live[f"/sys/block/{name}/stat"] = " ".join(words)

    def read_disk(self, name: str, offset: int, count: int) -> bytes:
        self.reads.append((name, offset, count))
        if name in self.failing:
            raise OSError(errno.EIO, "Input/output error")
        if name not in self.sizes:
            raise OSError(errno.ENOENT, "No such file or directory")
        blank = _blank(max(0, min(count, self.sizes[name] - offset)))
        if not any(offset < at + len(data) and at < offset + count for at, data in self.content[name].items()):
            return blank
        out = bytearray(blank)
        for at, data in self.content[name].items():
            for place, byte in enumerate(data, at - offset):
                if 0 <= place < len(out):
                    out[place] = byte
        return bytes(out)
