"""The API server's proxy to pods and services: what speaks HTTP inside the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from simfleet.apiserver.callers import Caller
from simfleet.apiserver.paths import ProxyTarget
from simfleet.apiserver.store import ApiError, Raw

if TYPE_CHECKING:
    from simfleet.core import SimCluster

UNREACHED = "error trying to reach service"
"""How the proxy begins what it says in place of a backend that it cannot connect to."""
Answerer = Callable[[Raw, str, str, Mapping[str, str]], "tuple[int, str] | None"]
"""From a pod or service, its port, a path without leading slash and a query, to status and text.

None: nothing listens on this port.
"""


class Proxies:
    """Answerers are asked in turn, outside the cluster's lock; the first that answers does."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.answerers: dict[str, list[Answerer]] = {"pods": [], "services": []}

    def get(self, caller: Caller, way: ProxyTarget, query: Mapping[str, str]) -> tuple[int, bytes]:
        """Return status and body; UNREACHED with 503 if no process listens. Raises ApiError, Outage."""
        parts = way.name.split(":")
        name, port = (parts[-2], parts[-1]) if len(parts) > 1 else (way.name, "")
        backend = self._cluster.api.proxied(caller, way.plural, name, way.namespace).raw
        if way.plural == "pods" and (backend.get("status") or {}).get("phase") != "Running":
            raise ApiError(400, "BadRequest", "address not allowed")
        for answerer in self.answerers[way.plural]:
            if (answer := answerer(backend, port, way.path, query)) is not None:
                return answer[0], answer[1].encode()
        return 503, f"{UNREACHED}: dial tcp: {name}:{port}: connect: connection refused".encode()
