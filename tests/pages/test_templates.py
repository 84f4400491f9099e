"""Laws of every template: it compiles, names only icons that exist, runs under the strict policy, and is formatted."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.template import loader

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "templates"
TEMPLATES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.html"))
FRAGMENTS = [name for name in TEMPLATES if name.rpartition("/")[2].startswith("_")]

sys.path.insert(0, str(ROOT / "tools"))
import vendor  # type: ignore[import-not-found]  # noqa: E402

INLINE = re.compile(
    r"""<[^>]*\s(style|on[a-z]+|hx-on[a-z:-]*)\s*=|<style|<script(?![^>]*\ssrc=)|javascript:""", re.IGNORECASE
)
DJADE = shutil.which("djade") or shutil.which("djade", path=str(Path(sys.executable).parent))
CDN = re.compile(r"""(?:src|href|action|hx-(?:get|post))=["'](?:https?:)?//""")


def source(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def test_there_are_templates() -> None:
    assert {"base.html", "error.html", "jobs/plan.html", "jobs/_rollout.html"} <= set(TEMPLATES)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_compiles(name: str) -> None:
    loader.get_template(name)


@pytest.mark.parametrize("name", TEMPLATES)
def test_nothing_in_a_template_is_inline_or_from_elsewhere(name: str) -> None:
    """The policy is default-src 'self': a browser would drop it silently."""
    assert not INLINE.search(source(name)), INLINE.search(source(name))
    assert not CDN.search(source(name)), CDN.search(source(name))


@pytest.mark.parametrize(
    "text", ['<p style="x">', '<b onclick="x">', "<style>", "<script>x</script>", '<a hx-on:click="x">']
)
def test_the_search_for_inline_code_finds_it(text: str) -> None:
    assert INLINE.search(text)


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_fragment_says_on_its_first_line_what_it_needs(name: str) -> None:
    assert name in ("_mark.html",) or source(name).startswith("{# Needs"), source(name)[:60]


def test_every_icon_is_in_the_sprite() -> None:
    sprite = vendor.SPRITE if vendor.SPRITE.exists() else vendor.CUT
    if not sprite.exists():
        pytest.skip("no sprite here: `make vendor` brings it")
    missing = vendor.named_icons() - set(re.findall(r'id="tabler-([a-z0-9-]+)"', sprite.read_text(encoding="utf-8")))
    assert not missing


def test_an_icon_that_the_sprite_lacks_is_named() -> None:
    sprite = '<svg><defs><symbol id="tabler-a"><path/></symbol><symbol id="tabler-b"><path/></symbol></defs></svg>'
    assert vendor.cut(sprite, ["b"]).count("<symbol") == 1
    with pytest.raises(SystemExit, match="no-such-icon"):
        vendor.cut(sprite, ["a", "no-such-icon"])


if DJADE:  # of the lint requirements, and `make lint` runs it too

    def test_templates_are_formatted() -> None:
        command = [DJADE, "--check", "--target-version", "5.2", *(str(FOLDER / name) for name in TEMPLATES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
