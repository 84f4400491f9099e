"""What may be written to a node, judged for every write alike, whichever way it comes: a profile's wish, a value that
goes back, a repair, a file that outlives a boot.

The control plane asks when a profile is published, the agent once more on the node, with what that node has.
"""

from __future__ import annotations

from dataclasses import dataclass

from contract import keys
from contract.keys import BadKey, BadValue, Kind

PAGE_KIB = {"2Mi": 2048, "1Gi": 1048576}
LARGEST_SHARE = 0.9
"""Of a node's memory, for huge pages: the kernel would take more, and the node would die of it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a node has; 0 where nobody knows."""

    memory_kib: int = 0


UNKNOWN = Facts()


def refusal(key: str, value: str, facts: Facts = UNKNOWN) -> str | None:
    """Why this value of this key may not be written to such a node, as half a sentence; None if it may.

    `mixed:128,4096` is judged part by part.
    """
    try:
        if keys.normalise(key) != key:
            return f"must be written as {keys.normalise(key)}"
        if isinstance(value, str) and value.startswith(keys.MIXED):
            parts = value.removeprefix(keys.MIXED).split(",")
            return next((why for part in parts if (why := refusal(key, part, facts))), None)
        keys.check_value(key, value)
    except (BadKey, BadValue) as error:
        return str(error)
    return keys.denied_reason(key, value) or _beyond(key, value, facts)


def _beyond(key: str, value: str, facts: Facts) -> str | None:
    """Why a node with so much memory cannot have it; None where it can, or where nobody knows."""
    if keys.kind_of(key) is Kind.HUGEPAGES:
        size = PAGE_KIB[key.removeprefix("hugepages-").partition(".")[0]]
    elif key == "cmdline.hugepages":
        size = min(PAGE_KIB.values())  # which size it counts, another argument says: at least this one
        if not value.isdecimal():
            return None  # `0:512,1:512`: by NUMA node
    else:
        return None
    wanted = int(value) * size
    if facts.memory_kib and wanted > facts.memory_kib * LARGEST_SHARE:
        return f"{value} pages are {wanted // 1024} MiB of the node's {facts.memory_kib // 1024} MiB of memory"
    return None
