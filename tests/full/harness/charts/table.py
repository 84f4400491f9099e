"""The table of the real charts: chart by version by helm by operation, with seconds, as a run of the tests found it.

A test notes each operation; the run prints the rows at its end. With SETPOINT_CHARTS_TABLE=write it also puts
them into docs/components.md, in place of the older rows of the same component and helm.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "components.md"
BEGIN, END = "<!-- charts: begin -->", "<!-- charts: end -->"
PROPERTY = "chart operation"
OPERATIONS = (
    "render", "fail", "install", "plan again", "drift", "repair", "upgrade", "revert", "remove", "bring back", "adopt",
    "give back",
)  # fmt: skip
"""In the order in which a test does them."""
HEAD = ("Component", "Chart", "helm", *OPERATIONS)
Row = dict[str, str]
_FAILED = "FAILED"


class Notes:
    """Notes of one component and helm, kept with the test's report."""

    def __init__(self, record: Callable[[str, object], None], component: str, chart: str, helm: str) -> None:
        self._record, self._where = record, (component, chart, helm)

    @contextmanager
    def operation(self, name: str) -> Iterator[None]:
        assert name in OPERATIONS
        began = time.monotonic()
        try:
            yield
        except BaseException as error:
            print(*self._where, name, _FAILED, error)
            self._record(PROPERTY, (*self._where, name, _FAILED))
            raise
        taken = f"{time.monotonic() - began:.1f}"
        self._record(PROPERTY, (*self._where, name, taken))
        print(*self._where, name, taken)


def rows(reports: Iterable[Any]) -> list[Row]:
    """Return the rows that these reports tell of, by component and helm."""
    by_key: dict[tuple[str, str], Row] = {}
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == PROPERTY and report.when == "call":
                component, chart, helm, operation, result = value
                row = by_key.setdefault((component, helm), {"Component": component, "Chart": chart, "helm": helm})
                row[operation] = result
    return [by_key[key] for key in sorted(by_key)]


def lines(table_rows: Iterable[Row]) -> list[str]:
    """Return the table as Markdown; an operation that was not reached is empty."""
    body = [[row.get(name) or "" for name in HEAD] for row in table_rows]
    return ["| " + " | ".join(cells) + " |" for cells in (HEAD, ["---"] * len(HEAD), *body)]


def read(text: str) -> list[Row]:
    """Return the rows of the document's table. Raises ValueError where it has no place for one."""
    inside = re.search(f"{re.escape(BEGIN)}\n(.*?){re.escape(END)}", text, re.DOTALL)
    if inside is None:
        raise ValueError(f"no line {BEGIN} with {END} below it")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in inside[1].splitlines()]
    return [dict(zip(HEAD, row, strict=True)) for row in cells[2:]]


def merged(text: str, table_rows: Iterable[Row]) -> str:
    """Return the document with these rows in place of those of the same component and helm."""
    every: Mapping[tuple[str, str], Row] = {(row["Component"], row["helm"]): row for row in (*read(text), *table_rows)}
    table = "\n".join([BEGIN, *lines(every[key] for key in sorted(every)), END])
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: table, text, flags=re.DOTALL)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, ())]
    if not (table_rows := rows(reports)):
        return
    terminalreporter.section("real charts: seconds of each operation")
    for line in lines(table_rows):
        terminalreporter.write_line(line)
    if os.environ.get("SETPOINT_CHARTS_TABLE") == "write":
        DOCUMENT.write_text(merged(DOCUMENT.read_text(encoding="utf-8"), table_rows), encoding="utf-8")
        terminalreporter.write_line(f"written to {DOCUMENT}")
