"""The mark that each record carries from the process that wrote it: without the key none can be added.

HMAC-SHA256 over the record's whole content, with a key derived from SETPOINT_AUDIT_KEY, which is not in the database.
The sealer seals only what carries it; verification computes it again.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from datetime import UTC
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from django.conf import settings

if TYPE_CHECKING:  # models call this module
    from audit.models import Record

_PURPOSE = b"setpoint audit record, scheme 2"


def mark_of(record: Record) -> str:
    return mark(_PURPOSE, content(record))


def mark(purpose: bytes, values: Mapping[str, Any]) -> str:
    """Return the MAC of `values`, which takes the key to compute; a mark of one purpose is none of another."""
    key = hmac.new(settings.SETPOINT_AUDIT_KEY.encode(), purpose, sha256).digest()
    return hmac.new(key, canonical(values).encode(), sha256).hexdigest()


def is_right(record: Record) -> bool:
    return hmac.compare_digest(mark_of(record), record.mac)


def content(record: Record) -> dict[str, Any]:
    """Everything that the record says; its seal and its mark are no part of it."""
    return {
        "id": str(record.pk),
        "at": record.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "actor": record.actor,
        "action": record.action,
        "target": record.target,
        "target_name": record.target_name,
        "cluster_id": str(record.cluster_id or ""),
        "request_id": record.request_id,
        "message": record.message,
        "before": record.before,
        "after": record.after,
    }


def canonical(value: Any) -> str:
    return json.dumps(_with_whole_numbers(value), sort_keys=True, separators=(",", ":"))


def canonical_first(value: Any) -> str:
    """Return the canonical text that seals of the first scheme were computed over."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _with_whole_numbers(value: Any) -> Any:
    """A database may give 1.0 back as 1, and 1e20 as its digits: a whole number is written as one."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {str(key): _with_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_whole_numbers(item) for item in value]
    return value
