"""Advice on XIDs: NVIDIA's catalog, as operators treat it. No code by itself means "replace the board"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Advice:
    word: str
    severity: str
    """Of the axis `check`: bad, warn or ok."""
    what: str


APPLICATION = Advice("application", "ok", "Usually the application's own fault: look at the pod first.")
WATCH = Advice("watch", "warn", "The GPU repaired or contained it. Restart the pod, and watch whether it comes back.")
RESET = Advice("reset the GPU", "bad", "Cordon and drain the node, then reset this GPU.")
REBOOT = Advice("restart the node", "bad", "The GPU fell off the bus. Cordon, drain, and power-cycle the node.")
VENDOR = Advice("vendor", "bad", "Cordon and drain the node, run the vendor's diagnostics, and open a case with them.")
STATED = Advice("as stated", "warn", "The driver states the recovery action in the node's kernel log.")
OTHER = Advice("look it up", "warn", "Not in this table: look the code up in NVIDIA's catalog of XIDs.")

ADVICE: Mapping[int, Advice] = MappingProxyType(
    {
        **dict.fromkeys((13, 31, 43, 45), APPLICATION),
        **dict.fromkeys((63, 92, 94), WATCH),
        **dict.fromkeys((46, 62, 64, 95, 119, 120, 140), RESET),
        79: REBOOT,
        **dict.fromkeys((48, 74, *range(144, 151)), VENDOR),
        154: STATED,
    }
)
NAMES: Mapping[int, str] = MappingProxyType(
    {
        13: "graphics engine exception",
        31: "memory page fault",
        43: "reset of a channel",
        45: "pre-emptive cleanup",
        48: "double-bit ECC error",
        63: "row remapped",
        64: "row remap failed",
        74: "NVLink error",
        79: "fell off the bus",
        92: "many single-bit ECC errors",
        94: "contained memory error",
        95: "uncontained memory error",
        119: "GSP timeout",
        120: "GSP error",
        154: "recovery action changed",
    }
)


@dataclass(frozen=True, slots=True)
class ReportedXid:
    code: int
    name: str
    advice: Advice


def reported(xids: Iterable[Iterable[object]]) -> list[ReportedXid]:
    """Return the XIDs of a stored sample, the worst first."""
    codes = {int(str(code)) for code, *_ in xids}
    known = [ReportedXid(code, NAMES.get(code, ""), ADVICE.get(code, OTHER)) for code in codes]
    return sorted(known, key=lambda xid: (("bad", "warn", "ok").index(xid.advice.severity), xid.code))
