"""Takes guards away, one at a time, and sees whether the tests notice: `make guards`, or `make guards LAW=5`.

tests/guards.yaml lists, law by law, what protects it: the text in the code, what stands there without the guard, and
the tests that must fail then. It all happens in a copy of the working tree. A guard counts as noticed when in each
named test an assertion fails; a test that crashes, cannot be collected or does not end has noticed nothing.

Ends with 1 if a guard can be taken away unnoticed, or if an entry does not fit the code.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "guards.yaml"
PAGE = ROOT / "docs" / "laws.md"
TABLE = re.compile(r"(<!-- guards of law (\d+) -->\n).*?(<!-- end -->)", re.DOTALL)
LAWS = range(1, 16)
TEST_SECONDS = 600
"""For the tests of one guard. Without a guard a rollout may run for ever."""
ASSERTED = ("AssertionError", "assert ", "Failed: DID NOT RAISE", "Failed: DID NOT WARN")
"""How pytest begins what it says of a test that judged, and did not merely crash."""


class BadList(Exception):
    """The list cannot be read, or does not fit the code."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One thing in the code that holds a law."""

    law: int
    protects: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    noticed_by: str = ""
    """An exception that counts as an assertion here, such as the database's own refusal."""
    tier: str = "fast"
    """full: only the real control plane or the real kernel can notice it."""
    tried: bool = True
    """False until it was seen to be noticed: then its author takes the line away."""

    def removed_from(self, text: str) -> str:
        """Return the text with the guard taken away. Raises BadList unless the guard's text is there exactly once."""
        if (count := text.count(self.old)) != 1:
            raise BadList(f"law {self.law}, {self.protects!r}: its text stands {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class GuardResult:
    guard: Guard
    noticed: bool
    said: str
    """What the first failing test said, or what went wrong instead."""


def read(path: Path = LIST) -> list[Guard]:
    """Raises BadList."""
    guards = []
    for raw in yaml.safe_load(path.read_text(encoding="utf-8")):
        try:
            fields: Mapping[str, Any] = {**raw, "tests": tuple(raw["tests"])}
            guard = Guard(**fields)
        except (TypeError, KeyError) as error:
            raise BadList(f"{path.name}: {error} in {raw!r}") from error
        if guard.law not in LAWS or not guard.tests or guard.old == guard.new:
            raise BadList(
                f"{path.name}: {guard.protects!r} needs a law from 1 to 14, a test, and two texts that differ"
            )
        guards.append(guard)
    return guards


def copied(folder: Path) -> Path:
    """The working tree with what is not committed yet, and without what git ignores; the environment by link."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    tree = folder / "tree"
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    if (ROOT / ".venv").exists():
        (tree / ".venv").symlink_to((ROOT / ".venv").resolve())
    return tree


def tried(tree: Path, tests: Iterable[str], *, tier: str) -> tuple[list[ET.Element], str]:
    """Run tests in the copy: a case for each, and the end of what was printed."""
    report = tree.parent / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.run", tier, *tests, "-q", f"--junit-xml={report}", "-p", "no:cacheprovider"]
    command += ["-n0"] if tier == "fast" else ["-p", "no:xdist"]
    running = subprocess.Popen(
        command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = running.communicate(timeout=TEST_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)  # pytest is a child of its own
        running.communicate()
        return [], f"no end after {TEST_SECONDS} s"
    output = printed.strip()[-300:].replace("\n", " ")
    return (list(ET.parse(report).iter("testcase")) if report.exists() else []), output


def node_id(case: ET.Element) -> str:
    path = (case.get("classname") or "").replace(".", "/")
    return f"{path}.py::{case.get('name')}"


def belongs(case: ET.Element, test: str) -> bool:
    """Return whether this case is the test, or that test with some parameters."""
    identifier = node_id(case)
    return identifier == test or identifier.partition("[")[0] == test


def result_of(guard: Guard, cases: Sequence[ET.Element], output: str) -> GuardResult:
    """Every named test must have failed, at an assertion."""
    first = ""
    for test in guard.tests:
        failures = [f for case in cases if belongs(case, test) for f in case.findall("failure")]
        words = [f.get("message") or "" for f in failures]
        asserting = [w for w in words if w.startswith((*ASSERTED, guard.noticed_by or ASSERTED[0]))]
        if not asserting:
            errors = [e.get("message") or "" for case in cases for e in case.findall("error")]
            why = (words or errors or ([] if any(belongs(c, test) for c in cases) else [output]) or ["it passes"])[0]
            return GuardResult(guard, False, f"{test.rpartition('::')[2]}: {_short(why)}")
        first = first or _short(asserting[0])
    return GuardResult(guard, True, first)


def _short(text: str) -> str:
    return " ".join(text.split())[:140]


class Tree:
    """The copy, in which one file at a time is another one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 2_000_000_000  # compiled files are told apart by whole seconds: each change gets one of its own

    def write(self, file: str, text: str) -> None:
        target = self.path / file
        target.write_text(text, encoding="utf-8")
        self._at += 1
        os.utime(target, (self._at, self._at))

    def without(self, guard: Guard) -> GuardResult:
        text = (self.path / guard.file).read_text(encoding="utf-8")
        try:
            self.write(guard.file, guard.removed_from(text))
            cases, output = tried(self.path, guard.tests, tier=guard.tier)
        except BadList as error:
            return GuardResult(guard, False, str(error))
        finally:
            self.write(guard.file, text)
        return result_of(guard, cases, output)


def page(text: str, guards: Sequence[Guard]) -> str:
    """docs/laws.md with the table of each law as the list has it now."""

    def rows(match: re.Match[str]) -> str:
        lines = ["| What holds it | Where | Fails without it |", "|---|---|---|"]
        for guard in guards:
            if guard.law == int(match[2]):
                tests = ", ".join(dict.fromkeys(test.rpartition("::")[2].partition("[")[0] for test in guard.tests))
                where = f"`{guard.file}`" + (", full tier" if guard.tier == "full" else "")
                lines.append(f"| {guard.protects} | {where} | {'' if guard.tried else 'not tried yet: '}{tests} |")
        return match[1] + "\n".join(lines) + "\n" + match[3]

    return TABLE.sub(rows, text)


def table(verdicts: Iterable[GuardResult]) -> str:
    lines = ["| Law | Guard | Noticed | What failed |", "|---|---|---|---|"]
    for verdict in verdicts:
        remark = verdict.said.replace("|", "\\|")
        lines.append(
            f"| {verdict.guard.law} | {verdict.guard.protects} | {'yes' if verdict.noticed else '**NO**'} | {remark} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="guards", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--law", type=int, action="append", help="only this one; may be repeated")
    parser.add_argument("--tier", choices=("fast", "full"), default="fast", help="full: those that only it can notice")
    parser.add_argument("--match", default="", help="only guards whose sentence, file or tests contain this")
    parser.add_argument("--write", action="store_true", help="only write the tables of docs/laws.md anew")
    options = parser.parse_args(arguments)
    if options.write:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), read()), encoding="utf-8")
        return 0
    guards = [
        g
        for g in read()
        if (not options.law or g.law in options.law)
        and g.tier == options.tier
        and options.match in " ".join((g.protects, g.file, *g.tests))
    ]
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="setpoint-guards-") as folder:
        tree = Tree(copied(Path(folder)))
        named = dict.fromkeys(test for guard in guards for test in guard.tests)
        cases, output = tried(tree.path, named, tier=options.tier)
        bad = [node_id(case) for case in cases if case.find("failure") is not None or case.find("error") is not None]
        if bad or not cases:
            print(f"With all guards in place these fail already: {', '.join(bad) or output}", file=sys.stderr)
            return 1
        for number, guard in enumerate(guards, 1):
            verdicts.append(tree.without(guard))
            mark = "noticed" if verdicts[-1].noticed else f"NOT NOTICED: {verdicts[-1].said}"
            print(f"{number}/{len(guards)} law {guard.law}: {guard.protects}: {mark}", file=sys.stderr, flush=True)
    unnoticed = sum(not verdict.noticed for verdict in verdicts)
    print(f"{table(verdicts)}\n\n{len(verdicts)} guards taken away, {unnoticed} unnoticed.")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
