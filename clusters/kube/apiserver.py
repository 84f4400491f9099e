"""One API server over HTTPS: raw JSON in and out, bounded in time and size, every failure a FleetError.

The official client authenticates, builds the address and serializes. It sends through PinnedPools, whose policy and TLS
context stand in for its own, without retries, redirects or proxies. Answers are read and translated here: the client
would read a body of any length, and its typed models drop fields that they do not know.
"""

from __future__ import annotations

import json
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from urllib3 import exceptions

from clusters.fleet import (
    Conflict,
    CredentialsRefused,
    FleetError,
    FleetRefused,
    FleetUnavailable,
    Forbidden,
    Gone,
    NotFound,
    Throttled,
    Untrusted,
    WrongCertificate,
)
from clusters.net.credentials import Credentials
from clusters.net.egress import EgressRefused, PinnedPools, Policy

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes of one answer. A page of 500 nodes of 100 KB, four times the usual, still fits."""
MAX_EVENT = 8 * 1024 * 1024
"""Bytes of one watch event; etcd itself refuses objects beyond 1.5 MB."""
MAX_RETRY_AFTER = 300.0
_CHUNK = 256 * 1024
_GRACE = 10.0
"""Seconds a watch may outlast the time it asked for before the server counts as hung."""


@dataclass(frozen=True, slots=True)
class Call:
    """Call in progress, for messages: the verb and resource of Kubernetes' own permissions."""

    verb: str
    resource: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f' {self.name}' if self.name else ''}"


@dataclass(frozen=True, slots=True)
class ApiResponse:
    call: Call
    status: int
    headers: Mapping[str, str]
    body: bytes

    def object(self, kind: str = "") -> dict[str, Any]:
        """The body as an object. Raises Untrusted unless it is JSON of that kind."""
        found = _parsed(self.body)
        if found is None:
            raise Untrusted(f"{self.call}: the answer is not a JSON object; is this an API server?")
        if kind and found.get("kind") != kind:
            raise Untrusted(f"{self.call}: expected a {kind}, was given {_short(found.get('kind'))!r}")
        return found

    def said(self) -> dict[str, Any]:
        """The Kubernetes Status in the body, {} when it is something else."""
        found = _parsed(self.body) or {}
        return found if found.get("kind") == "Status" else {}

    @property
    def retry_after(self) -> float:
        """Seconds, from the header, else the Status, else 1."""
        details = self.said().get("details")
        told = self.headers.get("Retry-After") or (details or {}).get("retryAfterSeconds")
        try:
            return min(max(float(told), 0.0), MAX_RETRY_AFTER) if told else 1.0
        except (TypeError, ValueError):
            return 1.0

    def refusal(self) -> FleetError:
        """The error that a status of 300 or more means."""
        status, said = self.said(), _short(self.said().get("message") or "")
        code = self.status
        if code in (404, 409, 410) and not (status or self._is_absent_api()):
            # A load balancer's 404 must never read as "the pod is gone".
            return Untrusted(f"{self.call}: {code}, but not from an API server")
        if 300 <= code < 400:
            return Untrusted(f"{self.call}: answered with a redirect, which is not followed")
        if code == 401:
            return CredentialsRefused(f"may not {self.call}: the credentials are not accepted (401)")
        if code == 403 and is_starting(_message(self)):
            return FleetUnavailable(f"{self.call}: the API server has just started and has not read its roles yet")
        if code == 403:
            return Forbidden(f"may not {self.call}: {said or '403'}")
        if code == 429:
            return Throttled(f"{self.call}: throttled, {said or '429'}", self.retry_after)
        if code == 404 and not status:
            return NotFound(f"{self.call}: the cluster does not serve NodeTunings; apply Setpoint's manifests")
        final = {404: NotFound, 409: Conflict, 410: Gone}.get(code)
        if final:
            return final(f"{self.call}: {said or code}")
        if 400 <= code < 500 and code != 408:
            return FleetRefused(f"{self.call}: {said or code}")
        return FleetUnavailable(f"{self.call}: the API server answered {code} {said}".rstrip())

    def _is_absent_api(self) -> bool:
        """Return whether this is the answer for a group that is not served: the CRD is not installed."""
        return self.call.resource.startswith("nodetunings") and self.body.strip() == b"404 page not found"


def is_starting(said: str) -> bool:
    """Return whether an API server forbids something only because it has just started.

    It answers before it has read the roles: then even those that every API server creates for itself are missing.
    """
    return "RBAC: " in said and 'clusterrole.rbac.authorization.k8s.io "system:' in said and '" not found' in said


def _is_for_want_of_a_role(answer: ApiResponse) -> bool:
    """Return whether an authorizer refused, by its wording: admission (quota, terminating namespace) has another."""
    said = _message(answer)
    return " cannot " in said and not is_starting(said)


def _message(answer: ApiResponse) -> str:
    return str(answer.said().get("message") or "")


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
        if answer.status == 403 and _is_for_want_of_a_role(answer):
            # Started a moment ago it knows nobody's roles yet, and forbids even /readyz, which everybody may read. Once
            # it is ready it is asked again, for it may have become so meanwhile, and what it refused it has not done.
            ready = self._once(Call("get", "readyz"), "GET", "/readyz")
            if ready.status >= 500 or is_starting(_message(ready)):
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
                for line in _lines(response, call, time.monotonic() + timeout + _GRACE):
                    if self._closed:
                        return
                    found = _parsed(line)
                    if found is None:
                        raise Untrusted(f"{call}: an event is not a JSON object")
                    yield found
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


@contextmanager
def translated(call: Call, timeout: float) -> Iterator[None]:
    """Turn the transport's errors into the port's; the original stays chained as the cause."""
    try:
        yield
    except EgressRefused as error:
        raise FleetRefused(str(error)) from error
    except exceptions.SSLError as error:
        raise _tls(call, error) from error
    except ApiException as error:  # the client's, in place of a handshake's error
        if isinstance(error.__context__, exceptions.SSLError):
            raise _tls(call, error.__context__) from error
        raise FleetRefused(f"{call}: {_short(error.reason)}") from error
    except exceptions.NewConnectionError as error:  # to urllib3 a kind of timeout
        raise FleetUnavailable(f"{call}: {_cause(error)}") from error
    except (exceptions.TimeoutError, TimeoutError) as error:
        raise FleetUnavailable(f"{call}: no answer within {timeout:g} s") from error
    except exceptions.LocationValueError as error:
        raise FleetRefused(f"{call}: {error}") from error
    except (exceptions.HTTPError, OSError) as error:
        raise FleetUnavailable(f"{call}: {_cause(error)}") from error


_OF_OUR_CERTIFICATE = {
    "SSLV3_ALERT_BAD_CERTIFICATE",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED",
    "SSLV3_ALERT_CERTIFICATE_REVOKED",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    "TLSV1_ALERT_UNKNOWN_CA",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED",
}
"""Alerts with which a server ends a handshake because of what a client showed, or did not."""


def _tls(call: Call, error: exceptions.SSLError) -> FleetError:
    inner: BaseException = error
    while inner.args and isinstance(inner.args[0], BaseException):
        inner = inner.args[0]
    if isinstance(inner, ssl.SSLCertVerificationError):
        return WrongCertificate(f"{call}: the server's certificate is not accepted: {inner.verify_message}")
    if isinstance(inner, ssl.SSLError) and inner.reason == "WRONG_VERSION_NUMBER":
        return Untrusted(f"{call}: the server does not speak TLS")
    if isinstance(inner, ssl.SSLError) and inner.reason in _OF_OUR_CERTIFICATE:
        return CredentialsRefused(f"{call}: the client certificate is not accepted: {_short(inner)}")
    return FleetUnavailable(f"{call}: TLS failed: {_short(inner)}")


def _cause(error: BaseException) -> str:
    if isinstance(error, exceptions.NameResolutionError):
        return "the host name does not resolve"
    if isinstance(error, exceptions.NewConnectionError):
        return _short(str(error).rpartition("): ")[2] or error)
    return f"the connection broke: {_short(error)}"


def read_bounded(response: urllib3.BaseHTTPResponse, call: Call, limit: int, deadline: float) -> bytes:
    """The whole body. A server that drips bytes is cut off at the deadline, one that pours them at the limit."""
    chunks: list[bytes] = []
    size = 0
    while chunk := response.read1(_CHUNK):
        size += len(chunk)
        if size > limit:
            raise Untrusted(f"{call}: the answer is longer than {limit:,} bytes")
        if time.monotonic() > deadline:
            raise FleetUnavailable(f"{call}: the answer did not end in time")
        chunks.append(chunk)
    return b"".join(chunks)


def _lines(response: urllib3.BaseHTTPResponse, call: Call, deadline: float) -> Iterator[bytes]:
    pending = bytearray()
    while chunk := response.read1(_CHUNK):
        pending += chunk
        if b"\n" in chunk:
            *whole, rest = bytes(pending).split(b"\n")
            pending = bytearray(rest)
            yield from (line for line in whole if line.strip())
        if len(pending) > MAX_EVENT:
            raise Untrusted(f"{call}: an event is longer than {MAX_EVENT:,} bytes")
        if time.monotonic() > deadline:
            return


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _short(text: object, limit: int = 500) -> str:
    """A server's words, fit for a page and a log: printable, one line, bounded."""
    printable = "".join(c if c.isprintable() else " " for c in str(text)[: limit + 1])
    return printable if len(printable) <= limit else printable[: limit - 1] + "…"


def tls(credentials: Credentials) -> ssl.SSLContext:
    """Build the TLS context of a stored CA and client certificate. Raises CredentialsRefused if OpenSSL refuses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if credentials.ca:
            context.load_verify_locations(cadata=credentials.ca)
        else:
            context.load_default_certs()
        if credentials.client_certificate:
            _load_client(context, credentials)
    except (ssl.SSLError, ValueError) as error:
        raise CredentialsRefused(f"the stored certificates cannot be used: {_short(error)}") from error
    return context


def _load_client(context: ssl.SSLContext, credentials: Credentials) -> None:
    """OpenSSL reads client certificates from files only: one of mode 0600 in a 0700 directory, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="setpoint-") as folder:
        path = Path(folder, "client.pem")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{credentials.client_certificate}\n{credentials.client_key}\n")
        context.load_cert_chain(path)
