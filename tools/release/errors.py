"""The refusal that ends a command of `tools.release`."""

from __future__ import annotations


class ReleaseRefused(Exception):
    """What is wrong, and what would be right."""
