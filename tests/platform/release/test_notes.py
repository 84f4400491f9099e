"""Release notes and versions: a release never says another version than its files, and never goes out without notes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.names import RELEASE
from tools.release import notes, versions
from tools.release.errors import ReleaseRefused

ROOT = Path(__file__).resolve().parents[3]
CHANGELOG = """# Changelog

## [Unreleased]

- Not yet.

## [1.1.0] - 2026-02-03

### Added

- A thing, see [0.9.0] in text.

## [1.0.0] - 2026-01-02
"""


def test_notes_are_the_versions_section_and_nothing_of_the_next() -> None:
    assert notes.of_version(CHANGELOG, "1.1.0") == "### Added\n\n- A thing, see [0.9.0] in text.\n"


@pytest.mark.parametrize(
    ("version", "named"),
    [("Unreleased", "date"), ("unreleased", "1.1.0"), ("0.9.0", "1.1.0"), ("1.1", "1.1.0"), ("1.0.0", "nothing"),
     ("", "1.1.0"), (".*", "1.1.0")],
)  # fmt: skip
def test_a_version_without_a_dated_section_is_refused_with_what_would_be_right(version: str, named: str) -> None:
    with pytest.raises(ReleaseRefused, match=named):
        notes.of_version(CHANGELOG, version)


LINES = st.text(st.characters(exclude_characters="#\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", codec="utf-8"))


@given(st.lists(st.tuples(st.integers(0, 9), LINES.filter(str.strip)), min_size=1, unique_by=lambda item: item[0]))
def test_every_section_comes_back_whole(sections: list[tuple[int, str]]) -> None:
    text = "# Changelog\n\n" + "\n".join(f"## [{n}.0.0] - 2026-01-01\n{body}\n" for n, body in sections)
    for n, body in sections:
        assert notes.of_version(text, f"{n}.0.0") == body.strip() + "\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (*versions.STATED, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


MOST_BULLETS = 30
"""Of one release beside *Upgrading*: more, and no one who decides about an upgrade reads them."""


def bullets(section: str) -> int:
    """Return how many bullets a release's section has outside of *Upgrading*, which is as long as it must be."""
    parts = re.split(r"^### (.+)$", section, flags=re.MULTILINE)
    texts = [parts[0], *(text for name, text in zip(parts[1::2], parts[2::2], strict=True) if name != "Upgrading")]
    return sum(len(re.findall(r"^ *[-*] ", text, re.MULTILINE)) for text in texts)


def test_bullets_are_counted_but_for_those_of_an_upgrade() -> None:
    assert bullets("- a\n\n### Upgrading\n\n- b\n- c\n\n### Added\n\n- d\n  of two lines\n  * e\n") == 3


def test_no_release_has_more_bullets_than_people_read() -> None:
    """The section Unreleased included: what does not fit is folded into a capability, with a link to its document."""
    sections = re.split(r"^## \[([^\]]+)\].*$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    counts = {version: bullets(text) for version, text in zip(sections[::2], sections[1::2], strict=True)}
    assert {"Unreleased", RELEASE} <= set(counts)
    assert {version: count for version, count in counts.items() if count > MOST_BULLETS} == {}


def test_every_file_of_this_checkout_states_the_version() -> None:
    assert versions.stated(ROOT) == RELEASE


def test_every_image_named_in_the_deployment_has_the_version() -> None:
    """Look for what versions.STATED does not list, too: a release would forget it."""
    named = {
        path.name
        for path in [*(ROOT / "deploy").glob("*.yaml"), *(ROOT / "deploy").glob("*.Dockerfile")]
        for line in path.read_text().splitlines()
        if not line.startswith("#") and "setpoint-" in line and f":{RELEASE}" in line
    }
    assert named == {Path(name).name for name in versions.STATED} & {path.name for path in (ROOT / "deploy").glob("*")}


@pytest.mark.parametrize("name", versions.STATED)
def test_a_file_with_another_version_ends_the_release_and_is_named(checkout: Path, name: str) -> None:
    path = checkout / name
    path.write_text(path.read_text().replace(RELEASE, "7.7.7"))
    with pytest.raises(ReleaseRefused, match=name):
        versions.of_tag(checkout, f"v{RELEASE}")


@pytest.mark.parametrize(
    "tag", [RELEASE, "v7.7.7", f"v{RELEASE}\n", f"v{RELEASE}-rc.1", f"v{RELEASE} && x", "main", ""]
)
def test_a_tag_that_is_not_the_version_ends_the_release(checkout: Path, tag: str) -> None:
    with pytest.raises(ReleaseRefused):
        versions.of_tag(checkout, tag)


def test_the_versions_tag_passes_and_without_notes_it_does_not(checkout: Path) -> None:
    assert versions.of_tag(checkout, f"v{RELEASE}") == RELEASE
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(f"## [{RELEASE}] - ", f"## [{RELEASE}] until "))
    with pytest.raises(ReleaseRefused, match=RELEASE):
        versions.of_tag(checkout, f"v{RELEASE}")
