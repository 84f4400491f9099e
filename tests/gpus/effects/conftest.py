"""The small world of the engine's tests, and rollouts whose GPUs' truth is known."""

from __future__ import annotations

import pytest

from gpus.storage import history
from tests.gpus.studying import Worked
from tests.jobs.conftest import make_world

__all__ = ["make_world"]


@pytest.fixture
def worked(db, clock, monkeypatch):
    def make(*args, **kwargs):
        scenario = Worked(*args, **kwargs)
        monkeypatch.setattr(history, "buckets", scenario.truth.buckets)
        return scenario

    return make
