"""Sessions of the requests library under the egress policy, for libraries that speak HTTP through it (single sign-on).

No redirects, no proxies of the environment, no retries; an answer is bounded in time and size.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from functools import cache
from typing import Any

import requests
from django.conf import settings
from requests.adapters import HTTPAdapter

from clusters.net.egress import EgressRefused, PinnedPools, Policy

CALL_SECONDS = 5.0
"""For a connection, and between two bytes; three times this for a whole answer."""
LONGEST_ANSWER = 1024 * 1024
"""Bytes. A token that names a thousand groups has some 50 KiB."""


@cache
def _trust() -> ssl.SSLContext:
    """The machine's own roots, as for all other connections of ours; requests adds those that it brings."""
    return ssl.create_default_context()


class Pinned(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        policy = Policy.of(settings.SETPOINT_ALLOW_NETWORKS)
        self.poolmanager = PinnedPools(policy, num_pools=4, ssl_context=_trust())

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        try:
            return super().send(request, *args, **kwargs)
        except EgressRefused as error:
            raise requests.ConnectionError(str(error)) from error


class WebSession(requests.Session):
    """Raises requests.RequestException, also for an answer that is too long or too slow."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        pinned = Pinned()
        self.mount("https://", pinned)
        self.mount("http://", pinned)

    def request(self, method: str, url: str, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        deadline = time.monotonic() + 3 * CALL_SECONDS
        bounds = {"timeout": CALL_SECONDS, "allow_redirects": False, "stream": True}
        response = super().request(method, url, **{**kwargs, **bounds})
        with response:
            content = bytearray()
            for piece in response.iter_content(64 * 1024):
                content += piece
                if len(content) > LONGEST_ANSWER:
                    raise requests.ConnectionError(f"an answer longer than {LONGEST_ANSWER:,} bytes")
                if time.monotonic() > deadline:
                    raise requests.Timeout(f"no whole answer within {3 * CALL_SECONDS:g} s")
        response._content = bytes(content)
        return response


def sessions() -> Iterable[requests.Session]:
    """Answer `hooks.web_session`."""
    return [WebSession()]
