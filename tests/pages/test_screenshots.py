"""The list of screenshots against the URL table: a new page without a picture fails here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from tools import screenshots
from tools.shot_list import NO_PAGE, SHOTS, Shot


def names() -> Iterator[str]:
    """Yield the name of every address, but those of the API: it has one page, its documentation."""

    def walk(resolver: URLResolver, prefix: str, namespace: str) -> Iterator[tuple[str, str]]:
        for entry in resolver.url_patterns:
            route = f"{prefix}{entry.pattern}"
            if isinstance(entry, URLResolver):
                yield from walk(entry, route, entry.namespace or namespace)
            elif isinstance(entry, URLPattern):
                yield route, f"{namespace}:{entry.name}" if namespace else str(entry.name)

    for route, name in walk(get_resolver(), "", ""):
        if not route.startswith("api/v1/") or name in ("openapi", "api-docs"):
            yield name


def test_every_address_has_a_picture_or_a_reason_why_not() -> None:
    pictured = {shot.view for shot in SHOTS}
    assert not pictured & set(NO_PAGE), "one or the other"
    assert pictured | set(NO_PAGE) == set(names())


def test_no_two_pictures_have_one_file_and_each_says_what_it_shows() -> None:
    files = [shot.file for shot in SHOTS]
    assert len(set(files)) == len(files)
    assert all(shot.title and shot.says.endswith(".") for shot in SHOTS)
    assert {"clusters:nodes", "jobs:plan"} <= {shot.view for shot in SHOTS if shot.large}


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.file)
def test_a_picture_is_taken_at_its_own_address(shot: Shot) -> None:
    """Paths are written out, so that the script needs no Django; they must be those of the views they name."""
    zeros = "00000000-0000-0000-0000-000000000000"
    uuids = dict.fromkeys(("atlas", "cirrus", "dune", "step", "fjord", "tried_step", "alert", "channel"), zeros)
    numbered = (
        "drifted",
        "job",
        "pool",
        "reboots",
        "upgrade",
        "large",
        "rule",
        "failed",
        "succeeded",
        "equipped",
        "tried",
    )
    numbers = dict.fromkeys(numbered, "1")
    path = shot.path.format(**uuids, **numbers, token="x").partition("?")[0]
    match = get_resolver().resolve(path)
    assert match.view_name == shot.view


def test_the_index_shows_what_was_taken_and_nothing_else(tmp_path: Path) -> None:
    first = SHOTS[0]
    for look in screenshots.LOOKS:
        (tmp_path / f"{first.file}-{look}.webp").write_bytes(b"")
    text = screenshots.index(tmp_path)
    assert f"## {first.title}\n" in text
    assert text.count("![") == 1
    assert f"{first.file}-{screenshots.KEPT}.webp" in text
    assert "5,000" not in text


def test_what_is_kept_is_small_and_every_picture_of_the_index_is_there() -> None:
    kept = list(screenshots.TARGET.glob("*"))
    assert sum(file.stat().st_size for file in kept) <= screenshots.BUDGET
    assert screenshots.INDEX.read_text() == screenshots.index(screenshots.TARGET)
    assert {file.name for file in kept} == set(re.findall(r"screenshots/([^)]+)\)", screenshots.INDEX.read_text()))
