"""Programs: behavior of running container images, a table of rules by image name, the last one added first.

    sim.programs.add(Program("*/agent:2.*", crashes=True))              # a release that never comes up
    sim.programs.add(Program("*/device-plugin:*", offers={"nvidia.com/gpu": "8"}))

An image that no rule knows starts, is ready after a second, and stays; if its pod may not run forever (a Job's), it
succeeds after a second. These rules do not apply to the pods of `pods.Pods.workload`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any


@dataclass(frozen=True, slots=True)
class Serves:
    """An operator's kind of custom resource: what it makes of one, and what it then says of it."""

    api_version: str
    kind: str
    path: str
    """Of the field in status, such as `state`."""
    ready: Any
    waiting: Any = None
    """The field's value until everything is there; None: the field is absent."""
    operands: tuple[Mapping[str, Any], ...] = ()
    """Objects it makes for one, in the operator's namespace. `{a.b}` in a text is the resource's spec.a.b."""


@dataclass(frozen=True, slots=True)
class Program:
    image: str
    """A pattern of image names as in a shell: `*/volcano-scheduler:*`."""
    is_missing: bool = False
    """The registry does not have it."""
    crashes: bool = False
    """It ends as soon as it has started, again and again."""
    exit_code: int = 0
    """Of what runs once, as in a Job."""
    pull_seconds: float = 0.0
    """How long a node that lacks it pulls it: half as long to twice as long, each node its own."""
    ready_seconds: float = 1.0
    run_seconds: float = 1.0
    """How long what runs once takes."""
    prints: Callable[[Mapping[str, Any]], str] | None = None
    """Of what runs once, from its pod: its output, which is there when it has ended."""
    clears_taint: str = ""
    """Key of the taint that it takes from its node when it is ready there."""
    offers: Mapping[str, str] = field(default_factory=dict)
    """Allocatable resources of its node while it is ready there; `gpus` is the number that the machine has."""
    serves: tuple[Serves, ...] = ()
    """Custom resources that it looks after while it is ready."""
    makes: tuple[Mapping[str, Any], ...] = ()
    """Objects that it makes once when it is first ready, as a scheduler makes its default queue."""


PLAIN = Program("*")
FAULTS = (
    Program("*/no-such-image*", is_missing=True),
    Program("*:no-such-tag", is_missing=True),
    Program("*/always-crashes*", crashes=True),
    Program("*/always-fails*", exit_code=1),
)


class Programs:
    def __init__(self, rules: Sequence[Program] = FAULTS) -> None:
        self._rules = list(rules)
        self._known: dict[str, Program] = {}

    def add(self, *programs: Program) -> None:
        self._rules[:0] = programs
        self._known.clear()

    def remove(self, program: Program) -> None:
        """The fault is mended; what failed because of it finds out at its next try."""
        self._rules.remove(program)
        self._known.clear()

    def of(self, image: str) -> Program:
        program = self._known.get(image)
        if program is None:
            program = self._known[image] = next((r for r in self._rules if fnmatchcase(image, r.image)), PLAIN)
        return program
