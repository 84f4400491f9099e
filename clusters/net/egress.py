"""Egress policy: one for API servers, Prometheus, webhooks and chart repositories.

The address is checked when the connection is made, and the connection is made to the address that was checked: a name
that resolves to something else a second later (DNS rebinding) gains nothing. Proxies from the environment are not used
and redirects are not followed: both would connect where this policy has not looked.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.timeout import Timeout

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Google, Azure, OpenStack and others; link-local, listed for its message
        "fd00:ec2::254",  # AWS over IPv6
        "fd20:ce::254",  # Google over IPv6
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's wire server
        "192.0.0.192",  # Oracle's older one
    )
)
"""Addresses at which clouds hand out a machine's credentials to any process that asks."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
"""RFC 8215: for translators of the site's own choice, which may put the IPv4 address anywhere in it."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""RFC 5214: the 32 bits before the IPv4 address at the end."""
DNS_SECONDS = 5.0
KEEPALIVE = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]
"""A peer that vanished without a word is noticed after 60 s, on a watch too."""


class EgressRefused(Exception):
    """The policy does not permit this address. `str()` names host and address, and what would permit it."""


@dataclass(frozen=True, slots=True)
class Policy:
    allow: tuple[Network, ...] = ()
    """Loopback networks that may be reached (SETPOINT_ALLOW_NETWORKS). They permit nothing else that is forbidden."""

    @classmethod
    def of(cls, networks: Iterable[str]) -> Policy:
        """Raises ValueError naming the text that is not a network."""
        return cls(tuple(ipaddress.ip_network(text.strip(), strict=False) for text in networks if text.strip()))

    def check(self, address: str, host: str = "") -> None:
        """Raises EgressRefused unless a connection to this numeric address is permitted."""
        literal = ipaddress.ip_address(address.partition("%")[0])
        for judged in tuple(_embedded(literal)) or (literal,):
            if reason := self._objection(judged):
                raise EgressRefused(f"{host or address} is {address}, {reason}")

    def _objection(self, address: Address) -> str:
        if address in METADATA:
            return "a cloud's metadata service: never connected to"
        if address.is_link_local:
            return "a link-local address: never connected to"
        if address in _NAT64_LOCAL:
            return "translated to an IPv4 address that cannot be told from it: never connected to"
        if address.is_unspecified or address.is_multicast or (address.version == 4 and int(address) >= 0xF0000000):
            return "not the address of one machine: never connected to"
        if address.is_loopback and not any(address.version == n.version and address in n for n in self.allow):
            return "a loopback address: permitted only where SETPOINT_ALLOW_NETWORKS names its network"
        return ""

    def resolve(self, host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
        """Family and numeric address of each permitted address of a host.

        Raises EgressRefused when none is permitted, OSError when the name does not resolve within DNS_SECONDS.
        """
        permitted: list[tuple[socket.AddressFamily, str]] = []
        refusal: EgressRefused | None = None
        for family, address in _lookup(host, port):
            try:
                self.check(address, host)
            except EgressRefused as error:
                refusal = refusal or error
            else:
                permitted.append((family, address))
        if not permitted:
            raise refusal or socket.gaierror(socket.EAI_NONAME, f"{host} has no address")
        return permitted

    def connect(self, host: str, port: int, *, timeout: float | None) -> socket.socket:
        """A TCP connection to the first permitted address that answers. Raises EgressRefused, OSError, TimeoutError."""
        failure: OSError | None = None
        deadline = None if timeout is None else time.monotonic() + timeout
        for family, address in self.resolve(host, port):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise failure or TimeoutError(f"{host} did not resolve in time")
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                for option in KEEPALIVE:
                    sock.setsockopt(*option)
                sock.settimeout(left)
                sock.connect((address, port))
            except OSError as error:
                sock.close()
                failure = error
            else:
                sock.settimeout(timeout)
                return sock
        raise failure or OSError(f"{host} has no address")


def _embedded(address: Address) -> Iterable[Address]:
    """IPv4 addresses inside an IPv6 one, at which it ends.

    Mapped, compatible, translated, 6to4, NAT64, Teredo (its server and its client) and ISATAP.
    """
    if isinstance(address, ipaddress.IPv6Address):
        last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if address.ipv4_mapped:
            yield address.ipv4_mapped
        if address.sixtofour:
            yield address.sixtofour
        if address.teredo:
            yield from address.teredo
        if address in _NAT64 or address in _TRANSLATED or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
            yield last
        if address in _COMPATIBLE and int(address) > 1:  # :: and ::1 are themselves
            yield last


def _lookup(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    """getaddrinfo with a limit of its own: the resolver's may be half a minute. Raises OSError."""
    if numeric := _numeric(host):
        return [numeric]
    addresses: list[tuple[socket.AddressFamily, str]] = []
    failed: list[Exception] = []

    def look() -> None:
        try:
            for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                if family in (socket.AF_INET, socket.AF_INET6):
                    addresses.append((family, str(address[0])))
        except Exception as error:  # it belongs to the caller, which waits in another thread
            failed.append(error)

    thread = threading.Thread(target=look, name="dns", daemon=True)
    thread.start()
    thread.join(DNS_SECONDS)
    if thread.is_alive():
        raise socket.gaierror(socket.EAI_AGAIN, f"no answer within {DNS_SECONDS:g} s")
    if failed and isinstance(failed[0], UnicodeError):
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is not a host name") from failed[0]
    if failed:
        raise failed[0]
    return addresses


def _numeric(host: str) -> tuple[socket.AddressFamily, str] | None:
    """An address as it is meant, in all spellings that resolvers take: 127.1, 0x7f.1 and 2130706433 are 127.0.0.1."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return socket.AF_INET, socket.inet_ntoa(socket.inet_aton(host))
        except (OSError, UnicodeError):
            return None
    return (socket.AF_INET if address.version == 4 else socket.AF_INET6), host


class _Pinned:
    """Mixed into urllib3's connections: they connect where the policy says, TLS still verifies the name."""

    policy: ClassVar[Policy]

    def _new_conn(self: Any) -> socket.socket:
        timeout = Timeout.resolve_default_timeout(self.timeout)
        host = str(self._dns_host).strip("[]")
        policy: Policy = self.policy
        try:
            return policy.connect(host, self.port, timeout=timeout)
        except socket.gaierror as error:
            raise NameResolutionError(host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no connection to {host} within {timeout} s") from error
        except OSError as error:
            raise NewConnectionError(self, f"{host} cannot be reached: {error}") from error


class PinnedPools(urllib3.PoolManager):
    """A urllib3 pool manager under a policy: no redirects, no retries, no proxies. Other keywords are urllib3's."""

    def __init__(self, policy: Policy, **pool: Any) -> None:
        super().__init__(retries=False, **pool)
        # Classes made here, because urllib3 creates connections itself and hands them nothing of ours.
        http = type("PinnedHTTP", (_Pinned, HTTPConnection), {"policy": policy})
        https = type("PinnedHTTPS", (_Pinned, HTTPSConnection), {"policy": policy})
        self.pool_classes_by_scheme = {
            "http": type("PinnedHTTPPool", (HTTPConnectionPool,), {"ConnectionCls": http}),
            "https": type("PinnedHTTPSPool", (HTTPSConnectionPool,), {"ConnectionCls": https}),
        }

    def urlopen(  # type: ignore[override]  # as urllib3's own PoolManager does
        self, method: str, url: str, redirect: bool = False, **kw: Any
    ) -> urllib3.BaseHTTPResponse:
        """Open a URL as urllib3 does, but never follow a redirect, even if asked to: it is an answer like any other."""
        return super().urlopen(method, url, redirect=False, **kw)
