"""helm v4, which `make controlplane` builds; v3 is on the path, or packaged."""

from __future__ import annotations

import functools
import os
import subprocess

import pytest

from tests.controlplane.plane import HERE


def program() -> str:
    """Return the path of helm v4. Skips where it is not built, which CI=true counts as failed."""
    path = where()
    if not os.access(path, os.X_OK):
        pytest.skip("helm v4 is not built: run `make controlplane`")
    return path


@functools.cache
def where() -> str:
    """Return the path, built or not."""
    done = subprocess.run([HERE / "build.sh", "--where-helm"], capture_output=True, text=True, check=True)
    return f"{done.stdout.strip()}/helm"
