"""TLS contexts, bodies read within bounds of time and size, and the transport's failures as FleetErrors."""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import urllib3
from kubernetes.client.exceptions import ApiException
from urllib3 import exceptions
from urllib3.util.ssl_ import ALPN_PROTOCOLS

from clusters.fleet import CredentialsRefused, FleetError, FleetRefused, FleetUnavailable, Untrusted, WrongCertificate
from clusters.kube.responses import Call, short
from clusters.net.credentials import Credentials
from clusters.net.egress import EgressRefused, Policy

MAX_EVENT = 8 * 1024 * 1024
"""Bytes of one watch event; etcd itself refuses objects beyond 1.5 MB."""
_CHUNK = 256 * 1024
_PIECE = 64 * 1024


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
        raise FleetRefused(f"{call}: {short(error.reason)}") from error
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
        return CredentialsRefused(f"{call}: the client certificate is not accepted: {short(inner)}")
    return FleetUnavailable(f"{call}: TLS failed: {short(inner)}")


def _cause(error: BaseException) -> str:
    if isinstance(error, exceptions.NameResolutionError):
        return "the host name does not resolve"
    if isinstance(error, exceptions.NewConnectionError):
        return short(str(error).rpartition("): ")[2] or error)
    return f"the connection broke: {short(error)}"


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


def read_lines(response: urllib3.BaseHTTPResponse, call: Call, deadline: float) -> Iterator[bytes]:
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


class SharedContext(ssl.SSLContext):
    """Context of connections that several threads open at once.

    urllib3 sets the protocols of ALPN again for each connection. OpenSSL frees the former ones, which a handshake that
    begins in another thread may be copying: one in thousands sends a garbled greeting, and is refused by the server
    with "decode error". They are set once here.
    """

    _protocols: tuple[str, ...] = ()

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        protocols = tuple(alpn_protocols)
        if protocols != self._protocols:
            super().set_alpn_protocols(list(protocols))
            self._protocols = protocols


def tls(credentials: Credentials) -> ssl.SSLContext:
    """Build the TLS context of a stored CA and client certificate. Raises CredentialsRefused if OpenSSL refuses."""
    context = SharedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(ALPN_PROTOCOLS)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if credentials.ca:
            context.load_verify_locations(cadata=credentials.ca)
        else:
            context.load_default_certs()
        if credentials.client_certificate:
            _load_client(context, credentials)
    except (ssl.SSLError, ValueError) as error:
        raise CredentialsRefused(f"the stored certificates cannot be used: {short(error)}") from error
    return context


def _load_client(context: ssl.SSLContext, credentials: Credentials) -> None:
    """OpenSSL reads client certificates from files only: one of mode 0600 in a 0700 directory, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="setpoint-") as folder:
        path = Path(folder, "client.pem")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{credentials.client_certificate}\n{credentials.client_key}\n")
        context.load_cert_chain(path)


def shake_hands(url: str, policy: Policy, *, ca: str = "", timeout: float) -> None:
    """Connect to a URL's server, with TLS where its scheme has it, and close again: nothing is sent.

    Raises FleetUnavailable, FleetRefused, Untrusted, WrongCertificate, CredentialsRefused; for an unusable URL, too.
    """
    parts = urlsplit(url)
    host, is_plain = parts.hostname or "", parts.scheme == "http"
    call = Call("connect", host or "?")
    if not host:
        raise FleetRefused("the address names no host")
    context = None if is_plain else tls(Credentials(server="", ca=ca))
    with translated(call, timeout):
        try:
            sock = policy.connect(host, parts.port or (80 if is_plain else 443), timeout=timeout)
            try:
                if context is not None:
                    sock = context.wrap_socket(sock, server_hostname=host)
            finally:
                sock.close()
        except ssl.SSLError as error:
            raise _tls(call, exceptions.SSLError(error)) from error
        except socket.gaierror as error:
            raise FleetUnavailable(f"{call}: the host name does not resolve") from error


def send_and_close(
    host: str, port: int, payload: bytes, *, policy: Policy, credentials: Credentials, seconds: float
) -> None:
    """Send to a TLS server that answers nothing, and return once it has closed its side behind our end of data.

    A reset, or no end within `seconds`, is a failure: then not all was read, as far as is known. Raises as
    `shake_hands`.
    """
    call, deadline = Call("send", host), time.monotonic() + seconds
    context = tls(credentials)
    context.set_alpn_protocols([])  # those of HTTP

    def left() -> float:
        if (remaining := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        return remaining

    with translated(call, seconds):
        try:
            sock: socket.socket = policy.connect(host, port, timeout=left())
            try:
                sock = secured = context.wrap_socket(sock, server_hostname=host)
                for start in range(0, len(payload), _PIECE):
                    secured.settimeout(left())  # for each piece: a slow reader must not hold on without end
                    secured.sendall(payload[start : start + _PIECE])
                _end(secured, left)
            finally:
                sock.close()
        except ssl.SSLError as error:
            raise _tls(call, exceptions.SSLError(error)) from error
        except socket.gaierror as error:
            raise FleetUnavailable(f"{call}: the host name does not resolve") from error


def _end(secured: ssl.SSLSocket, left: Callable[[], float]) -> None:
    """Close TLS on our side, then wait for the peer: first its end of TLS, then that of its connection.

    Some receivers end the connection without the end of TLS: all data was sent by then, so nothing is cut off by that.
    """
    secured.settimeout(left())
    try:
        plain = secured.unwrap()
    except ssl.SSLEOFError:
        return
    except OSError as error:
        if isinstance(error, ssl.SSLError | TimeoutError | ConnectionError) or error.errno:
            raise
        return  # OpenSSL's other word for it
    plain.settimeout(left())
    try:
        plain.shutdown(socket.SHUT_WR)
        plain.recv(1)
    finally:
        plain.close()
