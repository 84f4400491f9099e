"""The small world of the engine's tests: what the laws of every address are tried on."""

from __future__ import annotations

from tests.jobs.conftest import make_world, world

__all__ = ["make_world", "world"]
