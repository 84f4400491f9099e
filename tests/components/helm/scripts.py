"""A program of a few lines in helm's place."""

from __future__ import annotations

import sys
from pathlib import Path

from components.helm.client import Helm


def script(tmp_path: Path, body: str) -> Helm:
    """A program in helm's place: Python, given the arguments as `arguments`."""
    path = tmp_path / "helm"
    path.write_text(f"#!{sys.executable} -IS\nimport json, os, signal, sys, time\narguments = sys.argv[1:]\n{body}\n")
    path.chmod(0o755)
    return Helm(str(path), "v3.99.0")
