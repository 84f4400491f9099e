"""Formatting one disk: the only thing of Setpoint's that no revert undoes, and the one place that does it.

Called by the gate alone, so that no path leads around these checks. A disk is formatted only if exactly one has the
serial number, it counts as empty by the law of agent.disks, read again while nothing else can claim it, and it is kept
open until the program ends, so that the name cannot come to mean another disk.

What remains is the moment between the end of that claim and the program's own: both programs refuse a disk that
something else has claimed by then.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from agent.disks import Disks
from agent.host import Command, Host
from agent.kinds.base import WriteRefused
from contract import disk_layouts, disks
from contract.disk_layouts import Layout

COMMANDS = {"ext4": Command.MAKE_EXT4, "xfs": Command.MAKE_XFS}
PROGRAMS = {filesystem: command.value[0] for filesystem, command in COMMANDS.items()}


class NotTouched(WriteRefused):
    """The disk was not written to. `str()` is half a sentence for the report."""


def filesystems(host: Host) -> list[str]:
    """Return the file systems that the host has a program for."""
    return [filesystem for filesystem in disk_layouts.FILESYSTEMS if host.has(PROGRAMS[filesystem])]


def names_of(host: Host, serial: str) -> list[str]:
    """Return the kernel's names of the disks with this serial number: one, unless there is none or it appears twice."""
    return [name for name in disks.NAMES if (host.read_text(_serial_file(name)) or "").strip() == serial]


def format_disk(host: Host, layout: Layout, serial: str) -> None:
    """Make the layout's file system on the empty disk with this serial number.

    Raises NotTouched, WriteRefused (the program failed, and may have written).
    """
    with _checked(host, layout, serial) as name:
        ran = host.run(COMMANDS[layout.filesystem], *_words(layout, serial), f"/dev/{name}")
    if ran.code:
        raise WriteRefused(f"{PROGRAMS[layout.filesystem]} answered {ran.code} for disk {serial}: {ran.output}")


def check_disk(host: Host, layout: Layout, serial: str) -> None:
    """Check everything that format_disk does. Raises NotTouched."""
    with _checked(host, layout, serial):
        pass


@contextlib.contextmanager
def _checked(host: Host, layout: Layout, serial: str) -> Iterator[str]:
    """Yield the name of the empty disk, kept open. Raises NotTouched."""
    if not disks.is_serial(serial):
        raise NotTouched("a disk without a serial number is never formatted")
    names = names_of(host, serial)
    if len(names) != 1:
        raise NotTouched(f"{'no disk has' if not names else f'{len(names)} disks have'} the serial number {serial}")
    try:
        with host.hold_disk(names[0]):
            with host.hold_disk(names[0], exclusively=True):
                _check(host, names[0], layout, serial)
            yield names[0]
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise NotTouched(f"disk {serial} is in use: another program has claimed it") from error
        raise NotTouched(f"disk {serial} cannot be opened: {error.strerror or error}") from error


def _check(host: Host, name: str, layout: Layout, serial: str) -> None:
    disk = Disks().read(host, name)  # a fresh one: nothing that was read earlier counts
    if disk is None or disk.serial != serial or names_of(host, serial) != [name]:
        raise NotTouched(f"{name} is not the only disk with the serial number {serial} any more")
    if not disk.is_empty:
        raise NotTouched(f"disk {serial} is not empty: it {disk.state}")
    if not layout.takes(disk.size // disk_layouts.GB):
        raise NotTouched(f"disk {serial} has {disk.size} bytes, and the layout takes none of that size")


def _words(layout: Layout, serial: str) -> list[str]:
    uuid = layout.uuid(serial)
    words = ["-U", uuid] if layout.filesystem == "ext4" else ["-m", f"uuid={uuid}"]
    return [*words, "-L", layout.label] if layout.label else words


def _serial_file(name: str) -> str:
    return f"/sys/block/{name}/device/serial"
