"""Formatting and joining disks: the only thing of Setpoint's that no revert undoes, and the one place that does it.

Called by the gate alone, so that no path leads around these checks. A disk is formatted only if exactly one has the
serial number, it counts as empty by the law of agent.disks, read again while nothing else can claim it, and it is kept
open until the program ends, so that the name cannot come to mean another disk.

An array of RAID 0 is made of disks that pass the same checks, and formatted only if the kernel has it of exactly these
disks, their superblocks have the UUID that the layout gives it, and it counts as empty by the same law.

What remains is the moment between the end of that claim and the program's own: both programs refuse a disk that
something else has claimed by then, and mdadm does, too.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence

from agent import disks as looks
from agent.host import Command, Host
from agent.kinds import arrays
from agent.kinds.base import WriteRefused
from contract import disk_layouts, disks
from contract.disk_layouts import Layout, Volume

COMMANDS = {"ext4": Command.MAKE_EXT4, "xfs": Command.MAKE_XFS}
PROGRAMS = {filesystem: command.value[0] for filesystem, command in COMMANDS.items()}
OWN_COMMANDS = (*COMMANDS.values(), Command.MAKE_RAID0, Command.ASSEMBLE_ARRAY)
"""Those that run here alone."""


class NotTouched(WriteRefused):
    """The disk was not written to. `str()` is half a sentence for the report."""


def programs(host: Host) -> list[str]:
    """Return the file systems that the host has a program for, and mdadm where it has that."""
    out = [filesystem for filesystem in disk_layouts.FILESYSTEMS if host.has(PROGRAMS[filesystem])]
    return out + [disk_layouts.MDADM] * host.has(disk_layouts.MDADM)


def names_of(host: Host, serial: str) -> list[str]:
    """Return the kernel's names of the disks with this serial number: one, unless there is none or it appears twice."""
    return [name for name in disks.NAMES if (host.read_text(_serial_file(name)) or "").strip() == serial]


def disks_of(host: Host, volume: Volume) -> list[str]:
    """Return the kernel's names of the volume's disks, in their order. Raises NotTouched unless each has one."""
    return [_only_name(host, serial) for serial in volume.serials]


def device_of(host: Host, volume: Volume) -> str | None:
    """Return the kernel's name of the disk or array that the volume is on; None where that is not there."""
    try:
        names = disks_of(host, volume)
    except NotTouched:
        return None
    return arrays.array_of(host, names) if volume.is_array else names[0]


def format_volume(host: Host, layout: Layout, volume: Volume) -> None:
    """Make the layout's file system on the empty disk with this serial number, or on the empty array of several.

    Raises NotTouched, WriteRefused (the program failed, and may have written).
    """
    with _checked_array(host, layout, volume) if volume.is_array else _checked(host, layout, volume.name) as name:
        ran = host.run(COMMANDS[layout.filesystem], *_words(layout, volume), f"/dev/{name}")
    if ran.code:
        raise WriteRefused(f"{PROGRAMS[layout.filesystem]} answered {ran.code} for {titled(volume)}: {ran.output}")


def check_disk(host: Host, layout: Layout, serial: str) -> None:
    """Check everything that is checked before a disk is written to. Raises NotTouched."""
    with _checked(host, layout, serial):
        pass


def make_array(host: Host, layout: Layout, volume: Volume) -> None:
    """Join the empty disks of the volume. Raises NotTouched, WriteRefused (mdadm failed, and may have written)."""
    with contextlib.ExitStack() as stack:
        names = [stack.enter_context(_checked(host, layout, serial)) for serial in volume.serials]
        sizes = {(host.read_text(f"/sys/block/{name}/size") or "").strip() for name in names}
        if len(names) < 2 or len(sizes) != 1:
            raise NotTouched(f"{titled(volume)} would be of disks that differ in size; min and max choose among them")
        host.run(Command.LOAD_RAID0)
        if "[raid0]" not in (host.read_text("/proc/mdstat") or ""):
            raise NotTouched("this kernel has no RAID 0: module raid0 cannot be loaded")
        name = layout.array_name(volume.name)
        count = f"--raid-devices={len(names)}"
        words = (*_identity(layout, volume), f"--name={name}", count, f"/dev/md/{name}", *_devices(names))
        ran = host.run(Command.MAKE_RAID0, *words)
    if ran.code:
        raise WriteRefused(f"mdadm answered {ran.code} for {titled(volume)}: {ran.output}")


def assemble(host: Host, layout: Layout, volume: Volume) -> None:
    """Start the layout's array, unless the kernel has it. Writes to no disk. Raises NotTouched."""
    names = disks_of(host, volume)
    refuse_foreign_members(host, layout, volume)
    if arrays.array_of(host, names):
        return
    ran = host.run(
        Command.ASSEMBLE_ARRAY,
        *_identity(layout, volume),
        f"/dev/md/{layout.array_name(volume.name)}",
        *_devices(names),
    )
    if not arrays.array_of(host, names):
        raise NotTouched(f"{titled(volume)} does not start: mdadm answered {ran.code}: {ran.output}")


def refuse_foreign_members(host: Host, layout: Layout, volume: Volume) -> None:
    """Raise NotTouched unless the superblock of each disk is that of this layout's array."""
    for serial in volume.serials:
        try:
            block = arrays.superblock(host, _only_name(host, serial))
        except OSError as error:
            raise NotTouched(f"disk {serial} cannot be read: {error.strerror or error}") from error
        if block != arrays.Superblock(layout.array_uuid(volume.name), 0, len(volume.serials)):
            what = f"is of another array ({block.uuid})" if block else "has no superblock of it"
            raise NotTouched(f"disk {serial} {what}, not of {titled(volume)}")


def content_of_array(host: Host, name: str) -> str:
    """Return `empty`, or half a sentence that says what is on the array or uses it; nothing remembered."""
    size = (host.read_text(f"/sys/block/{name}/size") or "").strip()
    if not size.isdecimal() or int(size) * looks.SECTOR < looks.LEAST_SIZE:
        return "has no size"
    return looks.in_use(host, name) or looks.content(host, name, int(size) * looks.SECTOR)


def titled(volume: Volume) -> str:
    return f"the array of {', '.join(volume.serials)}" if volume.is_array else f"disk {volume.name}"


@contextlib.contextmanager
def _checked_array(host: Host, layout: Layout, volume: Volume) -> Iterator[str]:
    """Yield the name of the layout's own empty array, kept open. Raises NotTouched."""
    refuse_foreign_members(host, layout, volume)
    name = arrays.array_of(host, disks_of(host, volume))
    if name is None:
        raise NotTouched(f"the kernel has no RAID 0 of exactly {', '.join(volume.serials)}")
    try:
        with host.hold_disk(name):
            with host.hold_disk(name, exclusively=True):
                state = content_of_array(host, name)
                if state != disks.EMPTY:
                    raise NotTouched(f"{titled(volume)} is not empty: it {state}")
                if arrays.array_of(host, disks_of(host, volume)) != name:
                    raise NotTouched(f"{name} is not {titled(volume)} any more")
            yield name
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise NotTouched(f"{titled(volume)} is in use: another program has claimed it") from error
        raise NotTouched(f"{titled(volume)} cannot be opened: {error.strerror or error}") from error


def _identity(layout: Layout, volume: Volume) -> tuple[str]:
    digits = layout.array_uuid(volume.name)
    return (f"--uuid={':'.join(digits[at : at + 8] for at in range(0, 32, 8))}",)


def _devices(names: Sequence[str]) -> list[str]:
    return [f"/dev/{name}" for name in names]


def _only_name(host: Host, serial: str) -> str:
    names = names_of(host, serial)
    if len(names) != 1:
        raise NotTouched(f"{'no disk has' if not names else f'{len(names)} disks have'} the serial number {serial}")
    return names[0]


@contextlib.contextmanager
def _checked(host: Host, layout: Layout, serial: str) -> Iterator[str]:
    """Yield the name of the empty disk, kept open. Raises NotTouched."""
    if not disks.is_serial(serial):
        raise NotTouched("a disk without a serial number is never formatted")
    name = _only_name(host, serial)
    try:
        with host.hold_disk(name):
            with host.hold_disk(name, exclusively=True):
                _check(host, name, layout, serial)
            yield name
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise NotTouched(f"disk {serial} is in use: another program has claimed it") from error
        raise NotTouched(f"disk {serial} cannot be opened: {error.strerror or error}") from error


def _check(host: Host, name: str, layout: Layout, serial: str) -> None:
    disk = looks.Disks().read(host, name)  # a fresh one: nothing that was read earlier counts
    if disk is None or disk.serial != serial or names_of(host, serial) != [name]:
        raise NotTouched(f"{name} is not the only disk with the serial number {serial} any more")
    if not disk.is_empty:
        raise NotTouched(f"disk {serial} is not empty: it {disk.state}")
    if not layout.takes(disk.size // disk_layouts.GB):
        raise NotTouched(f"disk {serial} has {disk.size} bytes, and the layout takes none of that size")


def _words(layout: Layout, volume: Volume) -> list[str]:
    uuid = layout.uuid(volume.name)
    words = ["-U", uuid] if layout.filesystem == "ext4" else ["-m", f"uuid={uuid}"]
    return [*words, "-L", layout.label] if layout.label else words


def _serial_file(name: str) -> str:
    return f"/sys/block/{name}/device/serial"
