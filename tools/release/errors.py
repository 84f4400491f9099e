"""The refusal that ends a command of `tools.release`."""

from __future__ import annotations


class ReleaseRefused(Exception):
    """Refusal that names what is wrong, and what would be right."""
