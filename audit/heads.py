"""Heads of the chain, kept where the database's administrators cannot reach: a rewritten history contradicts them.

After each sealing the head is logged, appended to a file and sent to syslog, as settings say. What the file holds is
read again at the start of every process and before each sealing.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import re
import socket
import sys
from collections.abc import Iterator
from logging.handlers import SysLogHandler
from pathlib import Path

import structlog
from django.conf import settings

from audit.models import Seal

LAST = 64 * 1024
"""Bytes of the file that a sealing looks at: several hundred heads. Verification reads all."""
LINE = re.compile(r"(\d{1,18}):([0-9a-f]{64})")
log = structlog.get_logger(__name__)


def ship(seq: int, seal: str, *, records: int) -> None:
    """Never raises: what cannot be told in one place is told in the others, and the log says so."""
    log.info("audit sealed", records=records, head=f"{seq}:{seal}")
    with _logged("file"):
        if path := settings.SETPOINT_AUDIT_HEADS_FILE:
            _append(Path(path), f"{seq}:{seal}\n")
    with _logged("syslog"):
        if where := settings.SETPOINT_AUDIT_HEADS_SYSLOG:
            _syslog(where, f"setpoint audit head={seq}:{seal} installation={settings.SETPOINT_INSTALLATION}")


def kept(*, last: int | None = None) -> list[str]:
    """`seq:seal` texts of the file, oldest first; of its end only, where `last` bytes are given. None: no file."""
    path = settings.SETPOINT_AUDIT_HEADS_FILE
    if not path or not Path(path).is_file():
        return []
    with Path(path).open("rb") as file:
        if last is not None:
            file.seek(max(0, file.seek(0, os.SEEK_END) - last))
        text = file.read().decode("ascii", "replace")
    return [f"{match[1]}:{match[2]}" for line in text.splitlines() if (match := LINE.fullmatch(line.strip()))]


def contradicted(heads: list[str]) -> Iterator[tuple[str, str]]:
    """(head, why) of each that is not in the chain."""
    seals_by_number = {int(head.partition(":")[0]): head.partition(":")[2] for head in heads}
    numbers = sorted(seals_by_number)
    stored: dict[int, str] = {}
    for start in range(0, len(numbers), 500):
        stored |= dict(Seal.objects.filter(seq__in=numbers[start : start + 500]).values_list("seq", "seal"))
    newest = Seal.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    for seq in numbers:
        if seq not in stored:
            cut = f"the last one found is {newest}: the tail was cut" if seq > newest else "it is missing"
            yield f"{seq}:{seals_by_number[seq]}", f"record {seq} was sealed, {cut}"
        elif not hmac.compare_digest(stored[seq], seals_by_number[seq]):
            yield f"{seq}:{seals_by_number[seq]}", f"record {seq} had another seal: history was rewritten"


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


class _Syslog(SysLogHandler):
    """Raises what it cannot send. The handler of the standard library prints it and returns."""

    def handleError(self, record: logging.LogRecord) -> None:
        if error := sys.exception():
            raise error


def _syslog(where: str, text: str) -> None:
    """`/dev/log`, `host:514` over UDP, or `tcp://host:601`."""
    kind = socket.SOCK_STREAM if where.startswith("tcp://") else socket.SOCK_DGRAM
    bare = where.removeprefix("tcp://").removeprefix("udp://")
    host, _, port = bare.rpartition(":")
    address = bare if bare.startswith("/") else (host, int(port))
    handler = _Syslog(address, facility=SysLogHandler.LOG_AUTHPRIV, socktype=None if bare[0] == "/" else kind)
    try:
        handler.emit(logging.LogRecord("audit", logging.INFO, "", 0, text, None, None))
    finally:
        handler.close()


@contextlib.contextmanager
def _logged(place: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        log.error("audit head not kept", place=place, error=str(error))
