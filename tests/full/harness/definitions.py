"""Definitions of custom kinds in the real control plane, and how they go without minutes of waiting."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress

from tests.controlplane.plane import Plane
from tests.full.harness.client import eventually


def present(plane: Plane) -> frozenset[str]:
    return frozenset(plane.kubectl("get", "crd", "-o", "jsonpath={.items[*].metadata.name}").split())


def hurry(plane: Plane) -> None:
    """Let the API server look again at each definition that is being deleted.

    An API server that could not list a definition's objects tries again after up to minutes, which is what a plain
    `kubectl delete` waits for; a change makes it look at once.
    """
    columns = "-o=custom-columns=N:.metadata.name,D:.metadata.deletionTimestamp"
    rows = [line.split() for line in plane.kubectl("get", "crd", columns, "--no-headers").splitlines()]
    if going := [name for name, deleted in rows if deleted != "<none>"]:
        with suppress(RuntimeError):  # one that went meanwhile
            plane.kubectl("annotate", "crd", *going, f"nudge={time.monotonic_ns()}", "--overwrite")


def delete(plane: Plane, names: Collection[str]) -> None:
    """Delete definitions, present or not, and wait until they are gone."""

    def left() -> list[str]:
        hurry(plane)
        return sorted(present(plane) & {*names})

    if there := left():
        plane.kubectl("delete", "crd", "--wait=false", "--ignore-not-found", *there)
        eventually(lambda: not left(), left, pause=1.0)
