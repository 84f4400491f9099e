"""Fixtures of tests about REST."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import tasks


@pytest.fixture(autouse=True)
def asleep(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The engine runs when the test says so; whom the API would have woken is kept."""
    woken: list[Any] = []
    monkeypatch.setattr(tasks, "wake", woken.append)
    return woken
