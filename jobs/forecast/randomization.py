"""Reproducible randomization: the order `measured`, and the choice of nodes held back as its control."""

from __future__ import annotations

import hashlib
import secrets
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from jobs.forecast.strategy import BOUNDS, MEASURED, Strategy


class Drawable(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...


def with_seed(strategy: Strategy) -> Strategy:
    """Return the strategy with a seed, where its order is random and none was given."""
    if strategy.order != MEASURED or strategy.seed:
        return strategy
    return replace(strategy, seed=1 + secrets.randbelow(BOUNDS["seed"][1]))


def lot(seed: int, name: str) -> str:
    """Return a node's lot: the lower, the earlier. SHA-256 of `<seed>/<name>`, so no choice of names or order tells."""
    return hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()


def control_group(workers: Iterable[Drawable], strategy: Strategy) -> frozenset[str]:
    """Names of those held back: of each kind of node its share, by lot. Empty for every other order."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for worker in workers:
        kinds[worker.kind].append(worker.name)
    control: set[str] = set()
    for names in kinds.values():
        names.sort(key=lambda name: lot(strategy.seed, name), reverse=True)
        control.update(names[: strategy.control_size(len(names))])
    return frozenset(control)
