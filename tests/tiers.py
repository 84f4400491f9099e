"""Choice of the files that a run reads: collecting all of them takes longer than some tiers' own tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent
FULL_FOLDERS = tuple(TESTS / name for name in ("full", "node", "soak"))
WORDS = "pytest.mark.full"


def may_be_full(file: Path) -> bool:
    """Return whether a file can hold tests of the full tier: it, its folder or a conftest.py above it says so.

    A file that gets the mark in another way is refused as soon as it is collected, which every tier but the full does.
    """
    return any(folder in file.parents for folder in FULL_FOLDERS) or any(map(_has_words, (file, *_conftests(file))))


def _conftests(file: Path) -> list[Path]:
    return [folder / "conftest.py" for folder in file.parents if TESTS in folder.parents]


@cache
def _has_words(file: Path) -> bool:
    return file.is_file() and WORDS in file.read_text(encoding="utf-8")
