"""Every docstring begins with a verb or with the name of its thing, and every module has a noun of the field."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.platform.source.files import ROOT, tracked

OPENINGS = re.compile(
    r"(What|Whatever|Who|Whoever|Whom|Whose|Whether|How|Which|Where|Wherever|When|Why|As|Without|With|Of|In|On|By|At|For|"
    r"From|To|Not|Nothing|Only|Also|If|Unless|Until|While|Since|Because|Before|After|Through|Under|Over|Than|That|It|They|"
    r"He|She|We|You|Nobody|Somebody|Someone|Anybody|Everybody|Is|Are|Was|Were|Has|Have|May|Must|Can|Does|And|Or|But|So|Yes|"
    r"No longer)\b"
)
"""Free relatives, prepositions, conjunctions and pronouns: the reader has to guess the thing that they leave out."""
WORDS = re.compile(
    r"\b(nobody|somebody|someone|anybody|whoever|whatever|is said|are said|goes on|go on|went on|anew|amiss|at last|"
    r"stands? (still|there|here|in|for|on))\b",
    re.IGNORECASE,
)
MODULES = {
    "utils", "helpers", "managers", "misc", "common", "stuff", "tools", "accumulating", "adopting", "answering",
    "carrying", "checking", "choosing", "drawing", "ending", "finding", "forbidding", "holding", "idling", "joining",
    "looking", "merging", "opening", "pacing", "picking", "pruning", "reading", "recognising", "rewriting", "saying",
    "scraping", "showing", "signalling", "storing", "taking", "timing", "turning", "bands", "catalogue", "conformity",
    "days", "holdings", "keepers", "kube_cluster", "moves", "normalisation", "offers", "paces", "plain", "plausible",
    "reach", "sheet", "shards", "tally", "ticks", "told", "trust", "turns", "wake", "wanted", "warrant",
}  # fmt: skip
"""Names that told a newcomer nothing; what replaced them is in git's history."""


def first_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield line number and first line of each docstring of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(text := getattr(first.value, "value", None), str):
                yield first.lineno, text.strip().split("\n", 1)[0]


def complaint(line: str) -> str:
    """Return the words that a first line may not have; empty where it has none."""
    match = OPENINGS.match(line) or WORDS.search(line)
    return match[0] if match else ""


def test_docstrings_begin_with_a_verb_or_the_name_of_the_thing() -> None:
    wrong = [
        f"{path}:{number}: “{words}” in: {line}"
        for path in tracked()
        for number, line in first_lines((ROOT / path).read_text(encoding="utf-8"))
        if (words := complaint(line))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("What one rollout may do.", "What"),
        ("Of a rollout that was turned round.", "Of"),
        ("Whether the rule applies.", "Whether"),
        ("Rows that nobody reads.", "nobody"),
        ("Limits of one rollout.", ""),
        ("Return whether the rule applies.", ""),
        ("Official client.", ""),
        ("Willing approvers of a plan, whatever their roles.", "whatever"),
    ],
)
def test_a_line_is_judged_by_its_first_word_and_by_words_without_a_meaning(line: str, words: str) -> None:
    assert complaint(line) == words


def test_a_docstring_is_found_wherever_it_is() -> None:
    source = '"""A."""\n\n\nclass X:\n    """B."""\n\n    def f(self):\n        """C.\n\n        D.\n        """\n'
    assert [line for _, line in first_lines(source)] == ["A.", "B.", "C."]


def test_modules_are_named_in_the_words_of_the_field() -> None:
    ours = [path for path in tracked() if path.parts[0] not in ("tests", "bench")]
    packages = {path.parent for path in ours if len(path.parts) > 2}
    assert not [str(path) for path in (*ours, *packages) if path.stem in MODULES]
