"""Audit records as they are forwarded: whole, with their number and seal, and whether their mark still fits them.

Secrets were masked when the record was written (audit.services); nothing is added here that could hold one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from audit import macs
from audit.models import Record

INTACT, CHANGED, UNMARKED = "intact", "changed", "unmarked"


@dataclass(frozen=True, slots=True)
class Entry:
    at: datetime
    content: dict[str, Any]
    """JSON values: seq, id, at, actor, action, target, target_name, cluster_id, request_id, message, before, after,
    seal, integrity, is_shortened."""

    @property
    def seq(self) -> int:
        return int(self.content["seq"])

    def text(self) -> str:
        return json.dumps(self.content, ensure_ascii=False, separators=(",", ":"))

    def shortened(self, characters: int) -> Entry:
        """Return it without before and after, and with this much of its message. The record itself keeps all."""
        message = self.content["message"][:characters]
        return replace(
            self, content=self.content | {"message": message, "before": None, "after": None, "is_shortened": True}
        )


def entry_of(record: Record) -> Entry:
    return Entry(
        record.at,
        macs.content(record)
        | {
            "at": timestamp(record.at),
            "seq": record.seq,
            "seal": record.seal,
            "integrity": _integrity(record),
            "is_shortened": False,
        },
    )


def timestamp(at: datetime) -> str:
    """RFC 3339 in UTC, to the microsecond."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _integrity(record: Record) -> str:
    """A record that was changed after it was sealed is sent as it is, and marked: what it was is with those who have
    it already."""
    if not record.mac:
        return UNMARKED
    return INTACT if macs.is_right(record) else CHANGED


def fitting(entries: Sequence[Entry], most_bytes: int) -> list[Entry]:
    """Return the first of these that fit together, at least one."""
    size, out = 0, list[Entry]()
    for entry in entries:
        size += len(entry.text().encode())
        if out and size > most_bytes:
            break
        out.append(entry)
    return out
