"""Documents point at what is there: files, headings, and modules named by their path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import agent
from config import settings
from contract.names import RELEASE

ROOT = Path(__file__).resolve().parents[3]
NOT_IN_THE_REPOSITORY = {"node_modules", "var", "staticfiles", "vendor", "__pycache__"}


def files() -> Iterator[str]:
    """Paths below the root, of what is versioned: installed and generated folders are left out."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in NOT_IN_THE_REPOSITORY and (f == ".ci" or not f.startswith("."))]
        yield from (Path(folder, name).relative_to(ROOT).as_posix() for name in names)


FILES = frozenset(files())
DOCUMENTS = sorted(name for name in FILES if name.endswith(".md"))
FOLDERS = {parent.as_posix() for name in FILES for parent in Path(name).parents}
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
PATH = re.compile(r"`([a-z_]+/[\w/.-]*\.(?:py|yaml|yml|txt|sh|md|json))`")
NOT_OURS = frozenset({"CHANGELOG.md"})
"""Tells of files that were there in their time."""


def anchor(heading: str) -> str:
    """The fragment that GitHub gives a heading: lower case, punctuation out, spaces to hyphens."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")


def anchors(name: str) -> set[str]:
    return {anchor(heading) for heading in HEADING.findall(FENCE.sub("", (ROOT / name).read_text(encoding="utf-8")))}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_link_of_a_document_leads_somewhere(document: str) -> None:
    text = FENCE.sub("", (ROOT / document).read_text(encoding="utf-8"))
    broken = []
    for link in LINK.findall(text):
        target, _, fragment = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        file = (ROOT / document).parent.joinpath(target).resolve().relative_to(ROOT).as_posix() if target else document
        is_there = file in FILES or file in FOLDERS
        if not is_there or (fragment and file.endswith(".md") and fragment not in anchors(file)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if name not in NOT_OURS])
def test_each_file_that_a_document_names_by_its_path_is_there(document: str) -> None:
    named = PATH.findall((ROOT / document).read_text(encoding="utf-8"))
    tops = {name.partition("/")[0] for name in FILES if "/" in name}
    assert [path for path in named if path.partition("/")[0] in tops and path not in FILES] == []


def test_the_release_is_one_number_wherever_it_stands():
    """The code names it once; packaging, the manifest, its documents and the changelog cannot read it there."""
    wanted = RELEASE
    patterns = {
        "pyproject.toml": r'^version = "(.+)"$',
        "deploy/setpoint.yaml": r"image: setpoint-agent:(\S+)",
        "deploy/agent.Dockerfile": r"setpoint-agent:(\S+)",
        "deploy/README.md": r"setpoint-agent:(\S+)",
        "deploy/chart/setpoint/Chart.yaml": r"^version: (\S+)$",
        "CHANGELOG.md": r"^## \[(\d.+?)\]",
    }
    matches = {name: re.search(pattern, (ROOT / name).read_text(), re.MULTILINE) for name, pattern in patterns.items()}
    assert {name: match and match[1] for name, match in matches.items()} == dict.fromkeys(patterns, wanted)
    assert agent.VERSION == settings.VERSION == wanted


def test_each_target_of_make_that_a_document_names_has_a_recipe():
    """make calls a phony target without one done, and does nothing."""
    recipes = set(re.findall(r"^([a-z]+):[^\n]*\n\t", (ROOT / "Makefile").read_text(), re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    named = {
        target
        for document in DOCUMENTS
        if document not in NOT_OURS
        for target in re.findall(r"(?:`|^\$ )make ([a-z]+)", (ROOT / document).read_text(), re.MULTILINE)
    }
    assert "secrets" in named
    assert named - recipes == set()
    assert set(phony[1].split()) - recipes <= {"node"}, "`node` only depends on others"
