"""The table of the real charts in docs/components.md: every component that is installed, and how a run writes it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.components.charts.test_make_charts import charts
from tests.components.charts.test_real_archives import DEEP
from tests.full.harness.charts import cases, table
from tests.full.harness.charts.table import OPERATIONS, Notes

TEXT = table.DOCUMENT.read_text(encoding="utf-8")


def test_every_component_that_is_installed_has_a_row_in_which_nothing_failed():
    rows = table.read(TEXT)
    assert [row for row in rows if not all(float(row[name]) >= 0 for name in OPERATIONS)] == []
    tried = {case.name: case.versions for case in cases.CASES}
    assert {row["Component"]: row["Chart"] for row in rows} == tried


def test_every_component_is_tried_with_the_charts_that_are_fetched():
    fetched = {name: set(versions) for name, versions in charts.VERSIONS.items()}
    assert {case.name: {case.old, case.new} for case in cases.CASES}.items() <= fetched.items()


@pytest.mark.parametrize("helm", ["v3", "v4"])
def test_a_run_tries_those_that_the_main_job_installs_and_the_longest_one_tries_all(monkeypatch, helm):
    assert {case.name for case in cases.CASES} == DEEP
    monkeypatch.delenv("SETPOINT_ALL_CHARTS", raising=False)
    other = {case.name for case in cases.chosen("v4" if helm == "v3" else "v3")}
    chosen = {case.name for case in cases.chosen(helm)}
    assert chosen | other == {"cilium", "gpu-operator"}
    monkeypatch.setenv("SETPOINT_ALL_CHARTS", "1")
    assert len(cases.chosen(helm)) == len(cases.CASES)


def report(component: str, helm: str, *done: str, failed: str = "") -> SimpleNamespace:
    properties: list[tuple[str, object]] = []
    notes = Notes(lambda name, value: properties.append((name, value)), component, "1 → 2", helm)
    for name in done:
        with notes.operation(name):
            pass
    if failed:
        with pytest.raises(ZeroDivisionError), notes.operation(failed):
            raise ZeroDivisionError
    return SimpleNamespace(user_properties=[("other", 1), *properties], when="call")


def test_what_tests_note_becomes_rows_and_what_was_not_reached_is_empty():
    [first, second] = table.rows([report("b", "v3", "render", failed="install"), report("a", "v4", "render")])
    assert (first["Component"], second["Component"]) == ("a", "b")
    assert second == {"Component": "b", "Chart": "1 → 2", "helm": "v3", "render": "0.0", "install": "FAILED"}
    assert table.lines([second])[2].startswith("| b | 1 → 2 | v3 | 0.0 |  | FAILED |  |")


def test_a_run_replaces_its_own_rows_and_leaves_the_others():
    rows = table.rows([report("a", "v3", *OPERATIONS), report("b", "v3", *OPERATIONS)])
    text = table.merged(f"before\n{table.BEGIN}\n{table.END}\nafter\n", rows)
    again = table.merged(text, table.rows([report("b", "v3", "render"), report("b", "v4", "render")]))

    assert again.startswith("before\n")
    assert again.endswith("after\n")
    table_rows = table.read(again)
    assert [(row["Component"], row["helm"], row["install"]) for row in table_rows] == [
        ("a", "v3", "0.0"), ("b", "v3", ""), ("b", "v4", ""),
    ]  # fmt: skip


def test_a_document_without_a_place_for_the_table_is_refused():
    with pytest.raises(ValueError, match="no line"):
        table.read("nothing")
