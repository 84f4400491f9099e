"""Audit records as OpenTelemetry logs: OTLP over HTTP, in the JSON form of ExportLogsServiceRequest.

64-bit integers are decimal text and names are in lowerCamelCase, as the specification of the JSON form has it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings

from common.clock import now
from contract.names import RELEASE
from notices.forwarding.entries import CHANGED, Entry

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INFO, ERROR = 9, 17
"""SeverityNumber."""
_ATTRIBUTES = ("seq", "id", "actor", "action", "target", "target_name", "cluster_id", "request_id", "seal", "integrity")


def body(entries: Sequence[Entry]) -> bytes:
    resource = {
        "service.name": "setpoint",
        "service.version": RELEASE,
        "service.instance.id": settings.SETPOINT_INSTALLATION,
    }
    observed = _nanoseconds(now())
    request = {
        "resourceLogs": [
            {
                "resource": {"attributes": [_attribute(name, value) for name, value in resource.items()]},
                "scopeLogs": [
                    {
                        "scope": {"name": "setpoint.audit", "version": RELEASE},
                        "logRecords": [_record(entry, observed) for entry in entries],
                    }
                ],
            }
        ]
    }
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def rejected(answer: bytes) -> tuple[int, str]:
    """Return how many records a receiver that answered 200 refused, and why: (0, "") for none.

    What cannot be read counts as full success, as an empty body does: the status has acknowledged it.
    """
    try:
        partial = json.loads(answer).get("partialSuccess") or {}
        count = int(partial.get("rejectedLogRecords") or 0)
        return max(count, 0), str(partial.get("errorMessage") or "")[:300]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return 0, ""


def _record(entry: Entry, observed: str) -> dict[str, Any]:
    severity = (ERROR, "ERROR") if entry.content["integrity"] == CHANGED else (INFO, "INFO")
    named = {f"setpoint.audit.{name}": entry.content[name] for name in _ATTRIBUTES}
    return {
        "timeUnixNano": _nanoseconds(entry.at),
        "observedTimeUnixNano": observed,
        "severityNumber": severity[0],
        "severityText": severity[1],
        "body": {"stringValue": entry.text()},
        "attributes": [_attribute(name, value) for name, value in named.items() if value != ""],
    }


def _attribute(name: str, value: Any) -> dict[str, Any]:
    return {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}


def _nanoseconds(at: datetime) -> str:
    return str((at - EPOCH) // timedelta(microseconds=1) * 1000)
