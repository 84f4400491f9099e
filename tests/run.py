"""Runs the tiers and closes with one count: `python -m tests.run fast|node|full|all [pytest arguments]`.

fast  SQLite, the simulated fleet; no root, no server, two processes.
node  what needs a machine with a kernel, a boot loader and a kubelet of its own, which QEMU runs.
full  fast, with one test of each file that asks the database; on PostgreSQL one case of each test that asks the
      database, of the engine all; node beside both, but for what is marked long; then one case of each test that needs
      real servers, a file at a time in each of three processes.
all   The same, and nothing is left out: each case on both databases and with both helms, each real chart. Hours.

A single run closes with pytest's own line. Several runs say which files took longest, and
close with one plain line that adds them up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
NODE = ("--full", "tests/node", "-v")
"""One test at a time: a machine that is emulated wants both cores."""
TWO = ("-n2",)
"""Two processes. Each gets files in the order of their collection, in which tests that empty the tables come last."""
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


@dataclass(frozen=True)
class Run:
    """One run of pytest. An early one begins before all others, and its output is printed in its turn."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    is_early: bool = False

    def begin(self, report: Path | None = None, output: IO[str] | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pytest", *self.arguments]
        if report:
            command += [f"--junit-xml={report}"]
        environment = {**os.environ, **self.environment}
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output, text=True)

    def __call__(self) -> int:
        return self.begin().wait()


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


def processor_time(stat: Path = Path("/proc/stat")) -> tuple[int, int]:
    """Return the ticks since the start that this machine's processors worked, and all; zeros where none are counted."""
    try:
        ticks = [int(count) for count in stat.read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0, 0
    idle = sum(ticks[3:5])  # idle, and waiting for a disk
    return sum(ticks) - idle, sum(ticks)


def how_busy(before: tuple[int, int], after: tuple[int, int]) -> str:
    """Return a clause that says whether a run had too few processes or too few processors."""
    worked, passed = (late - early for early, late in zip(before, after, strict=True))
    return f" with the processors busy for {worked / passed:.0%} of it" if passed else ""


def several(runs: Mapping[str, Run]) -> int:
    """Each run in turn, all of them even when one fails; then what each counted, then the sum."""
    counts: dict[str, Count] = {}
    worst = 0
    with tempfile.TemporaryDirectory(prefix="setpoint-tests-") as folder:
        files = {name: Path(folder, str(number)) for number, name in enumerate(runs)}
        begun: dict[str, subprocess.Popen[str]] = {}
        for name, run in runs.items():
            if run.is_early:
                with files[name].with_suffix(".log").open("w") as output:
                    begun[name] = run.begin(files[name].with_suffix(".xml"), output)
        try:
            for name, run in runs.items():
                print(f"\n──── {name} ────", flush=True)
                report = files[name].with_suffix(".xml")
                began, before = time.monotonic(), processor_time()
                process = begun.pop(name, None) or run.begin(report)
                status = process.wait()
                if run.is_early:
                    print(files[name].with_suffix(".log").read_text(errors="replace"), flush=True)
                busy = how_busy(before, processor_time())
                print(f"\n{name} took another {time.monotonic() - began:.0f} s{busy}; its slowest files:")
                print("\n".join(f"{spent:7.0f} s  {file}" for spent, file in slowest(report)), flush=True)
                counts[name] = counted(report)
                if status and not counts[name].failed:  # a crash or nothing collected is no success
                    counts[name] += Count(failed=1)
                worst = worst or status
        finally:
            for process in begun.values():
                process.terminate()
    print()
    for name, count in counts.items():
        print(f"{name} tier counted {count}")
    print(sum(counts.values(), Count()), flush=True)
    return worst


@contextmanager
def database_server() -> Iterator[dict[str, str]]:
    """Yield the environment of runs on PostgreSQL: on the server that is named in ours, or on one of our own.

    Ours begins with a migrated database, of which each test process makes a copy: migrating takes each 12 seconds.
    """
    from tests.full.harness.servers import Postgres

    if url := os.environ.get("SETPOINT_TEST_DATABASE_URL"):
        yield {"SETPOINT_TEST_DATABASE_URL": url}
        return
    command = [sys.executable, "-m", "tests.full.harness.migrated"]
    made = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    with Postgres(Path(made) if made else None) as postgres:
        template = {"SETPOINT_TEST_TEMPLATE": postgres.url.rpartition("/")[2]} if made else {}
        yield {"SETPOINT_TEST_DATABASE_URL": postgres.url, **template}


def full(arguments: Sequence[str], *, is_all: bool = False) -> int:
    """All four runs; given paths or -k, only the full tier's own run on PostgreSQL.

    The node tier runs beside the fast ones: it mostly waits for a machine to boot, and they look at no clock.
    """
    with database_server() as database:
        if arguments:
            return Run(["--full", *arguments], database)()
        both = "database and not one_database"
        asks, real = ("-m", both), ("--full", "-n3", "-v")
        if is_all:
            database |= {"SETPOINT_ALL_CHARTS": "1"}
            return several(
                {
                    "fast, on SQLite,": Run(TWO, {"TIER": "fast"}),
                    "fast, on PostgreSQL,": Run([*TWO, *asks], {"TIER": "fast", **database}),
                    "node": Run(NODE, database),
                    "full": Run([*real, "-m", "full"], database),
                }
            )
        # Most cases of a parametrized test are other words to refuse, not other queries: one of each is enough where
        # its author does not say that every case counts. And the database that production has shows nearly all that
        # another one would. The author of a change runs the fast tier, which has all of both.
        # Of the node tier, only long tests are about more than one processor.
        return several(
            {
                "fast, on SQLite,": Run([*TWO, "--cases=1", "--one-of-each-file"], {"TIER": "fast"}),
                "fast, on PostgreSQL,": Run([*TWO, *asks, "--cases=1"], {"TIER": "fast", **database}),
                "node": Run([*NODE, "-m", "not long"], {"SETPOINT_NODE_PROCESSORS": "1", **database}, is_early=True),
                "full": Run([*real, "-m", "full and not long", "--cases=1"], database),
            }
        )


def node(arguments: Sequence[str]) -> int:
    with database_server() as database:
        return Run([*NODE, *arguments], database)()


def main(tier: str, arguments: Sequence[str]) -> int:
    if tier in ("full", "all"):
        return full(arguments, is_all=tier == "all")
    if tier == "node":
        return node(arguments)
    if tier == "fast":
        return Run(arguments or TWO, {"TIER": "fast"})()
    print(f"TIER must be fast, node, full or all, not {tier!r}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "fast", sys.argv[2:]))
