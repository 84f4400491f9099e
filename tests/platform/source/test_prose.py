"""Pages, messages, documents, docstrings and comments are held to the words of prose_rules.yaml.

Written here because no prose linter that a package registry has reads Django templates and, by its syntax, the string
literals of Python: codespell and proselint read whole files, textlint Markdown and plain HTML, and vale is no package.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.platform.source import prose
from tests.platform.source.prose import Passage

ROOT = Path(__file__).resolve().parents[3]
RULES: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests/platform/source/prose_rules.yaml").read_text(encoding="utf-8")
)
PATTERNS = [(re.compile(rule["not"], re.IGNORECASE | re.MULTILINE), rule) for rule in RULES]
ROOMS = (
    "accounts", "audit", "clusters", "common", "compliance", "components", "config", "contract", "gpus", "jobs",
    "notices", "profiles",
)  # fmt: skip
LOGGED = re.compile(r"%[sd]")
"""A message of a log, which its own conventions hold."""


def messages(source: str) -> Iterator[Passage]:
    return (passage for passage in prose.of_python(source) if not LOGGED.search(passage.text))


def is_held(name: str) -> bool:
    """Tell whether the rules hold for a document: not for history, nor for pages generated from data."""
    elsewhere = ("CHANGELOG.md", "docs/laws.md", "docs/components/", "docs/adr/", "tests/", "config/")
    return not name.startswith(elsewhere)


KINDS: dict[str, tuple[list[str], Callable[[str], Iterator[Passage]]]] = {
    "pages": (["templates/*.html"], prose.of_template),
    "scripts": (["static/js/*.js"], prose.of_script),
    "messages": ([f"{room}/*.py" for room in ROOMS], messages),
    "catalogs": (["components/catalog/entries/*.yaml", "profiles/catalog/*.yaml"], prose.of_data),
    "documents": (["*.md"], prose.of_document),
    "docstrings": ([f"{room}/*.py" for room in (*ROOMS, "agent", "simfleet", "tests")], prose.of_docstrings),
    "comments": ([f"{room}/*.py" for room in (*ROOMS, "agent", "simfleet", "tests")], prose.of_comments),
}


PAGES = {"pages", "scripts", "messages", "catalogs"}


def files(patterns: list[str], *, with_models: bool = False) -> list[str]:
    """Return the tracked files; what models call their fields is in migrations, which are history."""
    history = r"/migrations/" if with_models else r"/migrations/|/models[./]"
    listed = subprocess.run(
        ["git", "ls-files", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    ).stdout.split()
    return [name for name in listed if not re.search(history, name) and (ROOT / name).is_file()]


def complaints(text: Iterator[Passage], *, is_page: bool = False) -> Iterator[tuple[int, str, str]]:
    """Yield line, words and what to write instead, of each rule that a passage breaks."""
    for passage in text:
        for pattern, rule in PATTERNS:
            if is_page and not rule.get("pages", True):
                continue
            for match in pattern.finditer(passage.text):
                line = passage.line + passage.text.count("\n", 0, match.start())
                yield line, match[0], rule["write"]


@pytest.mark.parametrize("kind", KINDS)
def test_prose_keeps_to_the_words_of_the_house(kind: str) -> None:
    patterns, extract = KINDS[kind]
    names = files(patterns, with_models=kind in ("docstrings", "comments"))
    names = [name for name in names if kind != "documents" or is_held(name)]
    assert names
    wrong = [
        f"{name}:{line}: “{words}”: write {better}"
        for name in names
        for line, words, better in complaints(extract((ROOT / name).read_text(encoding="utf-8")), is_page=kind in PAGES)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("extract", "source", "line"),
    [
        (prose.of_template, "{# amiss #}\n<p>all well</p>\n<b>What is amiss</b>", 3),
        (prose.of_template, "<p>\n<a title='What is amiss' class='amiss'>x</a>", 2),
        (prose.of_template, '\n{% include "_empty.html" with title="What is amiss" %}', 2),
        (prose.of_data, "a: amiss\nb:\n- {why: What is amiss is amiss.}", 3),
        (prose.of_document, "Well.\n\n```\namiss\n```\n\n`amiss` and\nwhat is amiss", 8),
        (messages, 'amiss = "amiss"\n\n\nsaid = f"{amiss} is amiss."', 4),
        (prose.of_docstrings, '"""Well."""\n\n\ndef f():\n    """Say.\n\n    `amiss` is amiss.\n    """', 7),
        (prose.of_comments, "amiss = 1  # well\n\n# Two lines of\n# what is amiss\nx = 'amiss'", 4),
        (prose.of_comments, "def f():  # noqa: ARG001 — what is amiss\n    pass", 1),
        (prose.of_script, "// amiss it is\nconst said = `what is ${amiss} amiss`;", 2),
    ],
)
def test_a_word_is_found_where_people_read_it_and_nowhere_else(extract, source: str, line: int) -> None:
    assert [(at, words) for at, words, _ in complaints(extract(source)) if words == "amiss"][:1] == [(line, "amiss")]
    assert {at for at, _, _ in complaints(extract(source))} == {line}
