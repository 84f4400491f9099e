"""Changes on one node, as plain data: computed when planning, frozen by its hash, carried out by a step.

Identical differences are one ChangeSet for any number of nodes; its id is the SHA-256 of its canonical JSON.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from contract import keys
from contract.keys import ApplyClass, KeyKind


class Disruption(enum.StrEnum):
    """Effect of a change on running work, in rising order: ApplyClass, and what components, labels and taints do.

    `network`: the node's network agents restart. `gpu-pods`: pods that hold GPUs are stopped. `drain`: all pods leave.
    """

    LIVE = "live"
    NEW_PODS = "new-pods"
    KUBELET_RESTART = "kubelet-restart"
    NETWORK = "network"
    CONTAINERD_RESTART = "containerd-restart"
    GPU_PODS = "gpu-pods"
    DRAIN = "drain"
    REBOOT = "reboot"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    @property
    def is_live(self) -> bool:
        return self is Disruption.LIVE

    @property
    def takes_slot(self) -> bool:
        """Law 1: live and new-pods steps take no slot."""
        return self.rank >= Disruption.KUBELET_RESTART.rank

    @property
    def drains(self) -> bool:
        return self.rank >= Disruption.CONTAINERD_RESTART.rank

    @property
    def restart(self) -> str:
        """The restart grant that the class needs: kubelet, containerd (and the kubelet with it), reboot, or none."""
        return {
            Disruption.KUBELET_RESTART: "kubelet",
            Disruption.CONTAINERD_RESTART: "containerd",
            Disruption.REBOOT: "reboot",
        }.get(self, "")


_RANKS = {disruption: rank for rank, disruption in enumerate(Disruption)}
"""Read for every change of every node of a plan."""


def most_disruptive(classes: Iterable[str]) -> Disruption:
    """The most disruptive of them; live when there are none."""
    return max((Disruption(c) for c in classes), key=lambda c: c.rank, default=Disruption.LIVE)


class ChangeKind(enum.StrEnum):
    SETTING = "setting"
    RESTORE = "restore"
    """A key that an earlier revision wanted and this one does not: back to its original."""
    LABEL = "label"
    ANNOTATION = "annotation"
    TAINT = "taint"
    """`key` is `<taint key>:<effect>`, `value` the taint's value; None removes it."""
    MODE = "mode"
    """What the agent does about drift from now on: reports or repairs it; on a node where nothing else changes."""


@dataclass(frozen=True, slots=True)
class Change:
    kind: str
    key: str
    operator: str
    value: str | None
    expect: str | None
    """What was there when planned; None when absent."""
    apply_class: str = ApplyClass.LIVE

    @property
    def restart(self) -> str:
        """The restart grant that it needs, or none: its class says, but for resource managers of the kubelet."""
        is_setting = self.kind in (ChangeKind.SETTING, ChangeKind.RESTORE)
        if is_setting and keys.kind_of(self.key) is KeyKind.KUBELET_MANAGER:
            return Disruption.KUBELET_RESTART.restart
        return Disruption(self.apply_class).restart

    @property
    def is_watch(self) -> bool:
        """No value changes: the node's agent is told what to do about drift."""
        return self.kind == ChangeKind.MODE

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            "key": self.key,
            "operator": self.operator,
            "value": self.value,
            "expect": self.expect,
            "apply_class": str(self.apply_class),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Change:
        return cls(**raw)


@dataclass(frozen=True)  # without slots: what is computed of it is kept with it
class Changes:
    """The changes of one node, sorted, and the keys of the revision that this node cannot take.

    Nodes with the same difference share one, so that what is computed of it is computed once for all of them.
    """

    items: tuple[Change, ...]
    unsupported: tuple[str, ...] = ()

    @classmethod
    def of(cls, items: Iterable[Change], unsupported: Iterable[str] = ()) -> Changes:
        ordered = sorted(items, key=lambda c: (-Disruption(c.apply_class).rank, c.kind, c.key))
        return cls(tuple(ordered), tuple(sorted(unsupported)))

    @cached_property
    def worst_class(self) -> Disruption:
        return most_disruptive(c.apply_class for c in self.items)

    @property
    def restart(self) -> str:
        """The restart grant that all of them together need: a greater one does what a lesser one would."""
        needed = {change.restart for change in self.items}
        return next((action for action in ("reboot", "containerd", "kubelet") if action in needed), "")

    @cached_property
    def taints(self) -> tuple[Change, ...]:
        return tuple(c for c in self.items if c.kind == ChangeKind.TAINT)

    @cached_property
    def digest(self) -> str:
        return digest(self.to_json())

    def settings(self) -> list[Change]:
        return [c for c in self.items if c.kind in (ChangeKind.SETTING, ChangeKind.RESTORE)]

    def to_json(self) -> dict[str, Any]:
        return {"items": [c.to_json() for c in self.items], "unsupported": list(self.unsupported)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Changes:
        return cls(tuple(Change.from_json(c) for c in raw["items"]), tuple(raw["unsupported"]))


def canonical_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest(value: Any) -> str:
    """SHA-256, hex, of canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
