"""docs/api.md does what it says: its blocks, word for word, against a demo. In their order: each builds on the last."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.full.harness.demo import Demo

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/api.md"
SECONDS = 180.0

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not shutil.which("curl"), reason="no curl: apt-get install curl"),
    pytest.mark.skipif(not shutil.which("make"), reason="no make: apt-get install make"),
]


def blocks(language: str) -> str:
    """All of the page's blocks in one language, as a reader would run them, one after the other."""
    listings = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(listings) >= 3
    return "\n".join(listings)


@pytest.fixture
def demo_values(demo: Demo, values: Mapping[str, str]) -> Mapping[str, str]:
    return {**values, "DEMO_ENV": str(demo.file)}


def run(command: list[str], values: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, env={**os.environ, **values}, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_walk_with_curl_leads_to_a_rollout_and_back(demo_values: Mapping[str, str]) -> None:
    """The walk is executed as documented, except for the file's place: a reader's demo writes it below var/."""
    script = blocks("sh")
    assert script.count("var/demo.env") == 1

    run(["bash", "-euo", "pipefail", "-c", script.replace("var/demo.env", demo_values["DEMO_ENV"])], {})


def test_the_walk_with_python_leads_to_a_rollout_and_back(demo_values: Mapping[str, str]) -> None:
    shown = run([sys.executable, "-c", blocks("python")], demo_values)

    assert "4 nodes: vm.swappiness 60 -> 5 (live)" in shown
