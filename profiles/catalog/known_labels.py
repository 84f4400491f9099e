"""Labels that other programs act upon, from labels.yaml: what writing one does, and how its end is seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import yaml

FILE = "labels.yaml"
ORDER = ("live", "new-pods", "kubelet-restart", "network", "containerd-restart", "gpu-pods", "drain", "reboot")
"""Of classes, as jobs.diffs.changes.Disruption has them; a test keeps the two equal."""
_FIELDS = frozenset(
    [
        "class",
        "program",
        "effect",
        "state",
        "busy",
        "done",
        "failed",
        "offers",
        "settle_seconds",
        "may_reboot",
        "sources",
    ]
)


@dataclass(frozen=True, slots=True)
class KnownLabel:
    key: str
    disruption: str
    """Of writing, changing and removing it; a value of jobs.diffs.changes.Disruption."""
    program: str
    """The program that acts upon it."""
    effect: str
    state: str = ""
    """The label in which its program answers; empty: it has none."""
    busy: frozenset[str] = frozenset()
    done: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    offers: str = ""
    """A prefix: a node with GPUs must offer some resource of it before the change counts."""
    settle_seconds: int = 0
    may_reboot: bool = False
    sources: tuple[str, ...] = ()
    """Keys of sources.yaml beside this module."""


class BadLabels(ValueError):
    """An entry is wrong: a mistake of this project's, found when the module is imported."""


def read(raw: Mapping[str, Any]) -> dict[str, KnownLabel]:
    """Raises BadLabels."""
    out = {}
    for key, entry in raw.items():
        if unknown := sorted(entry.keys() - _FIELDS):
            raise BadLabels(f"{key}: unknown fields {unknown}")
        values = {name: frozenset(map(str, entry.get(name, ()))) for name in ("busy", "done", "failed")}
        if bool(entry.get("state")) != bool(values["done"] and values["failed"]):
            raise BadLabels(f"{key}: a state needs values for done and failed, and they need a state")
        if not (entry.get("class") in ORDER and entry.get("program") and entry.get("effect")):
            raise BadLabels(f"{key}: class, program and effect are needed")
        out[key] = KnownLabel(
            key,
            entry["class"],
            entry["program"],
            entry["effect"],
            state=entry.get("state", ""),
            offers=entry.get("offers", ""),
            settle_seconds=entry.get("settle_seconds", 0),
            may_reboot=entry.get("may_reboot", False),
            sources=tuple(entry.get("sources", ())),
            **values,
        )
    return out


KNOWN = read(yaml.load((Path(__file__).parent / FILE).read_bytes()).data["labels"])


def get(key: str) -> KnownLabel | None:
    return KNOWN.get(key)


def owner_of_state(key: str) -> KnownLabel | None:
    """The label whose program answers in this one; None where it is no such answer."""
    return next((known for known in KNOWN.values() if known.state == key), None)
