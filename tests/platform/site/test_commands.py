"""Commands of the documents: each names a program's real options, and each block says which test executes it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, get_commands, load_command_class

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]
    if path.name != "CHANGELOG.md"
)
MANAGE = re.compile(r"manage\.py ([a-z_]+)([^`\n|;&#>]*)")
BLOCK = re.compile(r"^```(?:console|sh)\n.*?^```$|^(#{1,6}) (.+?)$", re.MULTILINE | re.DOTALL)

EXECUTED = {
    ("docs/api.md", None): "tests/full/demo/test_api_walk.py",
    ("docs/change-records.md", "With curl"): "tests/jobs/approvals/tickets/test_documented.py",
    ("docs/real-cluster.md", None): "tests/node/test_walk.py",
    ("docs/operating.md", "Install with Helm"): "tests/full/deployment/test_chart_walk.py",
    ("README.md", "Setpoint"): "tests/full/demo/test_demo.py",
    ("README.md", "A real cluster"): "tests/platform/test_embedded.py",
    ("docs/operating.md", "Embedded"): "tests/platform/test_embedded.py",
    ("docs/operating.md", "A bundle for support"): "tests/platform/test_support_bundle.py",
}
"""(page, heading, or None for all of its headings) → the test that executes the commands of its blocks."""
READ_ONLY = {
    ("docs/operating.md", "Production in small: one machine, containers"): "tests/platform/test_compose.py",
    ("docs/operating.md", "Production as plain processes"): "tests/platform/site/test_commands.py",
    ("CONTRIBUTING.md", "Set up"): "tests/platform/source/test_documents.py",
}
"""Blocks that need what no test machine has (a daemon of containers) or are the run of tests itself, and the test that
holds their files and names against the code."""


def blocks(page: str) -> Iterator[str]:
    """Yield the heading above each block of commands of a page."""
    heading = ""
    for match in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
        if match[1]:
            heading = match[2]
        else:
            yield heading


def test_each_block_of_commands_has_a_test() -> None:
    known = EXECUTED | READ_ONLY
    homes = {(page, heading) for page in PAGES for heading in blocks(page)}
    assert len(homes) > 8
    assert {home for home in homes if home not in known and (home[0], None) not in known} == set()
    pages = {page for page, _ in homes}
    assert {home for home in known if home not in homes and (home[1] or home[0] not in pages)} == set()
    assert [test for test in known.values() if not (ROOT / test).is_file()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if MANAGE.search((ROOT / page).read_text(encoding="utf-8"))])
def test_each_command_of_manage_py_takes_the_words_that_a_document_gives_it(page: str) -> None:
    commands = get_commands()
    wrong = []
    for name, rest in MANAGE.findall((ROOT / page).read_text(encoding="utf-8")):
        if name not in commands:
            wrong.append(name)
            continue
        parser = load_command_class(str(commands[name]), name).create_parser("manage.py", name)
        words = shlex.split(rest.replace("[", "").replace("]", ""))
        if (
            not rest[:1].isspace()
            or not words
            or not (words[0].startswith("-") or words[0].isupper() or "@" in words[0])
        ):
            continue  # prose behind the name
        try:
            parser.parse_args(words)
        except CommandError as error:
            wrong.append(f"{name} {rest.strip()}: {error}")
    assert wrong == []
