"""Charts' YAML means what it means to helm and Kubernetes."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.helm import client
from components.values import chart_yaml
from components.values.chart_yaml import BadChartYaml
from tests.components.packing import CHART, packed

DOUBTFUL = """\
list: [yes, on, n, Off, y, N, 0644, 0o644, 0x1F, -0b11, 0899, 1_000, 1e3, .5, +, ., 12:30, 2026-01-01, 1.2.3, ~, =,
  99999999999999999999999, 1., 0b, 0x, 00, -0, +5, 1__0, "1", 'yes', 0o8, 0O7, TRUE, tRue, 2026-01-01T00:00:00Z, 1e+3,
  1E5, 0x_1, 1.5e300, 12345678, 1234567.0, null, NULL, nUll, !!str 5, !!int "5", -.5e-3, +0x1f, 1_0.5]
y: 1
on: 2
5: 3
1.5: 4
0644: 6
a: &a {b: 1, c: [on, "on"]}
d: {<<: *a, b: 2}
text: |
  on
folded: >-
  1
"""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("on", True),
        ("n", False),
        ("Off", False),
        ("'yes'", "yes"),
        ('"1"', "1"),
        ("!!str 1", "1"),
        ("0644", 420),
        ("0o644", 420),
        ("0x1F", 31),
        ("-0b11", -3),
        ("0899", 899.0),
        ("1_000", 1000),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("+", "+"),
        (".", "."),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("1.2.3", "1.2.3"),
        ("~", None),
        ("99999999999999999999999", 1e23),
        ("9" * 65, "9" * 65),
        ("|\n  on\n", "on\n"),
    ],
)
def test_a_scalar_is_what_go_yaml_takes_it_for(text, value):
    loaded = chart_yaml.load(f"a: {text}")["a"]
    assert (loaded, type(loaded)) == (value, type(value))


def test_keys_are_text_as_in_json():
    assert chart_yaml.load("on: 1\n5: 2\n0644: 3\nx: 4") == {"true": 1, "5": 2, "420": 3, "x": 4}


def test_merge_keys_give_way_to_what_is_written_and_the_first_wins():
    text = "a: &a {x: 1, w: 1}\nb: &b {w: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 9\n"
    assert chart_yaml.load(text)["c"] == {"x": 9, "w": 1, "z": 2}


def test_documents_come_one_by_one_without_the_empty_ones():
    assert list(chart_yaml.documents("---\na: 1\n---\n# nothing\n---\nb: 2\n")) == [{"a": 1}, {"b": 2}]


def test_anchors_end_with_their_document():
    with pytest.raises(BadChartYaml, match=r"line 3: \*a refers to nothing"):
        list(chart_yaml.documents("a: &a 1\n---\nb: *a\n"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "line 2"),
        ("a: 1\n\tb: 2", "line 2"),
        ("~: 2", "a key is null"),
        ("? [1]\n: 2", "a key is a collection"),
        ("<<: 5", "<< wants a mapping"),
        ("a: &a\n  b: *a", "refers to nothing"),
        ("- " * 200 + "x", "deeper than 100"),
        ("a: 1\n---\nb: 1", "only one document"),
        (b"\xff\xff\xff", "line 1"),
        ("a: \x00", "line 1"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text, words):
    with pytest.raises(BadChartYaml, match=r"line [0-9]+: ") as raised:
        chart_yaml.load(text)
    assert words in str(raised.value)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    try:
        list(chart_yaml.documents(text))
    except BadChartYaml:
        pass


def test_helm_reads_the_same():
    """The program itself is asked, so that a doubt about YAML 1.1 is never settled from memory."""
    files = {
        "Chart.yaml": CHART,
        "doubtful.yaml": DOUBTFUL,
        "templates/a.yaml": 'a: {{ .Files.Get "doubtful.yaml" | fromYaml | toJson }}',
    }
    job = client.HelmJob("one", "space", deadline=time.monotonic() + 30)
    rendered = client.program().template(job, packed(files), {}, kube_version="v1.33.1").decode()
    assert chart_yaml.load(files["doubtful.yaml"]) == json.loads(rendered.partition("a: ")[2])
