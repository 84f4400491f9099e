"""YAML from people: what is read, and what is refused with its line."""

import time

import pytest

from common import yaml
from common.yaml import BadYaml


def test_values_that_yaml_1_1_would_twist_stay_text():
    data = yaml.load("a: no\nb: on\nc: 12:30\nd: 2026-01-01\ne: 0o17\nf: '5'\ng: 5\nh: 1.5\ni: ~\nj: true\n").data
    assert data == {
        "a": "no", "b": "on", "c": "12:30", "d": "2026-01-01", "e": 15, "f": "5", "g": 5, "h": 1.5, "i": None,
        "j": True,
    }  # fmt: skip


def test_every_key_and_item_knows_its_line():
    document = yaml.load("users:\n- name: a\n- name: b\n  user:\n    exec: {}\n")
    assert document.line("users", 1, "user", "exec") == 5
    assert document.line("users", 1, "user", "token") == 4  # nearest ancestor that is there
    assert yaml.dotted(("users", 1, "user", "exec")) == "users[1].user.exec"


def bomb() -> str:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 9) + "]" for i in range(1, 12)]
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (bomb(), 1, "anchors and aliases"),
        ("ok:\n" + " [\n" * 50_000, 33, "nested deeper"),
        ("ok: 1\n" + "[" * 100_000, 2, ""),
        ("a:\n" + "".join(" " * i + "k:\n" for i in range(1, 200)), 33, "nested deeper"),
        ("{" * 200_000, 1, ""),
        ("x: [" + "[]," * 60_000 + "]", 1, "more than 50,000 values"),
        ("x" * 300_000, 1, "at most 262,144"),
        (b"a: 1\nb: \xff\xfe", 2, "not UTF-8"),
        (b"\x7fELF\x02\x01\x01\x00\x00", 1, "character"),
        ("a: 1\nb: \x00", 2, "character"),
        ("a: 1\nb: [1, 2\nc: 3\n", 3, ""),
        ("a: 1\na: 2\n", 2, "given twice"),
        ("a: 1\n--- \nb: 2\n", 2, "only one document"),
        ("a: !!python/object/apply:os.system [id]", 1, "tag"),
        ("a: !!binary aGk=", 1, "tag"),
        ("x: 1\na: " + "9" * 5000, 2, "number"),
        ("? [a]\n: 1\n", 1, "key must be text"),
        ("\ud800: 1", 1, "not UTF-8"),
    ],
)
def test_hostile_text_is_refused_with_its_line_and_at_once(text, line, reason):
    began = time.monotonic()
    with pytest.raises(BadYaml) as refusal:
        yaml.load(text)
    assert refusal.value.line == line, str(refusal.value)
    assert reason in str(refusal.value)
    assert time.monotonic() - began < 2  # seconds; a bomb would take minutes


def test_nothing_is_an_empty_document():
    assert yaml.load("").data is None
    assert yaml.load("# only a comment\n").data is None
