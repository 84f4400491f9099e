"""Definitions of custom kinds in the real control plane, and how they go without minutes of waiting."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress

from tests.controlplane.plane import Plane
from tests.full.harness.client import eventually


def present(plane: Plane) -> frozenset[str]:
    return frozenset(plane.kubectl("get", "crd", "-o", "jsonpath={.items[*].metadata.name}").split())


def delete(plane: Plane, names: Collection[str]) -> None:
    """Delete definitions, present or not, and wait until they are gone.

    An API server that could not list a definition's objects tries again after up to minutes, which is what a plain
    `kubectl delete` waits for; a change makes it look at once.
    """

    def left() -> list[str]:
        return sorted(present(plane) & {*names})

    def gone() -> bool:
        if there := left():
            with suppress(RuntimeError):  # one that went meanwhile
                plane.kubectl("annotate", "crd", *there, f"nudge={time.monotonic_ns()}", "--overwrite")
        return not there

    if there := left():
        plane.kubectl("delete", "crd", "--wait=false", "--ignore-not-found", *there)
        eventually(gone, left, pause=1.0)
