"""Terms of a queue: its quotas of each kind of GPU, whether its head blocks the rest, and its cohort. Pure.

Kueue: `nominalQuota` of all flavors of a resource together, with `borrowingLimit` where it is in a cohort. Volcano:
`deserved` and `capability`. Which nodes a flavor means is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusters import objects
from contract import quantities

Raw = Mapping[str, Any]
MOST_GPUS = 10_000_000
"""Of one queue: what is more is no quota of GPUs, but a way to write none."""
ROOT = "root"
"""Volcano's queue above all others."""


@dataclass(frozen=True, slots=True)
class Line:
    """GPUs of one kind."""

    nominal: int | None
    ceiling: int | None
    """With what may be borrowed; None: no limit of its own."""
    used: int


@dataclass(frozen=True, slots=True)
class Terms:
    lines: Mapping[str, Line] = field(default_factory=dict)
    """By profile, as gpus.capacity.pending.Gang has it; of Kueue, a kind without a line is not offered."""
    is_strict: bool = False
    """The first that cannot start holds up those behind it."""
    is_stopped: bool = False
    cohort: str = ""
    parent: str = ""
    is_closed: bool = False
    """What it has no line for is not admitted: Kueue's."""

    def stored(self) -> dict[str, Any]:
        return {
            "lines": {name: [line.nominal, line.ceiling, line.used] for name, line in self.lines.items()},
            "strict": self.is_strict,
            "stopped": self.is_stopped,
            "cohort": self.cohort,
            "parent": self.parent,
            "closed": self.is_closed,
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Terms:
        lines = {name: Line(*values) for name, values in stored.get("lines", {}).items()}
        return cls(
            lines,
            bool(stored.get("strict")),
            bool(stored.get("stopped")),
            str(stored.get("cohort", "")),
            str(stored.get("parent", "")),
            bool(stored.get("closed")),
        )

    @property
    def quota(self) -> int | None:
        """GPUs of all kinds that it is promised; what it may hold where nothing is promised. None: no limit.

        A kind of which it only holds some has no part in it. A ClusterQueue without a line for GPUs admits none.
        """
        limits = [line.ceiling if line.nominal is None else line.nominal for line in self.lines.values()]
        known = [limit for limit in limits if limit is not None]
        return sum(known) if known or self.is_closed else None


def of_cluster_queue(raw: Raw) -> Terms:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    cohort = _name(spec.get("cohortName") or spec.get("cohort"))
    nominal: dict[str, int] = {}
    extra: dict[str, int | None] = {}
    for flavor in _each(spec.get("resourceGroups"), "flavors"):
        for resource in flavor.get("resources") or ():
            if (kind := _kind(resource.get("name"))) is None:
                continue
            nominal[kind] = _bounded(nominal.get(kind, 0) + quantities.count(resource.get("nominalQuota", "0")))
            limit = resource.get("borrowingLimit")
            before = extra.get(kind, 0)
            extra[kind] = None if limit is None or before is None else _bounded(before + quantities.count(limit))
    used: dict[str, int] = {}
    for flavor in status.get("flavorsReservation") or ():
        for resource in flavor.get("resources") or ():
            if (kind := _kind(resource.get("name"))) is not None:
                used[kind] = _bounded(used.get(kind, 0) + quantities.count(resource.get("total", "0")))
    lines = {}
    for kind, quota in nominal.items():
        borrowed = extra[kind] if cohort else 0
        lines[kind] = Line(quota, None if borrowed is None else _bounded(quota + borrowed), used.get(kind, 0))
    active = next((row for row in status.get("conditions") or () if row.get("type") == "Active"), None)
    is_stopped = spec.get("stopPolicy", "None") not in ("None", "", None) or bool(
        active and active.get("status") != "True"
    )
    return Terms(lines, spec.get("queueingStrategy") == "StrictFIFO", is_stopped, cohort, is_closed=True)


def of_volcano_queue(raw: Raw) -> Terms:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    deserved, capability, used = (
        _amounts(part) for part in (spec.get("deserved"), spec.get("capability"), status.get("allocated"))
    )
    lines = {
        kind: Line(deserved.get(kind), capability.get(kind), used.get(kind, 0))
        for kind in sorted({*deserved, *capability, *used})
    }
    state = str(status.get("state") or "Open")
    return Terms(lines, spec.get("dequeueStrategy") == "fifo", state != "Open", "", _name(spec.get("parent")))


def _amounts(resources: Any) -> dict[str, int]:
    """Return GPUs by kind; quotas may write each name a second time, with `requests.` before it."""
    amounts: dict[str, int] = {}
    named = resources if isinstance(resources, Mapping) else {}
    for name in sorted(named):
        plain = name.removeprefix("requests.")
        if objects.is_gpu(plain) and (name == plain or plain not in named):
            kind = objects.profile(plain)[:63]
            amounts[kind] = _bounded(amounts.get(kind, 0) + quantities.count(named[name]))
    return amounts


def _each(groups: Any, key: str) -> Iterable[Raw]:
    for group in groups or ():
        yield from group.get(key) or ()


def _kind(resource: object) -> str | None:
    return objects.profile(str(resource))[:63] if objects.is_gpu(str(resource)) else None


def _bounded(amount: int) -> int:
    return min(amount, MOST_GPUS)


def _name(value: object) -> str:
    return value[:253] if isinstance(value, str) else ""
