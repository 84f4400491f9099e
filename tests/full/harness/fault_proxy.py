"""A proxy of faults in front of a real API server: it ends TLS, passes each request on by itself, and spoils what it is
told to.

Each client shows its own token to the API server, whose audit log stays the witness. Which requests a share hits is
decided by a seed. Only HTTP/1.1, only loopback, and a connection upstream for each request, so that nothing of one
request can reach another.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusters.net.credentials import Credentials
from tests.controlplane.plane import Plane

_PIECE = 64 * 1024
_END = b"\r\n\r\n"
_HEAD_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Fault:
    """Faults that requests meet. Without any set, requests pass unchanged."""

    share: float = 1.0
    """Of the requests that it may happen to."""
    statuses: tuple[int, ...] = ()
    """Answered instead of the API server: half of the time before it was asked, half after it has done it."""
    retry_after: str = ""
    latency: float = 0.0
    """Seconds before the request is passed on."""
    drip: tuple[int, float] = (0, 0.0)
    """The answer's body in pieces of so many bytes, with so many seconds between two."""
    cuts: bool = False
    """The connection ends in the middle of the answer's body, after the API server has done what was asked."""
    page: int = 0
    """Lists come in pages of so many objects, regardless of the limit that was asked for."""


NOTHING = Fault()
_TROUBLE = {
    500: ("Internal error occurred: the proxy says so", "InternalError"),
    503: ("the server is currently unable to handle the request", "ServiceUnavailable"),
}
"""What an API server says with each status."""


@dataclass(slots=True)
class Request:
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def is_watch(self) -> bool:
        return "watch=1" in self.target or "watch=true" in self.target

    @property
    def is_continued(self) -> bool:
        return "continue=" in self.target


class FaultProxy:
    """`proxy.fault = Fault(...)` counts for requests and answers from then on, those under way included."""

    def __init__(self, plane: Plane, folder: Path, seed: str) -> None:
        self.plane = plane
        self.fault = NOTHING
        self.met: Counter[str] = Counter()
        """How often each thing was done to a request, so that a test can see that it was not spared."""
        self.further_page: Callable[[str], str] | None = None
        """What is asked for instead of a further page of a list: one that etcd has forgotten by now."""
        self._random = random.Random(seed)
        certificate, key = plane.authority.server(["127.0.0.1"])
        pem = folder / "proxy.pem"
        pem.write_text(certificate + key)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(pem)
        self._upstream = ssl.create_default_context(cadata=plane.authority.pem)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────
    def start(self) -> FaultProxy:
        self._thread.start()
        self._server = self._do(
            asyncio.start_server(self._connection, "127.0.0.1", 0, ssl=self._tls, limit=_HEAD_BYTES)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def close(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _do(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def credentials(self, token: str) -> Credentials:
        return Credentials(server=self.url, ca=self.plane.authority.pem, token=token)

    def cut_all(self) -> None:
        """End every connection there is, watches included."""

        async def cut() -> None:
            for writer in list(self._writers):
                writer.transport.abort()

        self._do(cut())

    # ── one connection ────────────────────────────────────────────────────────────────────────────────────────────
    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while (request := await _read_request(reader)) is not None:
                if not await self._handle(request, writer):
                    break
        except (OSError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # either side went away, which is what this is for
        finally:
            self._writers.discard(writer)
            with suppress(Exception):
                writer.close()

    async def _handle(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Return whether the connection stays open."""
        fault = self.fault
        hit = self._random.random() < fault.share
        early = self._random.random() < 0.5
        if hit and fault.latency:
            self.met["latency"] += 1
            await asyncio.sleep(fault.latency)
        status = self._random.choice(fault.statuses) if hit and fault.statuses else 0
        if status and early:
            self.met[f"{status}"] += 1
            return await _refuse(writer, status, fault.retry_after)
        if fault.page and request.method == "GET":
            request.target = _paged(request.target, fault.page)
        if request.is_continued and self.further_page:
            request.target = self.further_page(request.target)
        answer = await self._ask(request)
        try:
            if status:
                await answer.read_all()
                self.met[f"{status} after it was done"] += 1
                return await _refuse(writer, status, fault.retry_after)
            return await self._relay(request, answer, writer, cuts=hit and fault.cuts)
        finally:
            answer.close()

    async def _ask(self, request: Request) -> Answer:
        host, port = "127.0.0.1", int(self.plane.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection(host, port, ssl=self._upstream, limit=_HEAD_BYTES)
        lines = [f"{request.method} {request.target} HTTP/1.1"]
        lines += [f"{k}: {v}" for k, v in request.headers if k.lower() not in ("connection", "content-length", "host")]
        lines += [f"Host: 127.0.0.1:{port}", f"Content-Length: {len(request.body)}", "Connection: close"]
        writer.write("\r\n".join(lines).encode("latin-1") + _END + request.body)
        await writer.drain()
        head = (await reader.readuntil(_END)).decode("latin-1")
        return Answer(head, reader, writer)

    async def _relay(self, request: Request, answer: Answer, writer: asyncio.StreamWriter, *, cuts: bool) -> bool:
        """The answer's bytes as they come, in chunks of our own."""
        if answer.status == 410:
            self.met["410"] += 1
        has_body = request.method != "HEAD" and answer.status not in (204, 304)
        writer.write(answer.rewritten(chunked=has_body))
        await writer.drain()
        if not has_body:
            return True
        if cuts and not request.is_watch:
            # Of an answer whose end never comes, at least one byte: what begins and does not end is the hard case.
            body = await answer.read_all()
            await _chunk(writer, body[: max(1, len(body) // 2)])
            self.met["cut"] += 1
            writer.transport.close() if self._random.random() < 0.5 else writer.transport.abort()
            return False
        async for piece in answer.pieces():
            if cuts:
                await _chunk(writer, piece[: max(1, len(piece) // 2)])
                self.met["watch cut"] += 1
                writer.transport.abort()
                return False
            if request.is_watch and b'"code":410' in piece:
                self.met["410 in a watch"] += 1
            await self._drip(writer, piece)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _drip(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        """Apply the fault that is set at each moment, so that a slow answer continues at full speed once it is over."""
        at = 0
        while at < len(piece):
            size, pause = self.fault.drip
            if not size:
                await _chunk(writer, piece[at:])
                return
            self.met["drip"] += 1
            await _chunk(writer, piece[at : at + size])
            at += size
            await asyncio.sleep(pause)


class Answer:
    """The API server's answer, its body read as it comes, whichever way it is framed."""

    def __init__(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.strip().split("\r\n")
        self.first, self._reader, self._writer = first, reader, writer
        self.status = int(first.split()[1])
        self.headers = [_header(line) for line in lines]
        named = {name.lower(): value for name, value in self.headers}
        self._length = int(named["content-length"]) if "content-length" in named else None
        self._is_chunked = named.get("transfer-encoding", "") == "chunked"

    def rewritten(self, *, chunked: bool) -> bytes:
        ours = ("content-length", "transfer-encoding", "connection")
        lines = [self.first, *(f"{name}: {value}" for name, value in self.headers if name.lower() not in ours)]
        lines.append("Transfer-Encoding: chunked" if chunked else "Content-Length: 0")
        return "\r\n".join(lines).encode("latin-1") + _END

    async def pieces(self) -> AsyncIterator[bytes]:
        if self._is_chunked:
            while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
            return
        left = self._length
        while left is None or left > 0:
            piece = await self._reader.read(_PIECE if left is None else min(_PIECE, left))
            if not piece:
                return
            left = None if left is None else left - len(piece)
            yield piece

    async def read_all(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    def close(self) -> None:
        with suppress(Exception):
            self._writer.transport.abort()


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(_END)).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = [_header(line) for line in lines]
    named = {name.lower(): value for name, value in headers}
    body = b""
    if named.get("transfer-encoding") == "chunked":
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        headers = [(name, value) for name, value in headers if name.lower() != "transfer-encoding"]
    elif length := int(named.get("content-length") or 0):
        body = await reader.readexactly(length)
    return Request(method, target, headers, body)


async def _refuse(writer: asyncio.StreamWriter, status: int, retry_after: str) -> bool:
    """Answer like an API server in trouble: a Status, with or without Retry-After."""
    message, reason = _TROUBLE[status]
    answer = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    answer |= {"code": status}  # type: ignore[dict-item]
    body = json.dumps(answer).encode()
    lines = [f"HTTP/1.1 {status} Trouble", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"Retry-After: {retry_after}"] if retry_after else []
    writer.write("\r\n".join(lines).encode() + _END + body)
    await writer.drain()
    return True


async def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    if data:
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await writer.drain()


def _paged(target: str, page: int) -> str:
    path, _, query = target.partition("?")
    pairs = [f"limit={page}" if pair.startswith("limit=") else pair for pair in query.split("&")]
    return f"{path}?{'&'.join(pairs)}" if query else target
