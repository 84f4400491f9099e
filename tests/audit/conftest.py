"""Each test of the record begins with a process that has not searched its history yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit import sealing


@pytest.fixture(autouse=True)
def no_look_yet() -> None:
    sealing._Looked.at = None


@pytest.fixture
def heads_file(tmp_path: Path, settings) -> Path:
    settings.SETPOINT_AUDIT_HEADS_FILE = str(tmp_path / "heads")
    return tmp_path / "heads"
