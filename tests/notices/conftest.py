"""The small world of the engine's tests, where a rollout is needed."""

from __future__ import annotations

from tests.jobs.conftest import make_world, world

__all__ = ["make_world", "world"]
