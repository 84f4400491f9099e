"""Hits of a change on running work, as a plan keeps them: plain data, as JSON in rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing that the change does to running work."""

    what: str
    """DaemonSet kube-system/cilium"""
    change: str
    """created, changed or deleted"""
    worst: str
    why: str
    paths: tuple[str, ...] = ()
    """Which fields decided it, the first few."""
    restarts: tuple[str, ...] = ()
    """DaemonSets whose pods restart."""
    nodes: tuple[str, ...] = ()
    """By name, all of them; only from `network` up."""
    count: int = 0
    """Of nodes, of every class."""
    at_once: int = 0
    """Nodes at once at most; 0: not known, or nothing goes node by node."""
    controller: str = ""
    """The label by which an operator's own upgrade controller says which node it works on."""
    limit: str = ""
    """Where a person says how many nodes are taken at once."""
    reserves: bool = False
    """It goes node by node, and each is out of service meanwhile: places of the budget are kept for it."""
    interrupts: bool = False
    """Jobs that hold GPUs on these nodes end."""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Hit:
        lists = {name: tuple(raw.get(name, ())) for name in ("paths", "restarts", "nodes")}
        return cls(**{**raw, **lists})


@dataclass(frozen=True, slots=True)
class Blast:
    worst: str = "live"
    why: str = ""
    hits: tuple[Hit, ...] = ()
    """The most disruptive first."""
    deleted: tuple[str, ...] = ()
    """Kind and name of each object that goes."""
    places: int = 0
    """Nodes that its operator may take out of service at once: as many places of the cluster's budget (law 1)."""
    nodes_at_once: int = 0
    gpus_at_once: int = 0
    jobs: tuple[str, ...] = ()
    """Interrupted: `namespace/Kind name`."""
    gpu_pods: int = 0
    gpus: int = 0
    """On all nodes that are hit."""
    undo: str = ""
    """The class of putting it back, where that is another."""
    undo_why: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All that are hit, by name."""
        return tuple(sorted({name for hit in self.hits for name in hit.nodes}))

    @property
    def interrupted(self) -> frozenset[str]:
        """Nodes on which jobs that hold GPUs end."""
        return frozenset(name for hit in self.hits if hit.interrupts for name in hit.nodes)

    @property
    def rolling(self) -> tuple[Hit, ...]:
        """Hits that restart on a limited number of nodes at once, by their own limit, and take none out of service."""
        return tuple(hit for hit in self.hits if hit.limit and hit.nodes and not hit.reserves)

    @property
    def controllers(self) -> tuple[Hit, ...]:
        return tuple(hit for hit in self.hits if hit.controller)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Blast:
        hits = tuple(Hit.from_json(hit) for hit in raw.get("hits", ()))
        return cls(**{**raw, "hits": hits, "deleted": tuple(raw["deleted"]), "jobs": tuple(raw["jobs"])})
