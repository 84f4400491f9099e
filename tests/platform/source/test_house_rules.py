"""The rules of tests/conftest.py and the counting of tests/run.py, tried on tests that break them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import _further_tests
from tests.run import Count, counted, how_busy, processor_time, slowest

ROOT = Path(__file__).resolve().parents[3]

BREAKERS = """
import socket, warnings
import pytest

def test_is_fine():
    pass

@pytest.mark.skip(reason="not today")
def test_skips():
    pass

@pytest.mark.skip(reason="needs hardware: two NUMA nodes")
def test_needs_hardware():
    pass

@pytest.mark.skip(reason="needs charts: none here")
def test_needs_charts():
    pass

def test_warns():
    warnings.warn("careful")

def test_leaves_this_machine():
    socket.create_connection(("192.0.2.1", 9), timeout=1)

def test_leaves_this_machine_and_hides_it():
    try:
        socket.getaddrinfo("example.com", 443)
    except Exception:
        pass

@pytest.mark.full
def test_is_of_the_full_tier():
    raise AssertionError
"""


def verdicts(folder: Path, *arguments: str, **environment: str) -> str:
    """Return pytest's output for BREAKERS under this suite's rules."""
    file = folder / "test_breakers.py"
    file.write_text(BREAKERS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:schemathesis",
        "-rA",
        "--no-header",
        *arguments,
        str(file),
    ]
    clean = {
        k: v for k, v in os.environ.items() if k not in ("CI", "TIER") and not k.startswith(("PYTEST", "SETPOINT"))
    }
    done = subprocess.run(
        command, cwd=ROOT, env=clean | environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout


@pytest.fixture(scope="module")
def on_a_laptop(tmp_path_factory: pytest.TempPathFactory) -> str:
    return verdicts(tmp_path_factory.mktemp("laptop"))


@pytest.fixture(scope="module")
def in_ci(tmp_path_factory: pytest.TempPathFactory) -> str:
    return verdicts(tmp_path_factory.mktemp("ci"), CI="true")


def test_a_laptop_skips_what_it_cannot_run_and_leaves_the_full_tier_out(on_a_laptop: str) -> None:
    assert "test_is_fine" in on_a_laptop
    assert "3 skipped" in on_a_laptop
    assert "1 deselected" in on_a_laptop


def test_ci_takes_a_skip_for_a_failure_but_for_hardware_and_real_charts(in_ci: str) -> None:
    assert "2 skipped" in in_ci
    assert "skipped, which CI=true counts as failed: not today" in in_ci


def test_nobody_leaves_this_machine_not_even_unnoticed(on_a_laptop: str) -> None:
    assert "socket.connect to 192.0.2.1" in on_a_laptop
    assert "left this machine: socket.getaddrinfo example.com" in on_a_laptop


def test_a_warning_is_an_error(on_a_laptop: str) -> None:
    assert "UserWarning: careful" in on_a_laptop


def test_the_full_tier_does_not_fall_back_to_sqlite_in_ci(tmp_path: Path) -> None:
    assert "test_is_fine" not in verdicts(tmp_path, "--full", CI="true")


def test_counts_are_read_from_the_report_and_a_run_that_died_has_failed(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(
        '<testsuites><testsuite tests="10" failures="2" errors="1" skipped="3"/></testsuites>'
    )
    (tmp_path / "cut.xml").write_text("<testsuites><testsuite")
    assert counted(tmp_path / "a.xml") == Count(passed=4, failed=3, skipped=3)
    assert counted(tmp_path / "cut.xml") == counted(tmp_path / "none.xml") == Count(failed=1)
    assert str(Count(4, 3, 3) + Count(1, 0, 0)) == "5 passed, 3 failed, 3 skipped"


def test_the_slowest_files_of_a_run_are_named_whether_their_tests_are_in_classes_or_not(tmp_path: Path) -> None:
    here = "tests.platform.source.test_house_rules"
    (tmp_path / "a.xml").write_text(
        f'<testsuites><testsuite><testcase classname="{here}" time="2"/><testcase classname="{here}.TestIt" time="3"/>'
        '<testcase classname="tests.run" time="4"/></testsuite></testsuites>'
    )
    assert slowest(tmp_path / "a.xml") == [(5, "tests/platform/source/test_house_rules.py"), (4, "tests/run.py")]
    assert slowest(tmp_path / "a.xml", 1) == [(5, "tests/platform/source/test_house_rules.py")]
    assert slowest(tmp_path / "none.xml") == []


@dataclass(frozen=True)
class Collected:
    """A test, as far as it is asked when one of each file is chosen."""

    nodeid: str
    marks: frozenset[str]
    path: Path = Path("tests/test_x.py")

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


@pytest.mark.parametrize("number", range(4))
def test_on_the_other_database_each_file_has_a_test_and_no_costly_one_where_it_has_another(number: int) -> None:
    names = [f"tests/test_x.py::test_{n}" for n in range(4)]
    rest = frozenset({"database"})
    tests: list[Any] = [Collected(name, rest | {"costly"} if n == number else rest) for n, name in enumerate(names)]
    costly = tests[number]
    is_asked_once: Any = Collected("x", rest | {"one_database"})

    assert len(_further_tests(tests)) == 3
    assert costly in _further_tests(tests)
    assert _further_tests([costly]) == set(), "a file that has no other keeps it"
    assert _further_tests([is_asked_once]) == set()


def test_a_run_says_how_busy_the_processors_were(tmp_path: Path) -> None:
    times = []
    for name, ticks in (("before", "100 10 50 800 40 0 0 0 7 7"), ("after", "160 10 70 810 50 0 0 0 7 7")):
        (tmp_path / name).write_text(f"cpu  {ticks}\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
        times.append(processor_time(tmp_path / name))
    assert times == [(160, 1000), (240, 1100)]
    assert how_busy(*times) == " with the processors busy for 80% of it"
    assert how_busy(processor_time(tmp_path / "none"), processor_time(tmp_path / "none")) == ""
