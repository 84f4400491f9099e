"""Findings of a plan about the layout of local disks: what it formats, and nodes with nothing to make a layout of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contract import disk_layouts
from jobs.diffs.changes import ChangeKind, Changes
from jobs.diffs.disk_formats import formatted_serials
from jobs.forecast.findings import PlanFinding, node_count

FORMATS = "formats-disks"
_JOINED = " The disks of a node become one array of RAID 0: the first of them that fails takes the data of all."


def disk_findings(
    changes: Mapping[str, Changes], value: str, lacking: Sequence[str], observed: Mapping[str, Mapping[str, str]]
) -> list[PlanFinding]:
    """`value`: the layout that the plan brings; empty for none. `lacking`: nodes that cannot take it."""
    out = []
    disks = {name: serials for name, of_node in changes.items() if (serials := formatted_serials(of_node))}
    if disks:
        count = sum(len(serials) for serials in disks.values())
        title = f"{count} disk{'' if count == 1 else 's'} of {node_count(len(disks))} will be formatted"
        out.append(
            PlanFinding(
                "warn",
                FORMATS,
                title,
                "No revert undoes that. Each disk is named below by its serial number; the agent formats exactly "
                "these, each only if it is still empty right before. A revert unmounts them and leaves the data."
                + (_JOINED if _is_raid0(value) else ""),
                list(disks),
            )
        )
    return out + _reverted(changes) + (_unfit(value, lacking, observed) if value else [])


def _is_raid0(value: str) -> bool:
    return bool(value) and disk_layouts.parsed(value).kind == disk_layouts.RAID0


def _reverted(changes: Mapping[str, Changes]) -> list[PlanFinding]:
    names = [
        name
        for name, of_node in changes.items()
        if any(change.kind == ChangeKind.RESTORE and change.key == disk_layouts.KEY for change in of_node.items)
    ]
    if not names:
        return []
    detail = "Their file systems and data stay as they are: nothing is wiped, and the disks do not count as empty."
    return [PlanFinding("note", "unmounts-disks", f"Disks of {node_count(len(names))} are unmounted", detail, names)]


def _unfit(value: str, lacking: Sequence[str], observed: Mapping[str, Mapping[str, str]]) -> list[PlanFinding]:
    others = [name for name in lacking if disk_layouts.KEY not in observed.get(name, {})]
    answers = {name: observed[name][disk_layouts.KEY] for name in lacking if name not in others}
    laid = [name for name, answer in answers.items() if not disk_layouts.is_absent(answer)]
    programs = [name for name, answer in answers.items() if not disk_layouts.filesystems_of(answer)]
    rest = [name for name in answers if name not in laid and name not in programs]
    joinless = [name for name in rest if _is_raid0(value) and not disk_layouts.has_mdadm(answers[name])]
    rest = [name for name in rest if name not in joinless]
    few = [name for name in rest if _is_raid0(value) and disk_layouts.fitting(value, answers[name])]
    rest = [name for name in rest if name not in few]
    return [
        PlanFinding(
            "warn", "disks-unfit", f"No disk of {node_count(len(names))} can be formatted: {why}", detail, names
        )
        for names, why, detail in (
            (others, "no local disk is reported", "They have no NVMe disk, or an agent from before layouts of disks."),
            (laid, "they have another layout", "Revert that first: a layout is never changed under its data."),
            (programs, "mkfs is missing", "Install e2fsprogs (mkfs.ext4) or xfsprogs (mkfs.xfs) on the host."),
            (
                joinless,
                "mdadm is missing",
                "Install mdadm on the host. An agent from before arrays does not report it.",
            ),
            (
                few,
                "an array takes two disks of one size, or more",
                "Choose among disks of several sizes by min and max.",
            ),
            (rest, "none is empty and fits", "Their page says what is on each disk. mkfs of this kind may be missing."),
        )
        if names
    ]
