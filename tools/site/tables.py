"""Markdown tables whose cells may hold any text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are Markdown, in which only what would end a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def code(text: str) -> str:
    """Return text as code, nothing as nothing."""
    return f"`{text}`" if text else ""


def plain(text: str) -> str:
    """Return text as Markdown that shows exactly these characters."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>#&" else char for char in text)


def _cell(text: str) -> str:
    return " ".join(text.replace("\\|", "|").replace("|", "\\|").split())
