"""Pods and services asked through the API server's proxy: exporters that nothing outside reaches, Prometheus inside.

Two servers can answer here. What the API server says of the way to a backend is a Kubernetes Status; everything else
comes is the backend's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from clusters.fleet import Backend, FleetRefused, FleetUnavailable, Reply
from clusters.kube.apiserver import ApiServer, Call

UNREACHED = b"error trying to reach service"
"""How the proxy begins, with a plain 503, when it cannot connect (Kubernetes 1.35: apimachinery, util/proxy)."""
_PORT = re.compile(r"[1-9][0-9]{0,4}|[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")


def ask(
    server: ApiServer,
    to: Backend,
    path: str,
    query: Mapping[str, str] | None,
    *,
    limit: int,
    timeout: float = 0,
) -> Reply:
    """One GET. Namespace and name are checked already. Raises as the port's `through`."""
    if not _PORT.fullmatch(to.port):
        raise FleetRefused(f"{to.port[:80]!r} is not a port")
    # RBAC's resourceNames, if any, must name the backend in this very form.
    name = f"{to.scheme}:{to.name}:{to.port}" if to.scheme else f"{to.name}:{to.port}"
    at = f"/api/v1/namespaces/{to.namespace}/{to.kind}/{name}/proxy/{quote(path.lstrip('/'))}"
    call = Call("get", f"{to.kind}/proxy", str(to))
    answer = server.send(call, "GET", at, query=query, accept="*/*", limit=limit, timeout=timeout)
    if answer.status >= 300 and (status := answer.status_object()):
        if answer.status == 400:
            # The pod has no address yet, or one that is never dialled: the same request may succeed later.
            raise FleetUnavailable(f"{call}: {_words(str(status.get('message') or 400).encode())}")
        raise answer.refusal()
    if answer.status == 503 and answer.body[: len(UNREACHED)].lower() == UNREACHED:
        raise FleetUnavailable(f"{call}: {_words(answer.body)}")
    return Reply(answer.status, answer.body)


def _words(message: bytes) -> str:
    """A server's words, fit for a page: printable, one line, bounded."""
    return "".join(c if c.isprintable() else " " for c in message[:300].decode(errors="replace")).strip()
