"""Kernel arguments: read from /proc/cmdline, written through the boot loader's own tools, effective at the next boot.

On hosts with update-grub the argument goes to a drop-in of Setpoint's own, written with the other persisted files; on
hosts with grubby it is a command. Both add to the line and never rewrite it.
"""

from __future__ import annotations

from agent.host import Command, Host
from agent.kinds.base import AtStart, EffectiveValue, Unsupported, WriteRefused
from contract.nodetuning import MAX_VALUE, RestartAction

GRUB_FOLDER = "/boot/grub"
WRITABLE = ("ext2", "ext3", "ext4", "vfat", "xfs")
"""File systems on which GRUB writes its environment block, on a plain partition or disk."""
PRESENT = "present"
"""Value of an argument that has none, such as `nosoftlockup`."""


def arguments(line: str) -> dict[str, str]:
    """Kernel arguments by name, the last of a name winning; what follows `--` belongs to init."""
    values: dict[str, str] = {}
    word, quoted = "", False
    for char in line.strip() + " ":
        if char == '"':
            quoted = not quoted
        elif char.isspace() and not quoted:
            if word == "--":
                break
            if word:
                name, equals, value = word.partition("=")
                values[name] = value if equals else PRESENT
            word = ""
        else:
            word += char
    return values


def argument(key: str, value: str) -> str:
    name = key.removeprefix("cmdline.")
    return name if value == PRESENT else f"{name}={value}"


def uses_drop_in(host: Host) -> bool:
    return host.has("update-grub")


def can_fall_back(host: Host) -> bool | None:
    """Return whether GRUB can give arguments to one boot only: it has to note that by itself, on the file system and
    device it boots from. None where the kernel names no mounts.
    """
    mounts = host.read_text("/proc/1/mountinfo")
    if mounts is None:
        return None
    if not uses_drop_in(host) or not host.has("grub-editenv") or not host.glob("/etc/grub.d/00_header"):
        return False
    mount, kind, device = "", "", ""
    for line in mounts.splitlines():
        fields, _, source = line.partition(" - ")  # proc(5): the third field is the device, the fifth the mount point
        match fields.split():
            case [_, _, number, _, point, *_] if f"{GRUB_FOLDER}/".startswith(f"{point.rstrip('/')}/"):
                if len(point) >= len(mount):
                    mount, kind, device = point, source.partition(" ")[0], number
    stacked = host.glob(f"/sys/dev/block/{device}/dm") or host.glob(f"/sys/dev/block/{device}/md")
    return kind in WRITABLE and not stacked


class Cmdline(AtStart):
    restart = RestartAction.REBOOT

    def __init__(self) -> None:
        self._parsed: tuple[str, dict[str, str]] = ("", {})
        """The line that was parsed last, and its arguments: dozens of keys read the same line."""

    def read(self, host: Host, key: str) -> EffectiveValue:
        line = host.read_text("/proc/cmdline") or ""
        if self._parsed[0] != line:
            self._parsed = (line, arguments(line))
        value = self._parsed[1].get(key.removeprefix("cmdline."))
        return EffectiveValue(None if value is None else value[:MAX_VALUE])

    def check(self, host: Host, key: str, value: str) -> None:
        if not uses_drop_in(host) and not host.has("grubby"):
            raise Unsupported("unsupported here: the host has neither update-grub nor grubby")

    def write(self, host: Host, key: str, operator: str, value: str) -> None:
        if not uses_drop_in(host):
            self._grubby(host, Command.GRUBBY_ADD, argument(key, value))

    def take_away(self, host: Host, key: str, written: str, original: EffectiveValue) -> None:
        """Undo write: the argument goes, or gets its earlier value back. Raises Refused."""
        if uses_drop_in(host):
            return
        self._grubby(host, Command.GRUBBY_REMOVE, argument(key, written))
        if original.value is not None:
            self._grubby(host, Command.GRUBBY_ADD, argument(key, original.value))

    @staticmethod
    def _grubby(host: Host, command: Command, argument: str) -> None:
        ran = host.run(command, argument)
        if ran.code:
            raise WriteRefused(f"grubby answered {ran.code}: {ran.output}")
