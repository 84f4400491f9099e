"""Layouts of local disks: empty disks that an approved plan names are formatted, alone or joined to one array of
RAID 0, and mounted by systemd.

The value that the node answers without a layout lists its empty disks; the plan has it as what it saw, and the agent
formats the disks in that list and no other. What was begun is in the journal before a disk is written to, so a second
run knows its own work: a disk that was formatted is mounted, one whose formatting was cut short is formatted again
only if it still is empty, and named with what is on it otherwise. An array that was made is known by the UUID in the
superblock of each member; one that was cut short while it was made is named.
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
from contract.disk_layouts import RAID0, Layout, Volume, parsed
from contract.disks import Disk
from contract.nodetuning import MAX_VALUE

JOINING, JOINED = "joining", "joined"
FORMATTING, FORMATTED = "formatting", "formatted"
OWN = "# Written by the Setpoint agent for disk "
_UNIT = """\
{own}{name}; changes here are overwritten.
[Unit]
Description=Local {disks}
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


def unit_text(layout: Layout, volume: Volume) -> str:
    """Return the unit that mounts a file system. Nothing requires it: a node whose disk died boots without it."""
    return _UNIT.format(
        own=OWN,
        name=volume.name,
        disks=f"disk{'s' if volume.is_array else ''} {' '.join(volume.serials)}",
        uuid=layout.uuid(volume.name),
        where=layout.where(volume.name),
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
            missing = [
                serial
                for volume in self._volumes(made)
                if not _is_seen(host, mounts, made, volume)
                for serial in volume.serials
            ]
            return EffectiveValue((disk_layouts.unmounted(missing) if missing else layout.value)[:MAX_VALUE])
        if not there:
            return EffectiveValue(None)
        begun = {disk.serial for disk in layout.disks if disk.state}
        free = [(disk.serial, disk.size) for disk in _distinct(there) if disk.is_empty or disk.serial in begun]
        answer = disk_layouts.answer(free, formatting.programs(host))
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
        for program in (formatting.PROGRAMS[layout.filesystem], *[disk_layouts.MDADM] * (layout.kind == RAID0)):
            if not host.has(program):
                raise Unsupported(f"unsupported here: the host has no {program}")
        if not disk_layouts.selected(value, self.read(host, key).value):
            raise Unsupported(f"unsupported here: {disk_layouts.why_none(value)}")
        for volume in self._volumes(layout):
            self._refuse_half_made(host, layout, volume)

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
        volumes = self._volumes(layout)
        if not volumes:
            raise WriteRefused("an array takes at least two disks, and the plan named fewer")
        for volume in volumes:
            self._refuse_foreign_place(host, layout, volume)
            if not self._layout.done and not self._state(volume):
                for serial in volume.serials:
                    formatting.check_disk(host, layout, serial)  # all of them, before the first is written to
        for volume in volumes:
            if not self._layout.done and self._state(volume) != FORMATTED:
                self._format(host, layout, volume)
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
        for volume in self._volumes(layout):
            where = layout.where(volume.name)
            path = _unit_file(where)
            if not (host.read_text(path) or "").startswith(OWN):
                continue
            ran = host.run(Command.UNMOUNT_UNIT, disk_layouts.unit_of(where))
            if where in _mounts(host):
                raise WriteRefused(
                    f"{where} ({formatting.titled(volume)}) is busy and stays mounted: end what uses it, then retry "
                    f"(systemctl answered {ran.code}: {ran.output})"
                )
            host.run(Command.FORGET_UNIT, disk_layouts.unit_of(where))
            host.persist(path, None)
        _reload(host)
        self._journal.content.layout = DiskLayout()

    def left_behind(self, key: str) -> str:
        begun = [disk for disk in self._layout.disks if disk.state]
        if not begun:
            return ""

        kept = "the array and its data" if "layout=raid0" in self._layout.value else "the file systems and their data"
        return f"unmounted only: {kept} stay on {', '.join(disk.serial for disk in begun)}"

    def _volumes(self, layout: Layout) -> tuple[Volume, ...]:
        return layout.volumes(disk.serial for disk in self._layout.disks)

    def _state(self, volume: Volume) -> str:
        """Return what was begun with the volume; disks of one are always in one state, and saved together."""
        return next(disk.state for disk in self._layout.disks if disk.serial in volume.serials)

    def _note(self, volume: Volume, state: str) -> None:
        for disk in self._layout.disks:
            if disk.serial in volume.serials:
                disk.state = state
        self._journal.save()

    def _format(self, host: gate.Gate, layout: Layout, volume: Volume) -> None:
        self._refuse_half_made(host, layout, volume)
        if volume.is_array and self._state(volume) in ("", JOINING):
            self._join(host, layout, volume)
        if volume.is_array:
            host.assemble(layout, volume)
        before = self._state(volume)
        self._note(volume, FORMATTING)
        try:
            host.format_volume(layout, volume)
        except formatting.NotTouched:
            self._note(volume, before)
            raise
        self._note(volume, FORMATTED)

    def _join(self, host: gate.Gate, layout: Layout, volume: Volume) -> None:
        if self._state(volume) == JOINING and not self._are_empty(host, volume):
            host.assemble(layout, volume)  # each has the superblock: mdadm had written all that it writes
        else:
            self._note(volume, JOINING)
            try:
                host.make_array(layout, volume)
            except formatting.NotTouched:
                self._note(volume, "")
                raise
        self._note(volume, JOINED)

    def _refuse_half_made(self, host: Host, layout: Layout, volume: Volume) -> None:
        """Refuse what a cut left neither empty nor whole: an operator looks at it, and wipes it by hand."""
        state, why = self._state(volume), ""
        if state == JOINING and not self._are_empty(host, volume):
            try:
                formatting.refuse_foreign_members(host, layout, volume)
            except formatting.NotTouched as error:
                why = f"making {formatting.titled(volume)} was cut short, and {error}"
        elif state == FORMATTING and (name := formatting.device_of(host, volume)):
            disk = None if volume.is_array else self._disks.read(host, name)
            content = formatting.content_of_array(host, name) if disk is None else disk.state
            if content != disks.EMPTY:
                why = f"formatting {formatting.titled(volume)} was cut short, and it {content}"
        if why:
            raise WriteRefused(f"{why}: look at it, wipe it by hand, then retry")

    def _are_empty(self, host: Host, volume: Volume) -> bool:
        there = [self._disks.read(host, name) for name in formatting.disks_of(host, volume)]
        return all(disk is not None and disk.is_empty for disk in there)

    def _refuse_foreign_place(self, host: Host, layout: Layout, volume: Volume) -> None:
        """Refuse before a disk is written to where its unit or folder is another party's."""
        where = layout.where(volume.name)
        text = host.read_text(_unit_file(where))
        if text is not None and not text.startswith(f"{OWN}{volume.name};"):
            raise WriteRefused(f"{_unit_file(where)} is not Setpoint's")
        mounts = _mounts(host)
        if not _is_seen(host, mounts, layout, volume) and (where in mounts or host.glob(f"{where}/*")):
            raise WriteRefused(f"{where} is in use: something else is mounted or stored there")

    def _mount(self, host: gate.Gate, layout: Layout) -> None:
        volumes = self._volumes(layout)
        for volume in volumes:
            if volume.is_array:
                host.assemble(layout, volume)
            path, text = _unit_file(layout.where(volume.name)), unit_text(layout, volume)
            if host.read_text(path) != text:
                host.persist(path, text)
        _reload(host)
        for volume in volumes:
            where = layout.where(volume.name)
            ran = host.run(Command.MOUNT_UNIT, disk_layouts.unit_of(where))
            if not _is_seen(host, _mounts(host), layout, volume):
                raise WriteRefused(
                    f"{formatting.titled(volume)} is not mounted at {where}: systemctl answered {ran.code}: "
                    f"{ran.output}"
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


def _is_seen(host: Host, mounts: Mapping[str, tuple[str, str]], layout: Layout, volume: Volume) -> bool:
    """Return whether the file system on exactly these disks is what is seen at its folder."""
    name = formatting.device_of(host, volume)
    if name is None:
        return False
    number = (host.read_text(f"/sys/block/{name}/dev") or "").strip()
    return mounts.get(layout.where(volume.name)) == (number, layout.filesystem)
