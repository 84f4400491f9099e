"""Other servers than API servers, under the egress policy: bounded in time and size, every failure a FleetError.

Chart repositories, Prometheus and receivers of notices are no API servers, but where a connection may go is judged in
one place, and that place is here.
Redirects are answers like any other: the caller decides whether the next host is one that it knows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from clusters.fleet import FleetRefused
from clusters.kube.responses import Call
from clusters.kube.transport import read_bounded, tls, translated
from clusters.net.credentials import Credentials
from clusters.net.egress import PinnedPools, Policy

CALL_SECONDS = 15.0
"""For a connection, and between two bytes."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class HttpClient:
    """Connection pool to one server. `ca` as PEM replaces the machine's trusted roots.

    `allows_http`: for addresses that an administrator gave, and where no secret is sent. `connections`: kept open
    for calls at the same time.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        ca: str = "",
        certificate: str = "",
        key: str = "",
        connections: int = 1,
        allows_http: bool = False,
        timeout: float = CALL_SECONDS,
    ) -> None:
        self._timeout, self._schemes = timeout, ("https", "http") if allows_http else ("https",)
        trust = Credentials(server="", ca=ca, client_certificate=certificate, client_key=key)
        self._pools = PinnedPools(policy, num_pools=8, maxsize=connections, ssl_context=tls(trust))

    def get(self, url: str, *, headers: Mapping[str, str], limit: int, deadline: float) -> Response:
        """`deadline` is time.monotonic()'s. Raises FleetUnavailable, FleetRefused, Untrusted, WrongCertificate."""
        return self._ask("GET", url, headers=headers, limit=limit, deadline=deadline)

    def post(self, url: str, body: bytes, *, headers: Mapping[str, str], limit: int, deadline: float) -> Response:
        """Sent once: whether to send it again is the caller's to decide. Raises as `get`."""
        return self._ask("POST", url, headers=headers, limit=limit, deadline=deadline, body=body)

    def _ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        limit: int,
        deadline: float,
        body: bytes | None = None,
    ) -> Response:
        parts = urlsplit(url)
        if parts.scheme not in self._schemes:
            raise FleetRefused(f"{url[:200]} is not https: what comes over anything else could be changed on the way")
        call = Call(method.lower(), parts.hostname or "?")
        left = max(min(self._timeout, deadline - time.monotonic()), 0.001)
        with translated(call, left):
            sent = {"User-Agent": "setpoint", "Accept-Encoding": "identity", **headers}
            response = self._pools.request(method, url, body=body, headers=sent, timeout=left, preload_content=False)
            try:
                answer = read_bounded(response, call, limit, deadline)
            finally:
                response.close()
        return Response(response.status, {name.lower(): value for name, value in response.headers.items()}, answer)

    def close(self) -> None:
        self._pools.clear()
