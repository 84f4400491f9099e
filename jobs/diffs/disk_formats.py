"""Disks that the changes of a node would format: read from what a plan froze as seen, which its digest covers."""

from __future__ import annotations

from contract import disk_layouts
from jobs.diffs.changes import ChangeKind, Changes


def formatted_serials(changes: Changes) -> tuple[str, ...]:
    """Return the serial numbers of the disks of one node that these changes format."""
    return tuple(
        serial
        for change in changes.items
        if change.kind == ChangeKind.SETTING and change.key == disk_layouts.KEY and change.value is not None
        for serial in disk_layouts.selected(change.value, change.expect)
    )


def is_impossible(key: str, value: str, effective: str | None) -> bool:
    """Return whether a node has nothing to make this layout of: no disk is empty and fits, or it has another layout."""
    if key != disk_layouts.KEY or effective in (None, value) or disk_layouts.is_unmounted(effective):
        return False
    return not disk_layouts.selected(value, effective)
