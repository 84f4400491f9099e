"""The list of guards stays true, and what takes them away tells noticing from crashing."""

from __future__ import annotations

import importlib.util
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_spec = importlib.util.spec_from_file_location("setpoint_guards", ROOT / "tools" / "guards.py")
guards = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = guards  # or its dataclasses cannot find their module
_spec.loader.exec_module(guards)

GUARD = guards.Guard(1, "x", "a.py", "if a:", "if False:", ("tests/a/test_b.py::test_c",))


def case(name: str, kind: str = "", message: str = "") -> ET.Element:
    element = ET.Element("testcase", classname="tests.a.test_b", name=name)
    if kind:
        ET.SubElement(element, kind, message=message)
    return element


def test_each_guards_text_stands_once_in_its_file_and_each_named_test_exists() -> None:
    texts = {g.file: (ROOT / g.file).read_text() for g in guards.read()}
    for guard in guards.read():
        guard.removed_from(texts[guard.file])
        for test in guard.tests:
            file, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), test


def test_every_law_has_guards_and_none_is_listed_twice() -> None:
    listed = guards.read()
    assert {guard.law for guard in listed} == set(range(1, 16))
    assert len({(guard.file, guard.old, guard.new) for guard in listed}) == len(listed)


def test_the_page_of_the_laws_lists_what_is_listed() -> None:
    text = guards.PAGE.read_text()
    assert [int(number) for _, number, _ in guards.TABLE.findall(text)] == list(range(1, 16))
    assert guards.page(text, guards.read()) == text, "run: python tools/guards.py --write"


def test_a_guard_whose_text_is_gone_or_there_twice_is_no_guard() -> None:
    assert GUARD.removed_from("if a:\n    b()\n") == "if False:\n    b()\n"
    for text in ("if b:\n", "if a:\nif a:\n"):
        with pytest.raises(guards.BadList, match="not once"):
            GUARD.removed_from(text)


@pytest.mark.parametrize(
    ("cases", "noticed"),
    [
        ([case("test_c", "failure", "AssertionError: assert 1 == 2")], True),
        ([case("test_c[a]", "failure", "assert 1 == 2"), case("test_c[b]")], True),
        ([case("test_c", "failure", "Failed: DID NOT RAISE <class 'ValueError'>")], True),
        ([case("test_c")], False),
        ([], False),
        ([case("test_c", "failure", "NameError: name 'x' is not defined")], False),
        ([case("test_c", "error", "collection failure")], False),
        ([case("test_cd", "failure", "assert 1 == 2")], False),
    ],
)
def test_only_a_failed_assertion_in_the_named_test_is_noticing(cases: list[ET.Element], noticed: bool) -> None:
    assert guards.result_of(GUARD, cases, "what was printed").noticed is noticed


def test_every_named_test_must_notice() -> None:
    both = guards.Guard(1, "x", "a.py", "a", "b", ("tests/a/test_b.py::test_c", "tests/a/test_b.py::test_d"))
    failed = case("test_c", "failure", "assert 1 == 2")
    assert not guards.result_of(both, [failed, case("test_d")], "").noticed
    assert guards.result_of(both, [failed, case("test_d", "failure", "assert 3")], "").noticed
