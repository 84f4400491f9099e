"""Effects of a component's changes on running work: typed data, read from `blast:` of its catalog file.

`components.blast.judgment` applies them to a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from components.values.clauses import Clause

CLASSES = ("live", "new-pods", "network", "gpu-pods", "drain", "reboot")
"""In rising order, by the words of jobs.diffs.changes.Disruption; a test holds the two together."""
ALL_NODES, GPU_NODES = "all", "gpu"
"""Of `nodes`, besides a label selector such as `a=b`."""


def rank(worst: str) -> int:
    return CLASSES.index(worst)


def strictest(classes: Iterable[str]) -> str:
    return max(classes, key=rank, default=CLASSES[0])


@dataclass(frozen=True, slots=True)
class ChangeEffect:
    """Effect of a change of an object of this kind, at these paths."""

    kind: str
    worst: str
    why: str
    names: tuple[str, ...] = ()
    """`{release}` is the release's name, `*` anything. Empty: every object of the kind."""
    paths: tuple[str, ...] = ()
    """Dotted; items of a list that have names by these. The longest that fits counts. Empty: any change of it."""
    nodes: str = ""
    """all, gpu, or a label selector; empty: where the changed workload itself runs."""
    restarts: tuple[str, ...] = ()
    """DaemonSets of the release's namespace that the operator restarts, by the beginning of their names."""
    controller: str = ""
    """The upgrade controller that takes node by node."""
    at_once: str = ""
    """Path in the changed object: how many nodes at once, a number or a share."""
    interrupts: bool = False
    """Jobs that hold GPUs end although no pod is stopped: connections break."""
    unless: tuple[Clause, ...] = ()
    """Where one holds of the object before and after, nothing runs that could be hit."""

    def is_about(self, kind: str, name: str, release: str) -> bool:
        named = (pattern.replace("{release}", release) for pattern in self.names)
        return kind == self.kind and (not self.names or any(fnmatchcase(name, pattern) for pattern in named))

    def reach(self, path: str) -> int:
        """Measure how much of the path the longest of `paths` covers; -1: none of them does."""
        if not self.paths:
            return 0
        fitting = (len(covering) for covering in self.paths if path == covering or path.startswith(f"{covering}."))
        return max(fitting, default=-1)


@dataclass(frozen=True, slots=True)
class WholeEffect:
    """Effect of an install, or of a removal, as a whole."""

    worst: str
    why: str
    nodes: str = ""
    """As Effect.nodes; empty: nothing that runs is touched."""


@dataclass(frozen=True, slots=True)
class Controller:
    """An operator's own upgrade controller: it takes nodes out by itself, so many at once."""

    name: str
    label: str
    """On a node it works on."""
    api_version: str
    kind: str
    object: str
    at: str
    """Path of its settings in that object."""
    is_on: bool
    """Where the object does not say autoUpgrade."""
    parallel: int
    """Where it does not say maxParallelUpgrades; 0 means no limit."""
    unavailable: str
    """Where it does not say maxUnavailable: a number or a share."""

    @property
    def limit(self) -> str:
        """The field in which an operator sets how many."""
        return f"{self.kind} {self.object}, {self.at}.maxParallelUpgrades and maxUnavailable"


@dataclass(frozen=True, slots=True)
class ComponentEffects:
    """All effects of one component. A change that has no class counts as `unknown`."""

    unknown: str
    install: WholeEffect
    remove: WholeEffect
    changes: tuple[ChangeEffect, ...] = ()
    controllers: Mapping[str, Controller] = field(default_factory=dict)
    is_untested: bool = False
    """No one but its authors has read what it says: each change as a whole counts as the strictest."""

    def of(self, kind: str, name: str, release: str) -> list[ChangeEffect]:
        return [effect for effect in self.changes if effect.is_about(kind, name, release)]


_UNSAID = "The catalog does not say what it does to running pods, so the strictest is assumed."
UNCLASSIFIED = ComponentEffects(
    "drain", WholeEffect("drain", _UNSAID, ALL_NODES), WholeEffect("drain", _UNSAID, ALL_NODES)
)
"""Of a component whose file says nothing."""
_UNREAD = "No one but its authors has read this site's own entry, so the strictest is assumed."
UNTESTED = ComponentEffects(
    CLASSES[-1],
    WholeEffect(CLASSES[-1], _UNREAD, ALL_NODES),
    WholeEffect(CLASSES[-1], _UNREAD, ALL_NODES),
    is_untested=True,
)
"""Of a site's own entry until an administrator who did not write it classifies it."""
