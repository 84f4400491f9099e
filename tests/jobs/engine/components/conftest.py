"""Fixtures of tests about components in a rollout."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.releases import Releases


@pytest.fixture
def releases(monkeypatch: Any) -> Releases:
    return Releases(requires={"kueue": ("cert-manager",)}).install(monkeypatch)
