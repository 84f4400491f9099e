"""Functions, variables and parameters say what they hold: a node, a row, never only that it was found."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.platform.source.files import ROOT, tracked

EMPTY = {"amiss", "anew", "asked", "found", "one", "said", "stands", "thing", "told"}
"""Names without a meaning of their own. `wanted` is the desired state (contract.nodetuning.Wanted), and may be used."""


def names(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each function, parameter and variable of a function; fields of a class are its interface.

    A function's leading underscores are left out.
    """
    for scope in ast.walk(ast.parse(source)):
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            yield scope.lineno, scope.name.lstrip("_")
        if isinstance(scope, ast.arg):
            yield scope.lineno, scope.arg
        elif isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(scope):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.lineno, node.id
                elif isinstance(node, ast.ExceptHandler) and node.name:
                    yield node.lineno, node.name


def test_names_say_what_they_hold() -> None:
    wrong = {
        f"{path}:{line}: {name}"
        for path in tracked()
        for line, name in names((ROOT / path).read_text(encoding="utf-8"))
        if name in EMPTY
    }
    assert not wrong, "\n".join(sorted(wrong))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(found):\n    pass", [(1, "found")]),
        ("def f():\n    if said := g():\n        pass", [(2, "said")]),
        ("def f():\n    return [g(one) for one in rows]", [(2, "one")]),
        ("rows.sort(key=lambda one: one.pk)", [(1, "one")]),
        ("class A:\n    told: str = ''", []),
        ("class A:\n    def _asked(self):\n        pass", [(2, "asked")]),
        ("def f():\n    return g(found=1).said", []),
    ],
)
def test_a_name_is_found_wherever_it_is_bound(source: str, expected: list[tuple[int, str]]) -> None:
    assert [(line, name) for line, name in names(source) if name in EMPTY] == expected


def lost_arguments(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each argument that a condition writes over (`if reason := ...`): what the caller gave is
    gone behind it, where the condition did not hold."""
    for scope in ast.walk(ast.parse(source)):
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            given = {arg.arg for arg in ast.walk(scope.args) if isinstance(arg, ast.arg)}
            for node in ast.walk(scope):
                if isinstance(node, ast.NamedExpr) and node.target.id in given:
                    yield node.lineno, node.target.id


def test_no_condition_writes_over_an_argument() -> None:
    """A reason that a person gave was lost so, on its way to the audit record."""
    wrong = [
        f"{path}:{line}: {name}"
        for path in tracked()
        for line, name in lost_arguments((ROOT / path).read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


def test_an_argument_that_a_condition_writes_over_is_reported() -> None:
    source = "def f(a, *, reason=''):\n    if reason := g(a):\n        return\n    h(reason, b := a)"
    assert list(lost_arguments(source)) == [(2, "reason")]


def test_no_wait_of_a_browser_evaluates_text_in_the_page() -> None:
    """Playwright's own does once its text is not true at first, which our policy refuses: tools.page_wait.until."""
    waits = "." + "wait_for_function("
    assert [path for path in tracked() if waits in (ROOT / path).read_text(encoding="utf-8")] == []
