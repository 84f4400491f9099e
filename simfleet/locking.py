"""Methods that tests and the demo call on parts of a cluster, while its own thread may be ticking."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def locked(method: F) -> F:
    """Hold the cluster's lock, which is re-entrant, during the call. The object has its cluster as `_cluster`."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._cluster.lock:
            return method(self, *args, **kwargs)

    return cast("F", call)
