"""A node with mdadm, whose kernel joins disks: superblocks on the members, holders, slaves, and arrays after a boot."""

from __future__ import annotations

from agent.host import Command, CommandResult
from agent.kinds.arrays import PLACE
from contract.disk_layouts import Volume, parsed
from tests.agent.disks.layout_node import KEY, LayoutNode
from tests.agent.disks.node import SIZE
from tests.agent.kernel import want

RAID = "layout=raid0,filesystem=ext4,mount=/mnt/fast-disks,options=noatime"
RAID_XFS = "layout=raid0,filesystem=xfs,mount=/srv/scratch,label=scratch"
SERIALS = ("S6AAAA", "S6BBBB", "S6CCCC")
SEEN = "empty=S6AAAA:1,S6BBBB:1,S6CCCC:1;mkfs=ext4+mdadm+xfs"
VOLUME = Volume(SERIALS)


def block_of(uuid: str, members: int, level: int = 0) -> bytes:
    """Return a superblock of version 1.2 (struct mdp_superblock_1)."""
    out = bytearray(256)
    out[0:4], out[4:8], out[16:32] = b"\xfc\x4e\x2b\xa9", (1).to_bytes(4, "little"), bytes.fromhex(uuid)
    out[72:76], out[92:96] = level.to_bytes(4, "little", signed=True), members.to_bytes(4, "little")
    return bytes(out)


class ArrayNode(LayoutNode):
    def __init__(self, *serials: str) -> None:
        super().__init__(*(serials or SERIALS))
        self.programs.add("mdadm")
        self.live["/proc/mdstat"] = "Personalities : \nunused devices: <none>\n"
        self.has_raid0 = True
        self.is_assembled_at_boot = True
        self.of_array: dict[str, dict[int, bytes]] = {}
        """Content of each array, by its UUID."""
        self.joined: list[tuple[str, ...]] = []
        """Serial numbers of the disks of each array that was made."""

    def run(self, command: Command, *words: str) -> CommandResult:
        devices = [word.removeprefix("/dev/") for word in words if word.startswith("/dev/nvme")]
        if command is Command.MAKE_RAID0 and any(self.content[name] for name in devices):
            return CommandResult(1, "mdadm: create aborted.")  # it asks for confirmation, and gets none
        if command in (Command.MAKE_RAID0, Command.ASSEMBLE_ARRAY) and any(map(self.holders, devices)):
            return CommandResult(2, f"mdadm: cannot open {devices[0]}: Device or resource busy")
        return super().run(command, *words)

    def _run(self, command: Command, *words: str) -> None:
        if command is Command.LOAD_RAID0:
            if self.has_raid0:
                self.live["/proc/mdstat"] = "Personalities : [raid0] \nunused devices: <none>\n"
        elif command is Command.MAKE_RAID0:
            self._make(words)
        elif command is Command.ASSEMBLE_ARRAY:
            self._start(words[0].removeprefix("--uuid=").replace(":", ""))
        else:
            super()._run(command, *words)

    def holders(self, name: str) -> list[str]:
        folder = f"/sys/block/{name}/holders/"
        return [path.removeprefix(folder) for path in self.live if path.startswith(folder)]

    def _make(self, words: tuple[str, ...]) -> None:
        names = [word.removeprefix("/dev/") for word in words if word.startswith("/dev/nvme")]
        uuid = words[0].removeprefix("--uuid=").replace(":", "")
        self.joined.append(tuple(map(self.serial, names)))
        for name in names:
            self._effect(("superblock", name), lambda name=name: self.put(name, PLACE, block_of(uuid, len(names))))
        self._start(uuid)

    def members(self, uuid: str) -> tuple[list[str], int]:
        blocks = {name: self.content[name].get(PLACE, b"") for name in self.sizes if name.startswith("nvme")}
        names = sorted(name for name, block in blocks.items() if block[16:32].hex() == uuid)
        return names, int.from_bytes(blocks[names[0]][92:96], "little") if names else 0

    def _start(self, uuid: str) -> None:
        names, count = self.members(uuid)
        if not names or len(names) != count:
            return
        array = f"md{127 - sum(name.startswith('md') for name in self.sizes)}"
        folder, sizes = f"/sys/block/{array}", sum(self.sizes[name] - (1 << 20) for name in names)
        self.sizes[array], self.content[array] = sizes, self.of_array.setdefault(uuid, {})
        self.live |= {
            f"{folder}/size": str(sizes // 512),
            f"{folder}/dev": f"9:{array[2:]}",
            f"{folder}/stat": "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
            f"{folder}/md/level": "raid0",
            f"{folder}/md/array_state": "clean",
            **{f"{folder}/slaves/{name}": "" for name in names},
            **{f"/sys/block/{name}/holders/{array}": "" for name in names},
        }

    def stop_arrays(self) -> None:
        for array in [name for name in self.sizes if name.startswith("md")]:
            del self.sizes[array], self.content[array]
            gone = (f"/sys/block/{array}/", f"/holders/{array}")
            self.live = {path: text for path, text in self.live.items() if not any(part in path for part in gone)}

    def reboot(self) -> None:
        kept = {name: uuid for name, uuid in self.uuids.items() if name.startswith("md")}
        self.stop_arrays()
        if self.is_assembled_at_boot:
            blocks = [content.get(PLACE, b"") for name, content in self.content.items()]
            for uuid in sorted({block[16:32].hex() for block in blocks if block}):
                self._start(uuid)
        assert len(kept) <= 1
        self.uuids |= {f"md{127}": uuid for uuid in kept.values()}
        super().reboot()


CHANGES = {
    "a signature": lambda node: node.put("nvme1n1", 0, b"LABELONE"),
    "one byte, uncounted": lambda node: node.put("nvme1n1", 77, b"x", counts=False),
    "a partition": lambda node: node.live.update({"/sys/block/nvme1n1/nvme1n1p1/partition": "1"}),
    "a holder": lambda node: node.live.update({"/sys/block/nvme1n1/holders/dm-0": ""}),
    "a mount": lambda node: node.mounts.update({"/data": ("nvme1n1", "ext4")}),
    "another claim": lambda node: node.claimed.add("nvme1n1"),
    "a superblock of another array": lambda node: node.put("nvme1n1", PLACE, block_of("ab" * 16, 3)),
    "a swapped disk": lambda node: node.live.update({"/sys/block/nvme1n1/device/serial": "S6OTHER"}),
    "a twin": lambda node: node.add("S6BBBB"),
    "no disk": lambda node: node.unplug("nvme1n1"),
    "errors": lambda node: node.failing.add("nvme1n1"),
    "another size": lambda node: node.live.update({"/sys/block/nvme1n1/size": str(SIZE // 512 - 8)}),
}  # fmt: skip
"""What can happen to the second disk of a node, by name."""


def ask(agent, value=RAID, expect=SEEN):
    return agent.ask(want(KEY, value, expect)).setting(KEY)


def folder(value=RAID):
    return parsed(value).where(VOLUME.name)
