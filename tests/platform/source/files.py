"""The repository's own Python files."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def tracked(pattern: str = "*.py") -> list[Path]:
    """Return the paths that git tracks, from the repository's root, without migrations, which are history."""
    done = subprocess.run(
        ["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    paths = [Path(name) for name in done.stdout.split()]
    return [path for path in paths if "migrations" not in path.parts and (ROOT / path).is_file()]
