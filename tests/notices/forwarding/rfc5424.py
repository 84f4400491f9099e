"""A strict reader of syslog over a stream, written from the ABNF of RFC 5424 (section 6) and RFC 6587 (3.4.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

NAME = rb"[!#-<>-\\^-~]{1,32}"  # PRINTUSASCII except =, space, ] and "
HEADER = re.compile(
    rb"<(?P<pri>0|[1-9][0-9]{0,2})>(?P<version>[1-9][0-9]{0,2})"
    rb" (?P<timestamp>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    rb"(?:Z|[+-][0-9]{2}:[0-9]{2}))"
    rb" (?P<host>[!-~]{1,255}) (?P<app>[!-~]{1,48}) (?P<process>[!-~]{1,128}) (?P<message>[!-~]{1,32}) "
)
ID = re.compile(rb"\[(" + NAME + rb")")
PARAMETER = re.compile(rb" (" + NAME + rb')="((?:[^"\\\]]|\\["\\\]])*)"', re.DOTALL)
BOM = b"\xef\xbb\xbf"


@dataclass
class Message:
    priority: int
    at: datetime
    host: str
    app: str
    kind: str
    data: dict[str, dict[str, str]]
    text: str


def messages(stream: bytes) -> list[bytes]:
    """Split octet-counted frames. Raises ValueError for a stream that ends within one."""
    out = []
    while stream:
        match = re.match(rb"([1-9][0-9]*) ", stream)
        if match is None:
            raise ValueError(f"no MSG-LEN at {stream[:20]!r}")
        end = match.end() + int(match[1])
        if len(stream) < end:
            raise ValueError("the stream ends within a message")
        out.append(stream[match.end() : end])
        stream = stream[end:]
    return out


def read(message: bytes) -> Message:
    header = HEADER.match(message)
    assert header, message[:200]
    assert int(header["pri"]) <= 191
    assert header["version"] == b"1"
    rest, data = message[header.end() :], {}
    assert rest.startswith(b"["), "there is structured data"
    while rest.startswith(b"["):
        element = ID.match(rest)
        assert element, rest[:100]
        rest, parameters = rest[element.end() :], {}
        while parameter := PARAMETER.match(rest):
            value = re.sub(rb'\\(["\\\]])', rb"\1", parameter[2])
            parameters[parameter[1].decode("ascii")] = value.decode("utf-8")
            rest = rest[parameter.end() :]
        assert rest.startswith(b"]"), rest[:100]
        rest = rest[1:]
        assert element[1] not in data, "an SD-ID comes once in a message"
        data[element[1].decode("ascii")] = parameters
    assert rest.startswith(b" " + BOM), "MSG in UTF-8 begins with the BOM"
    return Message(
        int(header["pri"]),
        datetime.fromisoformat(header["timestamp"].decode()),
        header["host"].decode(),
        header["app"].decode(),
        header["message"].decode(),
        data,
        rest[1 + len(BOM) :].decode("utf-8"),
    )
