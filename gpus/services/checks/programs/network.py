"""Check of the cluster's network from inside a pod: DNS, services, and packets of full size.

It runs as `python3 -I -S -c TEXT OPTIONS` in any image with Python 3.11 or newer: standard library, no privileges, no
token. OPTIONS is JSON, {"targets": [name or host:port]}. It prints one JSON object, and ends with 0 where every try was
answered. What it does for each target is repeated, for one packet of ten that is lost delays one pod of ten.
"""

from __future__ import annotations

import ipaddress
import json
import os
import platform
import re
import socket
import ssl
import statistics
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

FORMAT = 1
TRIES, EXCHANGES = 10, 3
"""Of a query or a connection, and of a TLS exchange."""
IN_A_ROW = 3
"""Failures after which a target is not tried any further: it does not answer."""
WAIT = 3.0
"""Seconds for one try. A resolver waits 5, and a pod that has to wait for one of them has a finding already."""
LONGEST = 240.0
"""Seconds for all tries together, below the limit of the check."""
PADDING = 16 * 1024
"""Bytes of a request: its segments have full size on every path, also with jumbo frames."""
MOST_SERVERS = 3
"""Of resolv.conf that a resolver uses."""
A, CNAME, AAAA = 1, 5, 28
NO_ERROR, NO_SUCH_NAME = 0, 3
SERVICE = "kubernetes.default.svc"
WHYS = (
    "silent", "refused", "unreachable", "closed", "garbage", "tls", "server-error", "no-such-name", "no-address",
    "no-server", "no-service", "no-time",
)  # fmt: skip


class Failure(Exception):
    """One try failed; `str()` is one of WHYS."""


class Probe:
    """Tries of one target, in one way."""

    def __init__(self, kind: str, target: str, server: str = "") -> None:
        self.kind, self.target, self.server = kind, target, server
        self.times: list[float] = []
        self.failures: dict[str, int] = {}
        self.received = 0

    def fail(self, why: str) -> None:
        self.failures[why] = self.failures.get(why, 0) + 1

    def repeat(self, attempt: Callable[[], object], tries: int, until: float) -> Probe:
        in_a_row = 0
        for _ in range(tries):
            start = time.monotonic()
            if start > until:
                self.fail("no-time")
                break
            try:
                attempt()
            except Failure as failure:
                self.fail(str(failure))
                in_a_row += 1
                if in_a_row == IN_A_ROW:
                    break
            else:
                self.times.append(1000 * (time.monotonic() - start))
                in_a_row = 0
        return self

    def line(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "target": self.target,
            "server": self.server,
            "answered": len(self.times),
            "failures": self.failures,
            "p50_ms": round(statistics.median(self.times), 3) if self.times else None,
            "max_ms": round(max(self.times), 3) if self.times else None,
            "received": self.received,
        }


def why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "silent"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "closed"
    return "unreachable"


# ── DNS ───────────────────────────────────────────────────────────────────────────────────────────────────────────────
def question(name: str, kind: int) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return labels + b"\0" + struct.pack("!2H", kind, 1)


def name_at(data: bytes, at: int) -> tuple[str, int]:
    """Return the name at an offset, in lower case, and the offset behind it. Raises ValueError, IndexError."""
    labels, end, total = [], -1, 0
    while data[at]:
        length = data[at]
        if length >= 0xC0:
            pointer = (length & 0x3F) << 8 | data[at + 1]
            end = at + 2 if end < 0 else end
            if pointer >= at:
                raise ValueError("a pointer that leads ahead")
            at = pointer
            continue
        label = data[at + 1 : at + 1 + length]
        total += length + 1
        if length > 63 or len(label) != length or total > 255:
            raise ValueError("a label that is too long")
        labels.append(label.decode("latin-1").lower())
        at += 1 + length
    return ".".join(labels), (at + 1 if end < 0 else end)


def read_answer(data: bytes, sent: bytes) -> tuple[int, bool, list[str]]:
    """Return the code, whether it is truncated, and the addresses. Raises ValueError, IndexError, struct.error."""
    ident, flags, questions, answers = struct.unpack("!4H", data[:8])
    name, at = name_at(data, 12)
    wanted, end = name_at(sent, 12)
    if sent[:2] != struct.pack("!H", ident) or flags >> 11 != 0b10000 or questions != 1:
        raise ValueError("no answer to this query")
    if name != wanted or data[at : at + 4] != sent[end : end + 4]:
        raise ValueError("an answer to another question")
    at += 4
    if flags & 0x0200:
        return flags & 15, True, []
    aliases, records = {}, []
    for _ in range(answers):
        owner, at = name_at(data, at)
        kind, _class, _ttl, length = struct.unpack("!2HIH", data[at : at + 10])
        at += 10
        if len(data) < at + length:
            raise ValueError("a record that is cut off")
        if kind == CNAME:
            aliases[owner] = name_at(data, at)[0]
        elif kind in (A, AAAA) and length == (4 if kind == A else 16):
            records.append((owner, str(ipaddress.ip_address(data[at : at + length]))))
        at += length
    names = [wanted]
    while names[-1] in aliases and len(names) <= len(aliases):
        names.append(aliases[names[-1]])
    return flags & 15, False, [address for owner, address in records if owner in names]


def over_tcp(server: str, port: int, query: bytes, left: float) -> tuple[int, bool, list[str]]:
    """Repeat a query whose answer was truncated. Raises OSError and what read_answer raises."""
    with socket.create_connection((server, port), timeout=left) as stream, stream.makefile("rb") as answer:
        stream.sendall(struct.pack("!H", len(query)) + query)
        (length,) = struct.unpack("!H", answer.read(2))
        return read_answer(answer.read(length), query)


def ask(server: str, port: int, name: str, wait: float) -> list[str]:
    """Return the addresses of a name by one server. Raises Failure.

    A and AAAA leave one socket at the same time, as of a C library's resolver: of two such packets Linux' connection
    tracking may drop one, and the pod waits 5 s.
    """
    queries = [os.urandom(2) + struct.pack("!5H", 0x0100, 1, 0, 0, 0) + question(name, kind) for kind in (A, AAAA)]
    got: dict[bytes, tuple[int, bool, list[str]]] = {}
    until, is_strange = time.monotonic() + wait, False
    try:
        with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.connect((server, port))
            for query in queries:
                udp.send(query)
            while len(got) < len(queries):
                udp.settimeout(max(0.001, until - time.monotonic()))
                data = udp.recv(65535)
                if time.monotonic() > until:
                    raise TimeoutError
                for query in queries:
                    try:
                        got[query] = read_answer(data, query)
                        break
                    except (ValueError, IndexError, struct.error):
                        continue
                else:
                    is_strange = True
        for query, (_, is_truncated, _) in got.items():
            if is_truncated:
                got[query] = over_tcp(server, port, query, max(0.001, until - time.monotonic()))
    except OSError as error:
        raise Failure("garbage" if is_strange and isinstance(error, TimeoutError) else why(error)) from error
    except (ValueError, IndexError, struct.error) as error:
        raise Failure("garbage") from error
    codes = {code for code, _, _ in got.values()}
    addresses = [address for _, _, part in got.values() for address in part]
    if codes - {NO_ERROR, NO_SUCH_NAME}:
        raise Failure("server-error")
    if not addresses:
        raise Failure("no-such-name" if NO_SUCH_NAME in codes else "no-address")
    return addresses


def resolver(path: str) -> tuple[list[str], str]:
    """Return the name servers of resolv.conf, and the cluster's domain by its search list."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file.read(65536).splitlines()]
    except OSError:
        lines = []
    servers = [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
    search = next((words[1:] for words in reversed(lines) if words and words[0] == "search"), [])
    domains = [match[1] for name in search if (match := re.fullmatch(r"[^.]+\.svc\.(.+?)\.?", name))]
    return list(dict.fromkeys(servers))[:MOST_SERVERS], (domains or ["cluster.local"])[0]


# ── Services ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def split(target: str) -> tuple[str, int]:
    host, _, port = target.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def joined(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def connect(host: str, port: int, wait: float) -> None:
    try:
        socket.create_connection((host, port), timeout=wait).close()
    except OSError as error:
        raise Failure(why(error)) from error


def exchange(host: str, port: int, wait: float) -> int:
    """Send a request of full packets over TLS, and return the bytes that came back, once they are an HTTP answer.

    Whose certificate it is does not matter: nothing secret is sent, and any answer shows that the packets arrive.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing)
    until, received, answer = time.monotonic() + wait, 0, b""
    lines = ("GET /version HTTP/1.1", "Host: kubernetes", "Connection: close", f"X-Padding: {PADDING * 'x'}", "", "")
    try:
        with socket.create_connection((host, port), timeout=wait) as stream:
            is_greeted = False
            while b"\r\n\r\n" not in answer:
                try:
                    if not is_greeted:
                        tls.do_handshake()
                        is_greeted = True
                        tls.write("\r\n".join(lines).encode())
                    part = tls.read(65536)
                    if not part:
                        raise Failure("closed")
                    answer += part
                except ssl.SSLWantReadError:
                    stream.sendall(outgoing.read())
                    stream.settimeout(max(0.001, until - time.monotonic()))
                    data = stream.recv(65536)
                    if not data:
                        raise Failure("closed") from None
                    if time.monotonic() > until:
                        raise Failure("silent") from None
                    received += len(data)
                    incoming.write(data)
                if len(answer) > 65536 or (answer and not is_http(answer)):
                    raise Failure("garbage")
    except ssl.SSLError as error:
        raise Failure("closed" if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError) else "tls") from error
    except OSError as error:
        raise Failure(why(error)) from error
    return received


def is_http(answer: bytes) -> bool:
    """Return whether this may be the beginning of an HTTP answer; its status does not matter."""
    return re.match(rb"HTTP/1\.[01] [1-5]\d\d", answer + b"HTTP/1.1 200"[len(answer) :]) is not None


# ── All of it ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def run(options: dict[str, Any]) -> dict[str, Any]:
    wait, port = float(options.get("wait", WAIT)), int(options.get("dns_port", 53))
    until = time.monotonic() + LONGEST
    servers, domain = resolver(options.get("resolv_conf", "/etc/resolv.conf"))
    targets = options["targets"]
    names = [f"{SERVICE}.{domain}", *(target for target in targets if ":" not in target)]
    probes = []
    for server in servers or [""]:
        for name in dict.fromkeys(names):
            probe = Probe("dns", name, server)
            probes.append(probe)
            if server:
                probe.repeat(partial(ask, server, port, name, wait), TRIES, until)
            else:
                probe.fail("no-server")
    probes += api_server(wait, until)
    for target in targets:
        if ":" in target and ("tcp", target) not in {(probe.kind, probe.target) for probe in probes}:
            probes.append(service(target, servers, port, wait, until))
    return {
        "setpoint_network": FORMAT,
        "python": platform.python_version(),
        "probes": [probe.line() for probe in probes],
        "is_complete": True,
    }


def api_server(wait: float, until: float) -> list[Probe]:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    target = joined(host, port)
    both = Probe("tcp", target), Probe("https", target)
    if not is_address(host) or not port.isdecimal():
        for probe in both:
            probe.target = SERVICE
            probe.fail("no-service")
        return list(both)
    connected, exchanged = both
    connected.repeat(lambda: connect(host, int(port), wait), TRIES, until)

    def once() -> None:
        exchanged.received = max(exchanged.received, exchange(host, int(port), wait))

    exchanged.repeat(once, EXCHANGES, until)
    return [connected, exchanged]


def service(target: str, servers: list[str], dns_port: int, wait: float, until: float) -> Probe:
    probe = Probe("tcp", target)
    host, port = split(target)
    addresses = [host] if is_address(host) else []
    reason = "no-server"
    for server in servers:
        if not addresses:
            try:
                addresses = ask(server, dns_port, host, wait)
            except Failure as failure:
                reason = f"{failure}"
    if not addresses:
        probe.fail("no-address" if reason != "no-server" else reason)
        return probe
    return probe.repeat(lambda: connect(addresses[0], port, wait), TRIES, until)


if __name__ == "__main__":
    document = run(json.loads(sys.argv[1]))
    print(json.dumps(document, separators=(",", ":")))
    sys.exit(int(any(probe["failures"] for probe in document["probes"])))
