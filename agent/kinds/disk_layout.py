"""Layouts of local disks: empty disks that an approved plan names are formatted and mounted by systemd.

The value that the node answers without a layout lists its empty disks; the plan has it as what it saw, and the agent
formats the disks in that list and no other. What was begun is in the journal before a disk is written to, so a second
run knows its own work: a disk that was formatted is mounted, one whose formatting was cut short is formatted again
only if it still is empty, and named with what is on it otherwise.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping

from agent import gate
from agent.disks import Disks
from agent.host import Command, Host
from agent.journal import DiskLayout, Journal, LaidDisk
from agent.kinds import formatting
from agent.kinds.base import EffectiveValue, Handler, Unsupported, WriteRefused
from contract import disk_layouts, disks
from contract.disk_layouts import Layout, parsed
from contract.disks import Disk
from contract.nodetuning import MAX_VALUE

FORMATTING, FORMATTED = "formatting", "formatted"
OWN = "# Written by the Setpoint agent for disk "
_UNIT = """\
{own}{serial}; changes here are overwritten.
[Unit]
Description=Local disk {serial}
Before=kubelet.service

[Mount]
What=/dev/disk/by-uuid/{uuid}
Where={where}
Type={filesystem}
Options={options}
TimeoutSec=60

[Install]
WantedBy=multi-user.target
"""


def unit_text(layout: Layout, serial: str) -> str:
    """Return the unit that mounts a disk. Nothing requires it: a node whose disk died boots without it."""
    return _UNIT.format(
        own=OWN,
        serial=serial,
        uuid=layout.uuid(serial),
        where=layout.where(serial),
        filesystem=layout.filesystem,
        options=",".join(layout.options) or "defaults",
    )


class DiskLayouts(Handler):
    def __init__(self, journal: Journal, looks: Disks) -> None:
        self._journal, self._disks = journal, looks

    @property
    def _layout(self) -> DiskLayout:
        return self._journal.content.layout

    def read(self, host: Host, key: str) -> EffectiveValue:
        there = [disk for name in disks.NAMES if (disk := self._disks.read(host, name))]
        layout = self._layout
        if layout.done:
            made = _known(layout.value)
            mounts = _mounts(host)
            names = {disk.serial: disk.name for disk in _distinct(there)}
            missing = [
                disk.serial
                for disk in layout.disks
                if not _is_seen(host, mounts, made, disk.serial, names.get(disk.serial))
            ]
            return EffectiveValue((disk_layouts.unmounted(missing) if missing else layout.value)[:MAX_VALUE])
        if not there:
            return EffectiveValue(None)
        begun = {disk.serial for disk in layout.disks if disk.state}
        free = [(disk.serial, disk.size) for disk in _distinct(there) if disk.is_empty or disk.serial in begun]
        answer = disk_layouts.answer(free, formatting.filesystems(host))
        # An answer that was cut would name some disks, and look whole.
        return EffectiveValue(answer if len(answer) <= MAX_VALUE else disk_layouts.answer((), ()))

    def check(self, host: Host, key: str, value: str) -> None:
        layout = parsed(value)
        if not host.has("systemctl"):
            raise Unsupported("unsupported here: the host has no systemctl, and systemd mounts the disks")
        if self._layout.value not in ("", value) and (self._layout.done or self.has_traces(key)):
            raise WriteRefused(f"this node's disks have the layout {self._layout.value}: revert that first")
        if self._layout.done:
            return
        if not host.has(formatting.PROGRAMS[layout.filesystem]):
            raise Unsupported(f"unsupported here: the host has no {formatting.PROGRAMS[layout.filesystem]}")
        if not disk_layouts.selected(value, self.read(host, key).value):
            raise Unsupported("unsupported here: no local disk is empty and of the size that the layout takes")
        for disk in self._layout.disks:
            if disk.state == FORMATTING:
                self._refuse_half_formatted(host, disk.serial)

    def intend(self, host: Host, key: str, value: str, expect: str | None) -> None:
        """Note the disks that the plan was approved with; those that are begun keep their state."""
        if self._layout.done and self._layout.value == value:
            return
        known = {disk.serial: disk.state for disk in self._layout.disks} if self._layout.value == value else {}
        chosen = disk_layouts.selected(value, expect)
        self._journal.content.layout = DiskLayout(value, [LaidDisk(serial, known.get(serial, "")) for serial in chosen])

    def has_traces(self, key: str) -> bool:
        return any(disk.state for disk in self._layout.disks)

    def write(self, host: Host, key: str, operator: str, value: str) -> None:
        if self._layout.value != value or not self._layout.disks or not isinstance(host, gate.Gate):
            raise WriteRefused("no disk was approved for this layout")
        layout = parsed(value)
        for disk in self._layout.disks:
            self._refuse_foreign_place(host, layout, disk.serial)
            if not disk.state and not self._layout.done:
                formatting.check_disk(host, layout, disk.serial)  # all of them, before the first is written to
        for disk in self._layout.disks:
            if disk.state != FORMATTED and not self._layout.done:
                self._format(host, layout, disk)
        self._mount(host, layout)
        self._layout.done = True
        self._journal.save()

    def put_back(self, host: Host, key: str, original: EffectiveValue) -> None:
        """Unmount; file systems and their data stay on the disks."""
        if not self._layout.value:
            if disk_layouts.is_absent(self.read(host, key).value):
                return
            raise WriteRefused("this node's journal knows of no layout: unmount the disks by hand")
        layout = _known(self._layout.value)
        for disk in self._layout.disks:
            where = layout.where(disk.serial)
            path = _unit_file(where)
            if not (host.read_text(path) or "").startswith(OWN):
                continue
            ran = host.run(Command.UNMOUNT_UNIT, disk_layouts.unit_of(where))
            if where in _mounts(host):
                raise WriteRefused(
                    f"{where} (disk {disk.serial}) is busy and stays mounted: end what uses it, then retry "
                    f"(systemctl answered {ran.code}: {ran.output})"
                )
            host.run(Command.FORGET_UNIT, disk_layouts.unit_of(where))
            host.persist(path, None)
        _reload(host)
        self._journal.content.layout = DiskLayout()

    def left_behind(self, key: str) -> str:
        serials = [disk.serial for disk in self._layout.disks if disk.state]
        return f"unmounted only: the file systems and their data stay on {', '.join(serials)}" if serials else ""

    def _format(self, host: gate.Gate, layout: Layout, disk: LaidDisk) -> None:
        if disk.state == FORMATTING:
            self._refuse_half_formatted(host, disk.serial)
        before, disk.state = disk.state, FORMATTING
        self._journal.save()
        try:
            host.format_disk(layout, disk.serial)
        except formatting.NotTouched:
            disk.state = before
            self._journal.save()
            raise
        disk.state = FORMATTED
        self._journal.save()

    def _refuse_half_formatted(self, host: Host, serial: str) -> None:
        for name in formatting.names_of(host, serial):
            disk = self._disks.read(host, name)
            if disk and not disk.is_empty:
                raise WriteRefused(
                    f"formatting disk {serial} was cut short, and it {disk.state}: look at it, wipe it by hand, then "
                    "retry"
                )

    def _refuse_foreign_place(self, host: Host, layout: Layout, serial: str) -> None:
        """Refuse before a disk is written to where its unit or folder is another party's."""
        where = layout.where(serial)
        text = host.read_text(_unit_file(where))
        if text is not None and not text.startswith(f"{OWN}{serial};"):
            raise WriteRefused(f"{_unit_file(where)} is not Setpoint's")
        if not _is_mounted(host, layout, serial) and (where in _mounts(host) or host.glob(f"{where}/*")):
            raise WriteRefused(f"{where} is in use: something else is mounted or stored there")

    def _mount(self, host: gate.Gate, layout: Layout) -> None:
        for disk in self._layout.disks:
            path, text = _unit_file(layout.where(disk.serial)), unit_text(layout, disk.serial)
            if host.read_text(path) != text:
                host.persist(path, text)
        _reload(host)
        for disk in self._layout.disks:
            where = layout.where(disk.serial)
            ran = host.run(Command.MOUNT_UNIT, disk_layouts.unit_of(where))
            if not _is_mounted(host, layout, disk.serial):
                raise WriteRefused(
                    f"disk {disk.serial} is not mounted at {where}: systemctl answered {ran.code}: {ran.output}"
                )


def _known(value: str) -> Layout:
    """Read the journal's layout. Raises OSError: another version of the agent may have known more."""
    try:
        return parsed(value)
    except disk_layouts.BadLayout as error:
        raise OSError(errno.EINVAL, f"this version of the agent does not know the layout {value}") from error


def _reload(host: Host) -> None:
    ran = host.run(Command.RELOAD_UNITS)
    if ran.code:
        raise WriteRefused(f"systemctl daemon-reload answered {ran.code}: {ran.output}")


def _unit_file(where: str) -> str:
    return f"{disk_layouts.UNIT_FOLDER}/{disk_layouts.unit_of(where)}"


def _distinct(there: Iterable[Disk]) -> list[Disk]:
    """Return the disks whose serial number no other one has."""
    rows = list(there)
    serials = [disk.serial for disk in rows]
    return [disk for disk in rows if serials.count(disk.serial) == 1]


def _mounts(host: Host) -> dict[str, tuple[str, str]]:
    """Return, by folder, device number and type of what is mounted there, on top of all else (proc(5))."""
    out = {}
    for line in (host.read_text("/proc/1/mountinfo") or "").splitlines():
        fields, _, source = line.partition(" - ")
        match fields.split(), source.split():
            case [_, _, number, _, point, *_], [kind, *_]:
                out[point] = (number, kind)
    return out


def _is_seen(host: Host, mounts: Mapping[str, tuple[str, str]], layout: Layout, serial: str, name: str | None) -> bool:
    if name is None:
        return False
    number = (host.read_text(f"/sys/block/{name}/dev") or "").strip()
    return mounts.get(layout.where(serial)) == (number, layout.filesystem)


def _is_mounted(host: Host, layout: Layout, serial: str) -> bool:
    """Return whether the file system on exactly this disk is what is seen at its folder."""
    names = formatting.names_of(host, serial)
    return len(names) == 1 and _is_seen(host, _mounts(host), layout, serial, names[0])
