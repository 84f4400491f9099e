"""Parsing of the text format: the good lines survive any input, and no value is made of a bad one."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gpus.metrics.findings import Findings
from gpus.metrics.samples import Code
from gpus.telemetry.exposition import MAX_LABEL, parse
from tests.gpus.scrapes import fixture, line


def read(text, **options):
    findings = Findings()
    return list(parse(text, findings=findings, **options)), {finding.code: finding.count for finding in findings.all()}


@pytest.mark.parametrize("name", ["classic", "base_units", "mig", "time_sliced", "vgpu", "blanks", "events"])
def test_it_reads_what_the_reference_parser_reads(name):
    untyped = "\n".join(text_line for text_line in fixture(name).splitlines() if not text_line.startswith("#")) + "\n"
    theirs = [  # with the types it would put `_total` behind the name of each counter
        (sample.name, sample.labels, float(sample.value))
        for family in text_string_to_metric_families(untyped)
        for sample in family.samples
    ]
    series, findings = read(fixture(name))
    assert [(point.name, dict(point.labels), point.value) for point in series] == theirs
    assert findings == {}


def test_escapes_times_and_free_spacing():
    text = 'm{a="x\\"y\\\\z\\n}, b=\\"",} 1.5e3 1700000000000\nbare 3\n  spaced { a = "b" } -0.5 \n# HELP m {\n\n'
    series, findings = read(text, exporter="ns/pod")
    assert [(point.name, dict(point.labels), point.value) for point in series] == [
        ("m", {"a": 'x"y\\z\n}, b="'}, 1500),
        ("bare", {}, 3),
        ("spaced", {"a": "b"}, -0.5),
    ]
    assert series[0].time == datetime.fromtimestamp(1_700_000_000, UTC)
    assert {point.exporter for point in series} == {"ns/pod"}
    assert findings == {}


@pytest.mark.parametrize(
    "bad",
    [
        "m{a=",
        'm{a="b"',
        'm{a="b} 1',
        'm{a="b"}',
        'm{a="b"} x',
        'm{a="b"} 1_000',
        'm{a="b"} 0x10',
        'm{a="b"} 1 2 3',
        'm{a="b"} 1 1.5',
        'm{a="b"} 1 99999999999999999999',
        'm{a="b",a="c"} 1',
        'm{a="b" b="c"} 1',
        'm}{a="b" 1',
        "{} 1",
        "9m 1",
        "m",
        "<html>502 Bad Gateway</html>",
        'm{a="' + "x" * 70_000 + '"} 1',
    ],
)
def test_one_bad_line_costs_itself(bad):
    series, findings = read(f"first 1\n{bad}\nlast 2\n")
    assert [(point.name, point.value) for point in series] == [("first", 1), ("last", 2)]
    assert findings == {Code.LINES_REFUSED: 1}


def test_a_last_line_without_its_end_is_not_believed():
    series, findings = read("a 98\nb 9")
    assert [point.name for point in series] == ["a"]
    assert findings == {Code.LINES_REFUSED: 1}


def test_a_label_that_is_too_long_is_left_out_and_its_series_stays():
    (point,), findings = read(line("m", 1, pod="p" * 10_240))
    assert "pod" not in point.labels
    assert point.labels["gpu"] == "0"
    assert findings == {Code.LABELS_TOO_LONG: 1}
    (point,), findings = read(line("m", 1, pod="p" * MAX_LABEL))
    assert (len(point.labels["pod"]), findings) == (MAX_LABEL, {})


def test_more_series_than_the_limit_are_not_read():
    series, findings = read("m 1\n" * 50, limit=20)
    assert len(series) == 20
    assert findings == {Code.SERIES_OVER_LIMIT: 1}


@given(st.text(alphabet='m{}=",\\ \n01.eE+-#ab\x00é', max_size=200))
def test_no_text_makes_it_raise(text):
    read(text)


def test_a_hostile_line_takes_no_longer_than_a_long_one():
    started = time.process_time()
    read('m{a="' + "\\" * 60_000 + "\n" + "m{" + 'a="",' * 10_000 + "}\n" + "m{" + " " * 60_000 + "\n")
    assert time.process_time() - started < 0.5
