"""Small servers on loopback that a test starts and ends: DNS over UDP and TCP, and TLS with HTTP."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpus.services.checks.programs.network import AAAA, A, name_at
from tests.ports import free_port

Reply = Callable[[bytes, int], bytes | None]
"""Of a query and its number, from 0: what is sent back, or None for silence."""


def reply(query: bytes, *, code: int = 0, address: str = "10.0.0.9", name: bytes = b"", flags: int = 0) -> bytes:
    """Answer a query as a name server does; `name` answers another question."""
    _, end = name_at(query, 12)
    kind = struct.unpack("!H", query[end : end + 2])[0]
    questioned = name + query[end : end + 4] if name else query[12 : end + 4]
    is_known = kind == A and code == 0 and not flags & 0x0200
    head = query[:2] + struct.pack("!5H", 0x8180 | flags | code, 1, int(is_known), 0, 0)
    record = b"\xc0\x0c" + struct.pack("!2HIH", A, 1, 30, 4) + socket.inet_aton(address)
    return head + questioned + (record if is_known else b"")


def is_ipv6(query: bytes) -> bool:
    _, end = name_at(query, 12)
    return struct.unpack("!H", query[end : end + 2])[0] == AAAA


@contextmanager
def nameserver(answers: Reply, over_tcp: Reply | None = None) -> Iterator[int]:
    """Serve until the block ends, and give its port."""
    port = free_port()  # a port that bind() chooses may be that of a TCP connection
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", port))

    def serve() -> None:
        count = 0
        while True:
            try:
                query, sender = udp.recvfrom(4096)
                if query == b"end":
                    return
                text = answers(query, count)
            except OSError:
                return
            count += 1
            if text is not None:
                udp.sendto(text, sender)

    def of_tcp(stream: socket.socket) -> None:
        assert over_tcp is not None
        with stream:
            query = stream.recv(4096)[2:]
            if query and (text := over_tcp(query, 0)) is not None:
                stream.sendall(struct.pack("!H", len(text)) + text)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        if over_tcp is None:
            yield port
        else:
            with listener(of_tcp, port=port):
                yield port
    finally:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"end", ("127.0.0.1", port))
        thread.join(10)
        udp.close()


@contextmanager
def listener(serve: Callable[[socket.socket], None], port: int = 0) -> Iterator[int]:
    """Accept connections until the block ends, each in a thread of its own, and give the port."""
    server = socket.create_server(("127.0.0.1", port))
    open_ones: list[socket.socket] = []

    def handle(stream: socket.socket) -> None:
        try:
            serve(stream)
        except OSError:
            return

    def accept() -> None:
        while True:
            try:
                stream, _ = server.accept()
            except OSError:
                return
            open_ones.append(stream)
            threading.Thread(target=handle, args=(stream,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for stream in open_ones:
            stream.close()


def closes(stream: socket.socket) -> None:
    stream.close()


def is_mute(_stream: socket.socket) -> None:
    """Accept, and never answer: it stays open until the test ends."""


def https(folder: Path, answer: bytes, *, most: int = 1 << 20) -> Callable[[socket.socket], None]:
    """Return what serves one HTTP answer over TLS; a request that is longer than `most` is left without one."""
    certificate = folder / "tls.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def serve(stream: socket.socket) -> None:
        with context.wrap_socket(stream, server_side=True) as tls:
            request = b""
            while not request.endswith(b"\r\n\r\n") and len(request) <= most:
                request += tls.recv(65536)
            if len(request) <= most:
                tls.sendall(answer)
            while tls.recv(65536):
                continue

    return serve
