"""Layouts of local disks: the value that a profile sets, and the disks that an agent would make it of.

A profile says what becomes of empty disks and never which: serial numbers differ from node to node. The agent answers
the key with the serial number and size of each disk that is empty now. A plan freezes that answer as what it saw, and
so an approval is about exactly those disks; the agent makes the layout only while its answer is still the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from contract.disks import is_serial

KEY = "disks.layout"
FILESYSTEMS = ("ext4", "xfs")
SINGLE, RAID0 = "single", "raid0"
MDADM = "mdadm"
"""Beside file systems in an answer: the host can join disks. An agent that does not know arrays never answers it."""
OPTIONS = ("discard", "lazytime", "noatime", "nodev", "nodiratime", "noexec", "nosuid", "relatime")
"""Mount options that lose no data and open no door, in the order in which they are written."""
ROOTS = ("data", "mnt", "scratch", "srv")
"""Top folders below which disks may be mounted: none that a distribution, the kubelet or a container runtime keeps."""
MOST_GB = 999_999
GB = 10**9
FORM = (
    "layout=single,filesystem=ext4,mount=/mnt/fast-disks[,options=noatime+discard][,label=fast][,min=1000][,max=8000], "
    "or with layout=raid0"
)

_MOUNT = re.compile(rf"/(?:{'|'.join(ROOTS)})(?:/[a-z0-9][a-z0-9_-]{{0,31}}){{1,3}}")
_LABEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,11}")
"""XFS keeps 12 characters."""
_SIZE = re.compile(r"[1-9][0-9]{0,5}")
_FIELDS = ("layout", "filesystem", "mount", "options", "label", "min", "max")
_ANSWER = re.compile(r"empty=(?P<disks>[^;]*);mkfs=(?P<programs>[a-z0-9+]*)")
_UNMOUNTED = "unmounted="
_NUMBERED = re.compile(r"(?P<serial>.+):(?P<gb>[0-9]{1,6})")
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_WHERE = re.compile(rf"{_MOUNT.pattern}/{_UUID}")
_PLAIN = re.compile(r"[A-Za-z0-9_/]")
UNIT_FOLDER = "/etc/systemd/system"


class BadLayout(ValueError):
    """A value that is no layout. `str()` is half a sentence that says what would be right."""


@dataclass(frozen=True, slots=True)
class Volume:
    """One file system of a layout, and the serial numbers of the disks that it is on; sorted."""

    serials: tuple[str, ...]

    @property
    def name(self) -> str:
        """The serial number; of an array those of all its disks, joined by a character that none contains."""
        return "+".join(self.serials)

    @property
    def is_array(self) -> bool:
        return len(self.serials) > 1


@dataclass(frozen=True, slots=True)
class Layout:
    """Each empty disk of the node becomes one file system, or all of them one of RAID 0: mounted below `mount` in a
    folder named by its UUID.
    """

    filesystem: str
    mount: str
    options: tuple[str, ...] = ()
    label: str = ""
    least_gb: int = 0
    most_gb: int = MOST_GB
    kind: str = SINGLE

    def to_text(self) -> str:
        words = [f"layout={self.kind}", f"filesystem={self.filesystem}", f"mount={self.mount}"]
        if self.options:
            words.append(f"options={'+'.join(self.options)}")
        if self.label:
            words.append(f"label={self.label}")
        if self.least_gb:
            words.append(f"min={self.least_gb}")
        if self.most_gb != MOST_GB:
            words.append(f"max={self.most_gb}")
        return ",".join(words)

    def volumes(self, serials: Iterable[str]) -> tuple[Volume, ...]:
        """Return the file systems that this layout makes of these disks."""
        ordered = tuple(sorted(serials))
        if self.kind == RAID0:
            return (Volume(ordered),) if len(ordered) > 1 else ()
        return tuple(Volume((serial,)) for serial in ordered)

    def where(self, volume: str) -> str:
        """Return the folder in which the file system of this name is mounted."""
        return f"{self.mount}/{self.uuid(volume)}"

    def uuid(self, volume: str) -> str:
        """Return the UUID of this layout's file system of this name: always the same one (RFC 9562, version 8)."""
        return self._uuid(volume)

    def array_uuid(self, volume: str) -> str:
        """Return the UUID in the superblocks of this layout's array of this name, as 32 hexadecimal digits."""
        return self._uuid(f"array {volume}").replace("-", "")

    def array_name(self, volume: str) -> str:
        """Return the name in the superblocks of this layout's array."""
        return f"setpoint-{self.array_uuid(volume)[:8]}"

    def _uuid(self, name: str) -> str:
        digest = hashlib.sha256(f"{self.to_text()}\n{name}".encode()).hexdigest()
        return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"

    def takes(self, gb: int) -> bool:
        return self.least_gb <= gb <= self.most_gb


def parsed(text: str) -> Layout:
    """Read a value. Raises BadLayout."""
    words = dict.fromkeys(_FIELDS, "")
    for word in text.split(","):
        name, equals, value = word.partition("=")
        if name not in words or not equals:
            raise BadLayout(f"{word!r} is no part of a layout, which is written {FORM}")
        if words[name] or not value:
            raise BadLayout(f"{name} is given {'twice' if words[name] else 'without a value'}")
        words[name] = value
    _check(words)
    layout = Layout(
        filesystem=words["filesystem"],
        mount=words["mount"],
        options=tuple(sorted(words["options"].split("+"))) if words["options"] else (),
        label=words["label"],
        least_gb=int(words["min"] or 0),
        most_gb=int(words["max"] or MOST_GB),
        kind=words["layout"],
    )
    if layout.least_gb > layout.most_gb:
        raise BadLayout("min is more than max")
    if layout.to_text() != text:
        raise BadLayout(f"must be written as {layout.to_text()}")
    return layout


def _check(words: dict[str, str]) -> None:
    if words["layout"] not in (SINGLE, RAID0):
        raise BadLayout("layout must be single (one file system for each disk) or raid0 (one on all of them)")
    if words["filesystem"] not in FILESYSTEMS:
        raise BadLayout(f"filesystem must be {' or '.join(FILESYSTEMS)}")
    if not _MOUNT.fullmatch(words["mount"]):
        raise BadLayout(
            f"mount must be a folder below {', '.join(f'/{root}' for root in ROOTS[:-1])} or /{ROOTS[-1]}, such as "
            "/mnt/fast-disks: one to three names of at most 32 small letters, digits, - and _"
        )
    options = words["options"].split("+") if words["options"] else []
    if unknown := [option for option in options if option not in OPTIONS]:
        raise BadLayout(f"option {unknown[0]!r} is none of {', '.join(OPTIONS)}")
    if len(options) != len(set(options)) or {"noatime", "relatime"} <= set(options):
        raise BadLayout("options holds one twice, or noatime beside relatime")
    if words["label"] and not _LABEL.fullmatch(words["label"]):
        raise BadLayout("label must be at most 12 small letters, digits, - and _")
    for name in ("min", "max"):
        if words[name] and not _SIZE.fullmatch(words[name]):
            raise BadLayout(f"{name} must be a whole number of GB (10^9 bytes) from 1 to {MOST_GB}")


def bad_value(text: str) -> str:
    """Return why this is no layout, as half a sentence; empty when it is one."""
    try:
        parsed(text)
    except BadLayout as error:
        return str(error)
    return ""


def answer(disks: Iterable[tuple[str, int]], programs: Iterable[str]) -> str:
    """Return what an agent answers on a node without a layout: serial number and bytes of each empty disk, the file
    systems that the host has programs for, and `mdadm` where it has that.
    """
    words = sorted(f"{serial}:{size // GB}" for serial, size in disks)
    return f"empty={','.join(words)};mkfs={'+'.join(sorted(programs))}"


def unmounted(serials: Iterable[str]) -> str:
    """Return what an agent answers where disks of a layout that was made are not mounted."""
    return _UNMOUNTED + ",".join(sorted(serials))


def is_unmounted(effective: str | None) -> bool:
    return effective is not None and effective.startswith(_UNMOUNTED)


def is_absent(effective: str | None) -> bool:
    """Return whether the answer is that of a node without a layout of Setpoint's."""
    return effective is not None and _ANSWER.fullmatch(effective) is not None


def filesystems_of(effective: str | None) -> tuple[str, ...]:
    """Return the file systems that the host can make, by its agent's answer."""
    return tuple(word for word in _programs(effective) if word in FILESYSTEMS)


def has_mdadm(effective: str | None) -> bool:
    """Return whether the host can join disks, by its agent's answer."""
    return MDADM in _programs(effective)


def _programs(effective: str | None) -> tuple[str, ...]:
    match = _ANSWER.fullmatch(effective or "")
    return tuple(match["programs"].split("+")) if match else ()


def selected(value: str, effective: str | None) -> tuple[str, ...]:
    """Return the serial numbers of the disks that this layout would format, by an agent's answer; sorted.

    Empty for an answer that is not understood whole: a part of it is never acted upon. Empty, too, where disks that
    would be joined are fewer than two or not of one size.
    """
    layout = parsed(value)
    disks = fitting(value, effective)
    if layout.filesystem not in _programs(effective):
        return ()
    if layout.kind == RAID0 and (MDADM not in _programs(effective) or len(disks) < 2 or len(set(disks.values())) > 1):
        return ()
    return tuple(sorted(disks))


def why_none(value: str) -> str:
    """Return why a node whose host has the programs would have no disk selected, as half a sentence."""
    if parsed(value).kind == RAID0:
        return "there are not two empty local disks that the layout takes, or they are not of one size"
    return "no local disk is empty and of the size that the layout takes"


def fitting(value: str, effective: str | None) -> dict[str, int]:
    """Return the size in GB of each disk within the layout's limits, by serial number; empty as `selected`."""
    match = _ANSWER.fullmatch(effective or "")
    if match is None or not match["disks"]:
        return {}
    layout = parsed(value)
    disks = [_NUMBERED.fullmatch(word) for word in match["disks"].split(",")]
    sizes = {disk["serial"]: int(disk["gb"]) for disk in disks if disk and is_serial(disk["serial"])}
    if len(sizes) != len(disks):
        return {}
    return {serial: gb for serial, gb in sizes.items() if layout.takes(gb)}


def unit_of(where: str) -> str:
    """Return the name of the systemd unit that mounts there (systemd.unit(5), "String Escaping")."""
    escaped = "".join(c if _PLAIN.fullmatch(c) else f"\\x{ord(c):02x}" for c in where.strip("/"))
    return escaped.replace("/", "-") + ".mount"


def where_of(unit: str) -> str | None:
    """Return the folder that a unit of a layout mounts; None for any other unit's name."""
    where = "/" + unit.removesuffix(".mount").replace("-", "/").replace("\\x2d", "-")
    return where if _WHERE.fullmatch(where) and unit_of(where) == unit else None


def is_unit_file(path: str) -> bool:
    """Return whether this is the file of a unit that mounts a disk of a layout."""
    folder, _, name = path.rpartition("/")
    return folder == UNIT_FOLDER and where_of(name) is not None


def is_uuid(text: str) -> bool:
    return re.fullmatch(_UUID, text) is not None
