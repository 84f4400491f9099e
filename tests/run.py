"""Runs the tiers and closes with one count: `python -m tests.run fast|node|full [pytest arguments]`.

fast  SQLite, the simulated fleet; no root, no server, two processes.
node  what needs a machine with a kernel, a boot loader and a kubelet of its own, which QEMU runs.
full  fast; again on PostgreSQL what asks the database; then what needs real servers, a file at a time in each of two
      processes.

A single run closes with pytest's own line. Several runs say which files took longest and how busy the cores were, and
close with one plain line that adds them up.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NODE = ("--full", "tests/node", "-v")
"""One test at a time: a machine that is emulated wants both cores."""
NO_TESTS = 5  # pytest's exit status when nothing was collected
SLOWEST = 15
"""Files of a run that are named with their seconds."""


@dataclass(frozen=True)
class Count:
    """Counts of one pytest run; an error (in a fixture, in collecting) is a failure."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def counted(report: Path) -> Count:
    """Read the counts from a JUnit file; missing or broken, the run died, which is one failure."""
    try:
        suites = list(ET.parse(report).getroot().iter("testsuite"))
    except (OSError, ET.ParseError):
        return Count(failed=1)
    total = sum(int(suite.get("tests", 0)) for suite in suites)
    failed = sum(int(suite.get("failures", 0)) + int(suite.get("errors", 0)) for suite in suites)
    skipped = sum(int(suite.get("skipped", 0)) for suite in suites)
    return Count(max(0, total - failed - skipped), failed, skipped)


def slowest(report: Path, count: int = SLOWEST) -> list[tuple[float, str]]:
    """Return the files whose tests took longest, with seconds on the wall, from a JUnit file; none of a broken one."""
    seconds: Counter[str] = Counter()
    try:
        cases = list(ET.parse(report).getroot().iter("testcase"))
    except (OSError, ET.ParseError):
        return []
    for case in cases:
        seconds[_file(case.get("classname", ""))] += float(case.get("time", 0))
    return [(spent, file) for file, spent in seconds.most_common(count)]


def _file(classname: str) -> str:
    """Return the file of `tests.demo.test_history.TestHistory`."""
    parts = classname.split(".")
    while len(parts) > 1 and not Path(ROOT, *parts).with_suffix(".py").is_file():
        parts.pop()
    return "/".join(parts) + ".py"


def _cpu_seconds() -> float:
    """Return what all processes took that this one has started and seen end."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def pytest_run(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None, report: Path | None = None
) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    if report:
        command += [f"--junit-xml={report}"]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **(environment or {})}, check=False).returncode


def several(runs: Mapping[str, tuple[Sequence[str], Mapping[str, str]]]) -> int:
    """Each run in turn, all of them even when one fails; then what each counted, then the sum."""
    counts: dict[str, Count] = {}
    worst = 0
    with tempfile.TemporaryDirectory(prefix="setpoint-tests-") as folder:
        for number, (name, (arguments, environment)) in enumerate(runs.items()):
            print(f"\n──── {name} ────", flush=True)
            report = Path(folder, f"{number}.xml")
            began, used = time.monotonic(), _cpu_seconds()
            status = pytest_run(arguments, environment, report)
            took, used = time.monotonic() - began, _cpu_seconds() - used
            print(f"\n{name} took {took:.0f} s, of {os.cpu_count()} cores {used / took:.1f}; its slowest files:")
            print("\n".join(f"{spent:7.0f} s  {file}" for spent, file in slowest(report)), flush=True)
            counts[name] = counted(report)
            if status and not counts[name].failed:  # a crash or nothing collected is no success
                counts[name] += Count(failed=1)
            worst = worst or status
    print()
    for name, count in counts.items():
        print(f"{name} tier counted {count}")
    print(sum(counts.values(), Count()), flush=True)
    return worst


def full(arguments: Sequence[str]) -> int:
    """All three runs; given paths or -k, only the full tier's own run on PostgreSQL."""
    from tests.full.harness.servers import Postgres

    with Postgres() as postgres:
        database = {"SETPOINT_TEST_DATABASE_URL": os.environ.get("SETPOINT_TEST_DATABASE_URL") or postgres.url}
        if arguments:
            return pytest_run(["--full", *arguments], database)
        return several(
            {
                "fast, on SQLite,": (["-n2"], {"TIER": "fast"}),
                "fast, on PostgreSQL,": (["-n2", "-m", "database and not one_database"], {"TIER": "fast", **database}),
                "full": (["--full", "-m", "full", "-n2", "-v"], database),
            }
        )


def node(arguments: Sequence[str]) -> int:
    from tests.full.harness.servers import Postgres

    with Postgres() as postgres:
        return pytest_run([*NODE, *arguments], {"SETPOINT_TEST_DATABASE_URL": postgres.url})


def main(tier: str, arguments: Sequence[str]) -> int:
    if tier == "full":
        return full(arguments)
    if tier == "node":
        return node(arguments)
    if tier == "fast":
        return pytest_run(arguments or ["-n2"], {"TIER": "fast"})
    print(f"TIER must be fast, node or full, not {tier!r}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "fast", sys.argv[2:]))
