"""Finding of a plan that brings new kernel arguments: nodes that need their console if they do not come up."""

from __future__ import annotations

from collections.abc import Mapping

from contract import keys
from contract.key_lists import BOOT_FALLBACK
from jobs.diffs.changes import Changes
from jobs.forecast.findings import PlanFinding


def boot_findings(changes: Mapping[str, Changes], observed: Mapping[str, Mapping[str, str]]) -> list[PlanFinding]:
    """Find nodes that get new kernel arguments and cannot boot without them if they do not come up."""
    names = [
        name
        for name, of_node in changes.items()
        if observed.get(name, {}).get(BOOT_FALLBACK) == "none"
        and any(keys.kind_of(change.key) in keys.KERNEL_ARGUMENTS for change in of_node.settings())
    ]
    if not names:
        return []
    return [
        PlanFinding(
            "warn",
            "no-boot-fallback",
            f"{len(names)} node{'' if len(names) == 1 else 's'} cannot fall back to the old kernel arguments",
            "GRUB cannot note there that a boot was tried (LVM, RAID, btrfs), or it is not GRUB that Debian's tools "
            "configure. A node that does not come up needs its console.",
            names,
        )
    ]
