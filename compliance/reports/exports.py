"""Lists as files: CSV for spreadsheets, JSON for programs; streamed by key, so that memory holds one part at a time."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model, QuerySet
from django.http import StreamingHttpResponse

from common.clock import now
from compliance.models import Outlier, SettingChange
from compliance.reports import security, selectors

PART = 1000
"""Rows read at once: about a megabyte."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet takes for the beginning of a formula; such a cell gets an apostrophe before it."""

Record = Mapping[str, Any]


class ExportKind(NamedTuple):
    columns: Sequence[str]
    records: Callable[[Sequence[Any]], Iterable[Record]]
    """From a part's rows."""


def answer(name: str, rows: QuerySet[Any], form: str, kind: ExportKind | None = None) -> StreamingHttpResponse:
    """The whole list as `csv` or `json`; `kind`: of a list of another room. Keeps the filters of `rows`, not their
    order: parts are read by key."""
    kind = kind or KINDS[name]
    stamp = f"{now():%Y-%m-%dT%H%M%SZ}"
    if form == "csv":
        body, content_type = _csv(kind, rows), "text/csv; charset=utf-8"
    else:
        body, content_type = _json(kind, rows), "application/json"
    response = StreamingHttpResponse(body, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="setpoint-{name}-{stamp}.{form}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _parts(rows: QuerySet[Model]) -> Iterator[list[Any]]:
    last: Any = None
    while True:
        part = list((rows if last is None else rows.filter(pk__gt=last)).order_by("pk")[:PART])
        if part:
            yield part
        if len(part) < PART:
            return
        last = part[-1].pk


class _Echo:
    """Write target of csv.writer that returns each line instead of keeping it."""

    def write(self, text: str) -> str:
        return text


def _csv(kind: ExportKind, rows: QuerySet[Model]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(kind.columns)
    for part in _parts(rows):
        yield "".join(writer.writerow([cell(record[name]) for name in kind.columns]) for record in kind.records(part))


def cell(value: object) -> str:
    """A CSV cell that no spreadsheet runs. Numbers stay numbers, negative ones, too."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return str(value)
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def _json(kind: ExportKind, rows: QuerySet[Model]) -> Iterator[str]:
    """One list; a record a line, so that a cut file is seen and a line can be read by itself."""
    yield "["
    separator = "\n"
    for part in _parts(rows):
        lines = (json.dumps(dict(record), cls=DjangoJSONEncoder, ensure_ascii=False) for record in kind.records(part))
        yield separator + ",\n".join(lines)
        separator = ",\n"
    yield "\n]\n"


# ── what each list holds ──────────────────────────────────────────────────────────────────────────────────────────────
def _of_nodes(rows: Sequence[selectors.ShownNode]) -> Iterator[Record]:
    weakening = security.of_nodes(node.pk for node in rows)
    for node in rows:
        standing, target = getattr(node, "standing", None), selectors.target_of(node)
        expectation = getattr(node, "expectation", None)
        expected = expectation.revision if expectation else None
        yield {
            "cluster": node.cluster.name,
            "node": node.name,
            "node_uid": node.uid,
            "pool": standing.pool.name if standing and standing.pool else "",
            "state": node.shown,
            "reason": why(node),
            "since": _instant(standing.since) if standing else "",
            "target": str(target) if target else "",
            "expected": str(expected) if expected else "",
            "settings": standing.settings if standing else 0,
            "drifted": standing.drifted if standing else 0,
            "pending": standing.pending if standing else 0,
            "weakening": weakening.get(node.pk, 0),
        }


def why(node: selectors.ShownNode) -> str:
    """Return why a node of `selectors.nodes` has its state; empty for a compliant one."""
    standing = getattr(node, "standing", None)
    if node.shown == "unknown" and (standing is None or standing.state != "unknown"):
        if unknown := node.cluster.why_unknown:
            return unknown
        since = node.tuning.silence(node.cluster) if hasattr(node, "tuning") else None
        return f"Agent silent since {since:%Y-%m-%d %H:%M} UTC." if since else "Agent silent."
    return standing.reason if standing else ""


def _of_settings(rows: Sequence[selectors.ShownSetting]) -> Iterator[Record]:
    numbers = selectors.rollout_numbers(row.rollout_id for row in rows)
    for row in rows:
        yield {
            "cluster": row.node.cluster.name,
            "node": row.node.name,
            "key": row.key,
            "state": row.shown,
            "operator": row.operator,
            "desired": row.desired,
            "written": row.written,
            "effective": row.effective,
            "original": row.original,
            "cause": row.cause,
            "won_by": row.won_by,
            "reason": row.reason,
            "since": _instant(row.since),
            "rollout": _named(numbers, row.rollout_id),
            "weakens_security": ", ".join(row.weak.sides),
        }


def _of_changes(rows: Sequence[SettingChange]) -> Iterator[Record]:
    numbers = selectors.rollout_numbers(row.rollout_id for row in rows)
    for row in rows:
        yield {
            "at": _instant(row.at),
            "cluster": row.node.cluster.name,
            "node": row.node.name,
            "key": row.key,
            "state": row.state,
            "operator": row.operator,
            "desired": row.desired,
            "effective": row.effective,
            "cause": row.cause,
            "won_by": row.won_by,
            "reason": row.reason,
            "rollout": _named(numbers, row.rollout_id),
            "weakens_security": ", ".join(row.weak.sides),
        }


def _of_outliers(rows: Sequence[Outlier]) -> Iterator[Record]:
    for row in rows:
        yield {
            "cluster": row.cluster.name,
            "pool": row.pool.name if row.pool else "",
            "peers": row.peers,
            "key": row.key,
            "usual": row.usual,
            "usual_nodes": row.usual_nodes,
            "count": row.count,
            "values": row.values,
            "since": _instant(row.since),
        }


def _instant(value: datetime) -> str:
    return value.isoformat(timespec="seconds").replace("+00:00", "Z")


def _named(numbers: Mapping[Any, int], rollout_id: Any) -> str:
    return f"R-{numbers[rollout_id]}" if rollout_id in numbers else ""


_SETTING = ("cluster", "node", "key", "state", "operator", "desired", "written", "effective", "original")
_WHY = ("cause", "won_by", "reason")
KINDS: Mapping[str, ExportKind] = {
    "nodes": ExportKind(
        ("cluster", "node", "node_uid", "pool", "state", "reason", "since", "target", "expected", "settings", "drifted",
         "pending", "weakening"),
        _of_nodes,
    ),
    "settings": ExportKind((*_SETTING, *_WHY, "since", "rollout", "weakens_security"), _of_settings),
    "changes": ExportKind(
        ("at", "cluster", "node", "key", "state", "operator", "desired", "effective", *_WHY, "rollout",
         "weakens_security"),
        _of_changes,
    ),
    "outliers": ExportKind(
        ("cluster", "pool", "peers", "key", "usual", "usual_nodes", "count", "values", "since"), _of_outliers
    ),
}  # fmt: skip
