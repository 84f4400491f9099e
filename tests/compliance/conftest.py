"""The small world of the engine's tests, and shortcuts to how its nodes stand."""

from __future__ import annotations

from tests.jobs.conftest import make_world, world

__all__ = ["make_world", "world"]
