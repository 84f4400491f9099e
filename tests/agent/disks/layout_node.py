"""A node whose disks can be formatted and mounted, and that notes each program that was let loose on one with data."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator

from agent.host import Command
from contract import disk_layouts
from contract.disk_layouts import parsed
from contract.nodetuning import Restore
from tests.agent.disks.node import DisksNode
from tests.agent.kernel import want

KEY = disk_layouts.KEY
EXT4 = "layout=single,filesystem=ext4,mount=/mnt/fast-disks,options=noatime"
SERIALS = ("S6AAAA", "S6BBBB")
SEEN = "empty=S6AAAA:1,S6BBBB:1;mkfs=ext4+xfs"
XFS = "layout=single,filesystem=xfs,mount=/srv/scratch,label=scratch"
HALF = b"journal"
"""Written by a program that was cut short, where no look sees it."""
_SUPERBLOCKS = {"ext4": (1080, b"\x53\xef"), "xfs": (0, b"XFSB")}


class LayoutNode(DisksNode):
    def __init__(self, *serials: str) -> None:
        super().__init__(*serials)
        self.programs |= {"systemctl", "mkfs.ext4", "mkfs.xfs"}
        self.mounts: dict[str, tuple[str, str]] = {}
        self.enabled: set[str] = set()
        self.busy: set[str] = set()
        """Folders that cannot be unmounted."""
        self.claimed: set[str] = set()
        """Disks that another program holds exclusively."""
        self.uuids: dict[str, str] = {}
        self.formats: list[str] = []
        """Serial number of the disk of each program that was run, in their order."""
        self.harmed: list[str] = []
        """Of those that held something."""
        self.before_claim: Callable[[str], None] = lambda name: None

    def serial(self, name: str) -> str:
        return self.live.get(f"/sys/block/{name}/device/serial", "").strip()

    @contextlib.contextmanager
    def hold_disk(self, name: str, *, exclusively: bool = False) -> Iterator[None]:
        if name not in self.sizes:
            raise OSError(errno.ENOENT, "No such file or directory")
        if exclusively:
            self.before_claim(name)
            if name in self.claimed or name in [device for device, _ in self.mounts.values()]:
                raise OSError(errno.EBUSY, "Device or resource busy")
        yield

    def read_text(self, path: str) -> str | None:
        if path == "/proc/1/mountinfo":
            rows = [
                f"30 24 {self.live[f'/sys/block/{name}/dev']} / {where} rw - {filesystem} /dev/{name} rw\n"
                for where, (name, filesystem) in self.mounts.items()
                if name in self.sizes
            ]
            return "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + "".join(rows)
        return super().read_text(path)

    def _run(self, command: Command, *words: str) -> None:
        if command in (Command.MAKE_EXT4, Command.MAKE_XFS):
            self._format(command.value[0].removeprefix("mkfs."), *words)
        elif command is Command.MOUNT_UNIT:
            self.enabled.add(words[0])
            self._mount(words[0])
        elif command is Command.UNMOUNT_UNIT:
            if (where := disk_layouts.where_of(words[0]) or "") not in self.busy:
                self.mounts.pop(where, None)
        elif command is Command.FORGET_UNIT:
            self.enabled.discard(words[0])
        else:
            super()._run(command, *words)

    def _format(self, filesystem: str, *words: str) -> None:
        name, uuid = words[-1].removeprefix("/dev/"), words[1].removeprefix("uuid=")
        self.formats.append(self.serial(name))
        if set(self.content[name].values()) - {HALF}:
            self.harmed.append(self.serial(name))
        # The superblock comes last; what is written first is in none of the places that are sampled.
        self._effect(("half", name), lambda: self.put(name, (1 << 20) + 4096, HALF))
        at, mark = _SUPERBLOCKS[filesystem]
        self.put(name, at, mark)
        self.uuids[name] = uuid

    def _mount(self, unit: str) -> None:
        text = self.disk.get(f"{disk_layouts.UNIT_FOLDER}/{unit}", "")
        fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        for name, uuid in self.uuids.items():
            if name in self.sizes and fields.get("What") == f"/dev/disk/by-uuid/{uuid}":
                self.mounts[fields["Where"]] = (name, fields["Type"])

    def reboot(self) -> None:
        super().reboot()
        self.mounts.clear()
        for unit in self.enabled:
            self._mount(unit)

    def unplug(self, name: str) -> None:
        del self.sizes[name]
        self.live = {path: text for path, text in self.live.items() if not path.startswith(f"/sys/block/{name}/")}

    def wipe(self, name: str) -> None:
        """Write zeros everywhere, as an operator does."""
        self.put(name, 0, b"")
        self.content[name].clear()


CHANGES = {
    "a signature": lambda node: node.put("nvme1n1", 0, b"LABELONE"),
    "one byte, uncounted": lambda node: node.put("nvme1n1", 77, b"x", counts=False),
    "a partition": lambda node: node.live.update({"/sys/block/nvme1n1/nvme1n1p1/partition": "1"}),
    "a holder": lambda node: node.live.update({"/sys/block/nvme1n1/holders/dm-0": ""}),
    "a mount": lambda node: node.mounts.update({"/data": ("nvme1n1", "ext4")}),
    "another claim": lambda node: node.claimed.add("nvme1n1"),
    "a swapped disk": lambda node: node.live.update({"/sys/block/nvme1n1/device/serial": "S6OTHER"}),
    "a blank serial": lambda node: node.live.update({"/sys/block/nvme1n1/device/serial": " "}),
    "a twin": lambda node: node.add("S6BBBB"),
    "no disk": lambda node: node.unplug("nvme1n1"),
    "errors": lambda node: node.failing.add("nvme1n1"),
    "a network volume": lambda node: node.live.update(
        {"/sys/block/nvme1n1/device/model": "Amazon Elastic Block Store"}
    ),
}  # fmt: skip
"""What can happen to the second disk of a node, by name."""


def ask(agent, value=EXT4, expect=SEEN):
    return agent.ask(want(KEY, value, expect)).setting(KEY)


def revert(agent, value=EXT4):
    return agent.ask(restore=(Restore(KEY, SEEN, value),)).setting(KEY)


def folders(value=EXT4, serials=SERIALS):
    return {parsed(value).where(serial) for serial in serials}


def held(node):
    return {name: dict(content) for name, content in node.content.items()}
