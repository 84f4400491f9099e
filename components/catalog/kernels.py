"""Kernel releases as nodes report them, and a preset's need of one.

Distributions put their own words behind the numbers: `5.14.0-427.el9`, `6.8.0-1015-azure`, `6.1.0-13-amd64`.
"""

from __future__ import annotations

import re

NEED = re.compile(r">=([0-9]+)\.([0-9]+)")
"""`>=6.8`"""
_RELEASE = re.compile(r"([0-9]+)\.([0-9]+)(?:\.[0-9]+)*(?:[-+_~.].*)?")
_BACKPORTED = re.compile(r"\.el[0-9]+")
"""RHEL and what is built from it, whose kernels carry parts of newer ones."""

MEETS, TOO_OLD, BACKPORTED, UNKNOWN = "meets", "too-old", "backported", "unknown"


def version(release: str) -> tuple[int, int] | None:
    """Return major and minor of a kernel release; None where it has none at its beginning."""
    matched = _RELEASE.fullmatch(release.strip())
    return (int(matched[1]), int(matched[2])) if matched else None


def least(need: str) -> tuple[int, int]:
    """Return the oldest kernel that a need such as `>=6.8` permits. Raises ValueError."""
    matched = NEED.fullmatch(need)
    if matched is None:
        raise ValueError(f"{need!r} is not a kernel need such as '>=6.8'")
    return int(matched[1]), int(matched[2])


def judge(release: str, need: str) -> str:
    """Return whether a node's kernel meets the need.

    `backported`: its number is too low, and its distribution brings parts of newer kernels under old numbers.
    """
    number = version(release)
    if number is None:
        return UNKNOWN
    if number >= least(need):
        return MEETS
    return BACKPORTED if _BACKPORTED.search(release) else TOO_OLD
