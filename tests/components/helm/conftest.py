"""A temporary folder of each test's own."""

from __future__ import annotations

import tempfile

import pytest


@pytest.fixture
def private_temporary(tmp_path, monkeypatch):
    """Give each test its own temporary folder, so that leftovers of a run are seen."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder
