"""Fixtures of tests about pages."""

from __future__ import annotations

import pytest

from jobs import tasks


@pytest.fixture(autouse=True)
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "wake", lambda pk: None)
