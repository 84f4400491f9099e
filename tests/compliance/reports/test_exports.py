"""CSV and JSON of the lists: whole, streamed, under the same filters, and harmless in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from clusters.models import Node
from compliance.models import SettingState
from compliance.reports import exports, selectors
from tests.factories import TokenClient
from tests.jobs.conftest import World

LISTS = ("nodes", "settings", "changes", "outliers")


def fetch(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    assert answer.streaming
    return b"".join(answer.streaming_content).decode()


@pytest.fixture
def client(world: World) -> Client:
    world.run(world.started())
    client = Client()
    client.force_login(world.admin)
    return client


@pytest.mark.parametrize("name", LISTS)
def test_both_forms_hold_the_same_rows(client: Client, name: str) -> None:
    rows = list(csv.DictReader(io.StringIO(fetch(client, f"/compliance/{name}.csv"))))
    records = json.loads(fetch(client, f"/compliance/{name}.json"))
    assert len(rows) == len(records)
    assert all(row.keys() == record.keys() for row, record in zip(rows, records, strict=True))
    assert len(rows) == {"nodes": 3, "settings": 3, "changes": 6, "outliers": 0}[name]


def test_a_file_says_by_which_rollout(client: Client) -> None:
    assert {row["rollout"] for row in json.loads(fetch(client, "/compliance/settings.json"))} == {"R-1"}


def test_a_file_keeps_the_filters_and_refuses_a_wrong_one(client: Client) -> None:
    assert len(json.loads(fetch(client, "/compliance/nodes.json?name=n2&state=compliant"))) == 1
    assert json.loads(fetch(client, "/compliance/nodes.json?state=drifted")) == []
    for wrong in ("state=sunny", "nmae=n2", "pool=x", "outlier=99999999999999999999"):
        assert client.get(f"/compliance/nodes.json?{wrong}").status_code == 422, wrong


@pytest.mark.parametrize("text", ["=1+1", "+1", "-2+3", "@SUM(A1)", "\tx", "\rx", '=HYPERLINK("http://x","y")'])
def test_a_cell_that_begins_like_a_formula_does_not(text: str) -> None:
    assert exports.cell(text) == f"'{text}"


def test_a_hostile_value_from_a_node_reaches_no_formula(client: Client, world: World) -> None:
    SettingState.objects.filter(node=world.node("n1")).update(effective="=cmd|'/c calc'!A0", reason='+1","@x')
    rows = list(csv.DictReader(io.StringIO(fetch(client, "/compliance/settings.csv"))))
    hostile = next(row for row in rows if row["node"] == "n1")
    assert hostile["effective"] == "'=cmd|'/c calc'!A0"
    assert not any(cell.startswith(exports.FORMULA) for row in rows for cell in row.values())


@given(st.one_of(st.text(), st.integers(), st.none(), st.lists(st.text())))
def test_no_value_whatever_begins_a_formula(value: Any) -> None:
    cell = exports.cell(value)
    assert not cell.startswith(exports.FORMULA) or isinstance(value, int)


@given(st.lists(st.fixed_dictionaries({"a": st.text(), "b": st.none() | st.text() | st.integers()}), max_size=5))
def test_both_forms_parse_back_to_what_was_told(records: list[dict[str, Any]]) -> None:
    """JSON to the same values; CSV to their text, but for the apostrophe that keeps a cell from being a formula."""

    class Rows:
        """One part of a list."""

        def order_by(self, _key: str) -> list[dict[str, Any]]:
            return records

    kind = exports.ExportKind(("a", "b"), list)
    rows: Any = Rows()
    assert json.loads("".join(exports._json(kind, rows))) == records
    read = list(csv.DictReader(io.StringIO("".join(exports._csv(kind, rows)), newline="")))
    assert [{name: _unquoted(text) for name, text in row.items()} for row in read] == [
        {name: "" if value is None else str(value) for name, value in record.items()} for record in records
    ]


def _unquoted(text: str) -> str:
    return text[1:] if text[:1] == "'" and text[1:].startswith(exports.FORMULA) else text


def test_a_long_list_is_read_in_parts_and_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "PART", 7)
    rows = [Node(cluster=world.cluster, uid=f"x{n}", name=f"x{n:02}") for n in range(47)]
    Node.objects.bulk_create(rows)
    with CaptureQueriesContext(connection) as seen:
        answer = exports.answer("nodes", selectors.nodes(world.admin), "csv")
        text = b"".join(answer.streaming_content).decode()  # type: ignore[arg-type]
    assert text.count("\n") == 1 + 3 + 47
    assert len(seen) <= 2 * (50 // 7 + 1) + 2  # two a part (its nodes, what weakens them), and the reader's roles


def test_programs_get_the_same_file(client: Client, world: World) -> None:
    token = TokenClient(world.admin)
    for name in LISTS:
        answer = token.get(f"/api/v1/compliance/{name}/export")
        assert answer["Content-Type"] == "text/csv; charset=utf-8"
        assert answer["Content-Disposition"].startswith(f'attachment; filename="setpoint-{name}-')
        assert b"".join(answer.streaming_content).decode() == fetch(client, f"/compliance/{name}.csv")
    assert json.loads(fetch(token, "/api/v1/compliance/nodes/export?as=json&name=n2"))[0]["node"] == "n2"
    for wrong in ("as=xml", "limit=3", "ordering=name", "fields=name", "sate=drifted"):
        assert token.get(f"/api/v1/compliance/nodes/export?{wrong}").status_code in (400, 422), wrong
