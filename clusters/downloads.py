"""Files from the network under the egress policy: GET over https, bounded in time and size, every failure a FleetError.

Chart repositories are not API servers, but where a connection may go is judged in one place, and that place is here.
Redirects are answers like any other: whoever asks decides whether the next host is one that it knows.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from clusters.apiserver import Call, read_bounded, translated
from clusters.egress import PinnedPools, Policy
from clusters.fleet import FleetRefused

CALL_SECONDS = 15.0
"""For a connection, and between two bytes."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Door:
    """Where one repository is asked. `ca` as PEM stands in for the machine's trusted roots."""

    def __init__(self, policy: Policy, *, ca: str = "", timeout: float = CALL_SECONDS) -> None:
        self._timeout = timeout
        self._pools = PinnedPools(policy, num_pools=8, ssl_context=_trust(ca))

    def get(self, url: str, *, headers: Mapping[str, str], limit: int, deadline: float) -> Response:
        """`deadline` is time.monotonic()'s. Raises FleetUnavailable, FleetRefused, Untrusted, WrongCertificate."""
        parts = urlsplit(url)
        if parts.scheme != "https":
            raise FleetRefused(f"{url[:200]} is not https: what comes over anything else could be changed on the way")
        call = Call("get", parts.hostname or "?")
        left = max(min(self._timeout, deadline - time.monotonic()), 0.001)
        with translated(call, left):
            asked = {"User-Agent": "setpoint", "Accept-Encoding": "identity", **headers}
            response = self._pools.request("GET", url, headers=asked, timeout=left, preload_content=False)
            try:
                body = read_bounded(response, call, limit, deadline)
            finally:
                response.close()
        return Response(response.status, {name.lower(): value for name, value in response.headers.items()}, body)

    def close(self) -> None:
        self._pools.clear()


def _trust(ca: str) -> ssl.SSLContext:
    """Raises FleetRefused when OpenSSL does not accept the CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca:
            context.load_verify_locations(cadata=ca)
        else:
            context.load_default_certs()
    except (ssl.SSLError, ValueError) as error:
        raise FleetRefused(f"the repository's CA cannot be used: {error}") from error
    return context
