"""One API server over HTTPS: raw JSON in and out, bounded in time and size, every failure a FleetError.

The official client authenticates, builds the address and serializes. It sends through PinnedPools, whose policy and TLS
context replace its own, without retries, redirects or proxies. Answers are read and translated here: the client
would read a body of any length, and its typed models drop fields that they do not know.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import urllib3
from kubernetes.client import ApiClient, Configuration

from clusters.fleet import FleetUnavailable, Untrusted
from clusters.kube.responses import ApiResponse, Call, is_for_want_of_a_role, is_starting, message, parsed
from clusters.kube.transport import MAX_EVENT, read_bounded, read_lines, tls, translated
from clusters.net.credentials import Credentials
from clusters.net.egress import PinnedPools, Policy

__all__ = ["APPLY", "JSON", "MAX_ANSWER", "MERGE", "STRATEGIC", "ApiResponse", "ApiServer", "Call"]

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes of one answer. A page of 500 nodes of 100 KB, four times the usual, still fits."""
_GRACE = 10.0
"""Seconds a watch may outlast the time it asked for before the server counts as hung."""


class ApiServer:
    """Thread-safe. `timeout`, in seconds, bounds one call; only a server that drips its headers can outlast it."""

    def __init__(
        self, credentials: Credentials, *, policy: Policy, timeout: float = 10.0, connections: int = 32
    ) -> None:
        self.timeout = timeout
        self._client = _client(credentials, policy, connections)
        self._watches: set[urllib3.BaseHTTPResponse] = set()
        self._watches_lock = threading.Lock()
        self._closed = False

    def get(self, call: Call, path: str, kind: str = "") -> dict[str, Any]:
        """One object. Raises as `ask`, and Untrusted when it is of another kind."""
        return self.ask(call, "GET", path).object(kind)

    def ask(self, call: Call, method: str, path: str, **how: Any) -> ApiResponse:
        """Send one request as `send` does; raise a status of 300 or more as the FleetError it means."""
        answer = self.send(call, method, path, **how)
        if answer.status >= 300:
            raise answer.refusal()
        return answer

    def send(self, call: Call, method: str, path: str, **how: Any) -> ApiResponse:
        """Send one request; return its answer of any status. Raises FleetUnavailable, FleetRefused, Untrusted.

        `how`: query, body, content_type, accept, the limit of the answer in bytes, and another timeout in seconds.
        """
        answer = self._once(call, method, path, **how)
        if answer.status == 403 and is_for_want_of_a_role(answer):
            # Started a moment ago it knows no roles yet, and forbids even /readyz, which everyone may read. Once
            # it is ready it is asked again, for it may have become so meanwhile, and what it refused it has not done.
            ready = self._once(Call("get", "readyz"), "GET", "/readyz")
            if ready.status >= 500 or is_starting(message(ready)):
                raise FleetUnavailable(f"{call}: the API server has just started and has not read its roles yet")
            answer = self._once(call, method, path, **how)
        return answer

    def _once(
        self,
        call: Call,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        limit: int = MAX_ANSWER,
        timeout: float = 0,
    ) -> ApiResponse:
        timeout = timeout or self.timeout
        deadline = time.monotonic() + timeout
        with translated(call, timeout):
            response = self._request(
                method,
                path,
                query=query,
                body=body,
                content_type=content_type,
                accept=accept,
                read_timeout=timeout,
            )
            try:
                data = read_bounded(response, call, limit, deadline)
            except BaseException:
                response.close()  # unread bytes would be taken for the next answer
                raise
            response.release_conn()
        return ApiResponse(call, response.status, response.headers, data)

    def stream(
        self, call: Call, path: str, query: Mapping[str, str], *, timeout: float, accept: str = JSON
    ) -> Iterator[dict[str, Any]]:
        """JSON objects, one a line, until the server ends the answer. Raises as `ask`."""
        with translated(call, timeout):
            response = self._request("GET", path, query=query, accept=accept, read_timeout=timeout + _GRACE)
            try:
                if response.status >= 300:
                    data = read_bounded(response, call, MAX_EVENT, time.monotonic() + self.timeout)
                    raise ApiResponse(call, response.status, response.headers, data).refusal()
                with self._watches_lock:
                    self._watches.add(response)
                for line in read_lines(response, call, time.monotonic() + timeout + _GRACE):
                    if self._closed:
                        return
                    line_object = parsed(line)
                    if line_object is None:
                        raise Untrusted(f"{call}: an event is not a JSON object")
                    yield line_object
            finally:
                with self._watches_lock:
                    self._watches.discard(response)
                response.close()

    def close(self) -> None:
        """Ends watches in other threads and closes pooled connections; a call after it connects again."""
        self._closed = True
        with self._watches_lock:
            watches = list(self._watches)
        for response in watches:
            response.shutdown()
        self._client.rest_client.close()
        self._closed = False

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        read_timeout: float,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        # Not the body: it is plain JSON, and to look for models in it would take a third of a PATCH's time.
        method, url, headers, *_ = self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params=headers,
            auth_settings=["BearerToken"],
        )
        sent = self._client.call_api(method, url, headers, body, _request_timeout=(self.timeout, read_timeout))
        response: urllib3.BaseHTTPResponse = sent.response
        return response


def _client(credentials: Credentials, policy: Policy, connections: int) -> ApiClient:
    """The official client for these credentials, with every connection made under the policy."""
    # Without proxies of its own the client would read the environment's.
    configuration = Configuration(host=credentials.server.rstrip("/"), retries=False, proxy="", no_proxy="")
    if credentials.token:
        configuration.api_key = {"BearerToken": f"Bearer {credentials.token}"}
    client = ApiClient(configuration)
    client.user_agent = "setpoint"
    extra = {"server_hostname": credentials.tls_server_name} if credentials.tls_server_name else {}
    # A context of our own: the client would want the key in a file for as long as it lives.
    client.rest_client.pool_manager = PinnedPools(
        policy, num_pools=1, maxsize=connections, ssl_context=tls(credentials), **extra
    )
    return client
