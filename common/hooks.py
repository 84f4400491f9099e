"""Typed registries: the one way for something to flow upwards. Rooms above fill them in `AppConfig.ready()`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, ParamSpec
from uuid import UUID

P = ParamSpec("P")
log = logging.getLogger(__name__)


class Hook(Generic[P]):
    """A list of subscribers. One that raises is logged and does not stop the others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._subscribers: list[Callable[P, object]] = []

    def subscribe(self, function: Callable[P, object]) -> None:
        if function not in self._subscribers:
            self._subscribers.append(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for function in self._subscribers:
            try:
                function(*args, **kwargs)
            except Exception:
                log.exception("subscriber of %s failed: %s", self.name, function)



nodes_changed = Hook[[UUID, Sequence[int]]]("nodes_changed")
"""Rows of these nodes (or of their NodeTunings) were just written and committed; at most a few hundred per call."""

nodes_gone = Hook[[UUID, Sequence[int]]]("nodes_gone")
"""These nodes were deleted or replaced under their name."""

cluster_disconnecting = Hook[[UUID]]("cluster_disconnecting")
"""A cluster is about to be removed; subscribers may raise nothing, they clean up or note it."""
