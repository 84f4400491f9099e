"""The small world of the engine's tests, for what plans do with components' archives and values."""

from __future__ import annotations

from tests.jobs.conftest import make_world, world

__all__ = ["make_world", "world"]
