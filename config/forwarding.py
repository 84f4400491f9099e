"""Reading of SETPOINT_AUDIT_FORWARD: where audit records are sent, whole or not at all."""

from __future__ import annotations

import re
from typing import Any

from common import yaml
from config.env import BadEnvironment
from notices.forwarding.destinations import (
    FIRST,
    KINDS,
    NOW,
    OTLP,
    SHORTEST_SECRET,
    SYSLOG,
    WEBHOOK,
    Destination,
    objection,
)  # fmt: skip

NAME = "SETPOINT_AUDIT_FORWARD"
MOST = 10
FORM = '[{"name": "siem", "kind": "syslog", "url": "tls://siem.example.com:6514"}, …]'
TEXTS = {
    SYSLOG: {"name", "kind", "url", "begin", "ca", "certificate", "key"},
    OTLP: {"name", "kind", "url", "begin", "ca", "certificate", "key"},
    WEBHOOK: {"name", "kind", "url", "begin", "ca", "secret"},
}
OTHERS = {SYSLOG: {"enterprise"}, OTLP: {"headers"}, WEBHOOK: set[str]()}
_WORD = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e]{1,4000}")


def destinations(text: str) -> tuple[Destination, ...]:
    """Return the destinations of a YAML or JSON list. Raises BadEnvironment naming item and field, never a value that
    may be a secret."""
    if not text.strip():
        return ()
    try:
        rows = yaml.load(text).data
    except yaml.BadYaml as error:
        raise BadEnvironment(f"{NAME} cannot be read: {type(error).__name__}. It is a list such as {FORM}") from None
    if not isinstance(rows, list) or len(rows) > MOST:
        raise BadEnvironment(f"{NAME} must be a list of at most {MOST} destinations, such as {FORM}")
    read = tuple(_row(f"{NAME}[{index}]", row) for index, row in enumerate(rows))
    names = [row.name for row in read]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadEnvironment(f"{NAME} names {twice[0]} twice; each has a cursor of its own")
    return read


def _row(where: str, row: Any) -> Destination:
    if not isinstance(row, dict):
        raise BadEnvironment(f"{where} must have name, kind and url, as in {FORM}")
    kind = row.get("kind")
    if kind not in KINDS:
        raise BadEnvironment(f"{where}.kind must be {', '.join(KINDS)}")
    if unknown := sorted(set(map(str, row)) - TEXTS[kind] - OTHERS[kind]):
        known = ", ".join(sorted(TEXTS[kind] | OTHERS[kind]))
        raise BadEnvironment(f"{where}.{unknown[0]} is unknown: {kind} has {known}")
    for part in sorted(TEXTS[kind] & set(row)):
        if not isinstance(row[part], str):
            raise BadEnvironment(f"{where}.{part} must be text")
    name, url, begin = row.get("name", ""), row.get("url", ""), row.get("begin", FIRST)
    if not _WORD.fullmatch(name):
        raise BadEnvironment(f"{where}.name must be at most 40 lowercase letters, digits and hyphens")
    if why := objection(kind, url):
        raise BadEnvironment(f"{where}.url {why}")
    if begin not in (FIRST, NOW):
        raise BadEnvironment(f"{where}.begin must be {FIRST} or {NOW}, not {begin!r}")
    if bool(row.get("certificate")) != bool(row.get("key")):
        raise BadEnvironment(f"{where}.certificate and key are given together, or neither")
    if kind == WEBHOOK and len(row.get("secret", "")) < SHORTEST_SECRET:
        raise BadEnvironment(f"{where}.secret must have at least {SHORTEST_SECRET} characters")
    texts = {part: row[part] for part in TEXTS[kind] & set(row)}
    return Destination(**texts, **_others(where, row))


def _others(where: str, row: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if "enterprise" in row:
        number = row["enterprise"]
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 2**32:
            raise BadEnvironment(f"{where}.enterprise must be a private enterprise number, which IANA assigns")
        out["enterprise"] = number
    if "headers" in row:
        headers = row["headers"]
        if not isinstance(headers, dict):
            raise BadEnvironment(f"{where}.headers must be a mapping of names to values")
        for name, value in headers.items():
            if not _HEADER.fullmatch(str(name)) or str(name).lower() in ("content-type", "content-length", "host"):
                raise BadEnvironment(f"{where}.headers: {str(name)[:40]!r} cannot be set")
            if not isinstance(value, str) or not _VALUE.fullmatch(value):
                raise BadEnvironment(f"{where}.headers.{name} must be printable ASCII text")
        out["headers"] = tuple(sorted(headers.items()))
    return out
