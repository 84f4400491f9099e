"""The page of what is covered keeps to its own counts; each row names a test that exists, or the reason for none."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SUMMARY, *GROUPS = re.split(r"^## ", (ROOT / "docs/coverage.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
STATES = ("works", "partly", "not")
HEAD = ["Phrase", "State", "Where", "Test", "What is missing"]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]


def rows(group: str) -> list[list[str]]:
    """Return the lines of a group's table, without its head and the line below it."""
    head, _, *body = [cells(line) for line in group.splitlines() if line.startswith("|")]
    assert head == HEAD
    return body


ROWS = [row for group in GROUPS for row in rows(group)]


def why_not(row: list[str]) -> str:
    """Return what is wrong with a row, as half a sentence; empty when nothing is."""
    if len(row) != len(HEAD):
        return f"has {len(row)} cells instead of {len(HEAD)}"
    phrase, state, where, test, missing = row
    if state not in STATES:
        return f"has the state “{state}”, which must be one of {', '.join(STATES)}"
    if not phrase or not where:
        return "lacks a phrase or a place"
    if state == "works":
        return f"works, and says what is missing: {missing}" if missing else _no_test(test)
    if not missing.endswith("."):
        return "does not say in a sentence what is missing"
    return "" if (state, test) == ("not", "–") else _no_test(test)


def _no_test(text: str) -> str:
    if not (named := re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)):
        return f"names no test as `path::function`: {text}"
    file = ROOT / named[1]
    source = file.read_text(encoding="utf-8") if file.is_file() else ""
    tests = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    return "" if named[2] in tests else f"names a test that is not there: {text}"


def test_each_row_has_a_state_a_test_that_exists_and_a_reason_where_it_does_not_work() -> None:
    assert len(GROUPS) == 5
    assert {row[0]: why for row in ROWS if (why := why_not(row))} == {}


def test_the_counts_at_the_top_are_those_of_the_rows() -> None:
    counts = {state: int(number) for state, number in re.findall(r"^\| (\w+) \| (\d+) \|", SUMMARY, re.MULTILINE)}
    assert counts == {state: Counter(row[1] for row in ROWS)[state] for state in STATES}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (["a", "mostly", "b", "–", "c."], "has the state"),
        (["a", "partly", "b", "`tests/platform/source/test_coverage_page.py::test_no_such`", "c."], "not there"),
        (["a", "works", "b", "–", ""], "names no test"),
        (["a", "not", "b", "–", ""], "does not say"),
        (["a", "works", "b"], "has 3 cells"),
    ],
)
def test_a_row_that_lacks_something_is_found(row: list[str], why: str) -> None:
    assert why in why_not(row)
