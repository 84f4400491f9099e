"""Templates are read line by line, too: a sentence that needs more than a line belongs into Python."""

from __future__ import annotations

from tests.platform.source.files import ROOT, tracked

CHARACTERS_OF_A_LINE = 160


def test_no_line_of_a_template_is_long() -> None:
    long = [
        f"{path}:{number}: {len(line)}"
        for path in tracked("*.html")
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > CHARACTERS_OF_A_LINE
    ]
    assert not long


def test_a_comment_of_a_template_ends_on_its_line() -> None:
    """Django shows readers a `{# … #}` over two lines as it is."""
    shown = [
        f"{path}:{number}"
        for path in tracked("*.html")
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1)
        if line.count("{#") != line.count("#}")
    ]
    assert not shown
