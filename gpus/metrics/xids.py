"""Advice on XIDs by NVIDIA's catalog (xid_catalog.yaml). No code by itself means "replace the board"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from common import yaml
from common.clock import now
from gpus.metrics.samples import XidEvidence

LASTS = timedelta(minutes=5)
"""After a counter of an XID rose, as long as the exporter's own window of counts."""


@dataclass(frozen=True, slots=True)
class Advice:
    word: str
    severity: str
    """Of the axis `check`: bad, warn or ok."""
    what: str


APPLICATION = Advice("application", "ok", "Usually the application's own fault: look at the pod first.")
WATCH = Advice("watch", "warn", "The GPU repaired or contained it. Restart the pod, and watch whether it comes back.")
NOTED = Advice("watch", "warn", "It asks for no action by itself: look for other XIDs beside it, and watch it.")
RESET = Advice("reset the GPU", "bad", "Cordon and drain the node, then reset this GPU.")
RESET_LINK = Advice(
    "reset the GPU", "bad", "Cordon and drain the node, then reset this GPU. The link's other end may be the cause."
)
REBOOT = Advice("restart the node", "bad", "The GPU fell off the bus. Cordon, drain, and power-cycle the node.")
RESTART = Advice("restart the VM", "bad", "Drain the node, and restart the virtual machine that owns the GPU.")
MECHANICS = Advice("check the board", "bad", "Drain the node; check the board's seat and its power connectors.")
VENDOR = Advice("vendor", "bad", "Cordon and drain the node, run the vendor's diagnostics, and open a case with them.")
UPDATE = Advice("update", "warn", "Update driver and firmware: guest and host do not go together.")
STATED = Advice("as stated", "warn", "The driver states the recovery action in the node's kernel log, or with XID 154.")
OTHER = Advice("look it up", "warn", "Look the code up in NVIDIA's catalog of XIDs.")

BUCKETS: Mapping[str, Advice] = MappingProxyType(
    {
        "RESTART_APP": APPLICATION,
        "IGNORE": APPLICATION,
        "WORKFLOW_XID_45": APPLICATION,
        "RESET_GPU": RESET,
        "WORKFLOW_XID_48": RESET,
        "WORKFLOW_NVLINK_ERR": RESET_LINK,
        "WORKFLOW_NVLINK5_ERR": STATED,
        "RESTART_BM": REBOOT,
        "RESTART_VM": RESTART,
        "CHECK_MECHANICALS": MECHANICS,
        "UPDATE_SWFW": UPDATE,
        "CHECK_UVM": STATED,
        "XID_154": STATED,
        "CONTACT_SUPPORT": VENDOR,
        "": OTHER,
    }
)
"""Of the catalog's immediate actions."""
CATALOG: Mapping[str, Any] = yaml.load(Path(__file__).with_name("xid_catalog.yaml").read_bytes()).data
NAMES: Mapping[int, str] = MappingProxyType(
    {int(code): name for codes in CATALOG["buckets"].values() for code, name in codes.items()}
)


def _advice(code: int, bucket: str) -> Advice:
    if code in CATALOG["repaired"]:
        return WATCH
    return NOTED if code in CATALOG["noted"] else BUCKETS[CATALOG["decoded"].get(str(code), bucket)]


ADVICE: Mapping[int, Advice] = MappingProxyType(
    {int(code): _advice(int(code), bucket) for bucket, codes in CATALOG["buckets"].items() for code in codes}
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


def current(entries: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return those that tell of now: a counter only for a while after it rose, and then no gauge of the same code.

    The gauge keeps the last XID until the driver is loaded again, and the counter until the exporter starts again.
    """
    entries = list(entries)
    counted = {entry[0]: entry for entry in entries if entry[2] == XidEvidence.TOTAL}
    old = {
        code
        for code, (_, _, _, *rose_at) in counted.items()
        if rose_at and now() - datetime.fromisoformat(rose_at[0]) > LASTS
    }
    return [entry for entry in entries if entry[0] not in old or entry[2] == XidEvidence.WINDOW]


def is_fatal(entries: Iterable[Sequence[Any]]) -> bool:
    """Return whether a stored sample tells now of an XID that is no matter of the application."""
    return any(xid.advice.severity == "bad" for xid in reported(current(entries)))
