"""One local NVMe disk as the agent reports it: one line of text for the value of `disk.<name>`.

A disk is empty only if everything that was looked at says so; what is not known counts against it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

NAMES = tuple(f"nvme{number}n1" for number in range(32))
"""Disks that are reported: the first namespace of each of the first controllers."""
PREFIX = "disk."
KEYS = tuple(f"{PREFIX}{name}" for name in NAMES)

EMPTY = "empty"
MAX_STATE = 160
MAX_WORD = 64
_TEXT = re.compile(
    r"state=(?P<state>[^;]*); serial=(?P<serial>[^;]*); bytes=(?P<size>[0-9]{1,19}); "
    r"rotating=(?P<rotating>yes|no); partitions=(?P<partitions>[0-9]{1,4}); model=(?P<model>[^;]*)"
)
_SERIAL = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_UNPRINTABLE = re.compile(r"[^ -~]|;")


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk, and why it is not empty."""

    name: str
    serial: str
    model: str
    size: int
    """Bytes."""
    is_rotating: bool
    partitions: int
    state: str
    """`empty`, or half a sentence that says why it does not count as empty."""

    @property
    def is_empty(self) -> bool:
        return self.state == EMPTY

    def to_text(self) -> str:
        return (
            f"state={cleaned(self.state, MAX_STATE)}; serial={cleaned(self.serial)}; bytes={self.size}; "
            f"rotating={'yes' if self.is_rotating else 'no'}; partitions={self.partitions}; model={cleaned(self.model)}"
        )

    @classmethod
    def from_text(cls, name: str, text: str) -> Disk | None:
        """Read what an agent reported; None for anything that `to_text` does not write."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return None
        return cls(
            name=name,
            serial=match["serial"],
            model=match["model"],
            size=int(match["size"]),
            is_rotating=match["rotating"] == "yes",
            partitions=int(match["partitions"]),
            state=match["state"],
        )


def of_node(observed: Mapping[str, str]) -> list[Disk]:
    """Return the disks among what an agent reported, in the order of their names; what cannot be read is left out."""
    texts = ((key.partition(".")[2], observed[key]) for key in KEYS if key in observed)
    return [disk for name, text in texts if (disk := Disk.from_text(name, text))]


def cleaned(text: str, limit: int = MAX_WORD) -> str:
    """Return text of a device or a file as one line, without what separates fields."""
    return " ".join(_UNPRINTABLE.sub("?", text).split())[:limit]


def is_serial(text: str) -> bool:
    """Return whether a plan can name a disk by this serial number."""
    return _SERIAL.fullmatch(text) is not None
