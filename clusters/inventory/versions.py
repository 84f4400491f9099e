"""Comparison of observed versions with recorded ones: one rule for every kind of row. Pure.

An event or an answer tells of one object, and knows no more than its version says. A complete list tells of all objects
at its own version, and so of those that are not in it. Versions of one kind count up, until an etcd is restored from a
backup: then a list that was read after something was recorded is believed against a higher version.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from clusters.inventory import rows


@dataclass(frozen=True, slots=True)
class Recorded:
    """Record of an object in a row or a tombstone: its version, and when that was heard."""

    version: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Observation:
    at: datetime
    """When it was heard; of a list, when it was asked for."""
    complete: bool
    version: str = ""
    """Of a complete list, where it is known."""

    def knows(self, recorded: Recorded) -> bool:
        """Return whether this is a complete list that was read no earlier than `recorded`."""
        if not self.complete:
            return False
        if rows.is_comparable(self.version, recorded.version) and not rows.is_older(self.version, recorded.version):
            return True
        return recorded.at <= self.at

    def replaces(self, version: str, recorded: Recorded) -> bool:
        """Return whether an object of this version is to be believed against a row."""
        return not rows.is_older(version, recorded.version) or self.knows(recorded)

    def revives(self, version: str, buried: Recorded) -> bool:
        """Return whether an object of this version is to be believed although its deletion was heard."""
        return rows.is_older(buried.version, version) or self.knows(buried)

    def buried_at(self, *versions: str) -> str:
        """The version that a deletion is recorded with: the newest that is known of it."""
        newest = ""
        for version in (*versions, self.version if self.complete else ""):
            if not newest or rows.is_older(newest, version):
                newest = version or newest
        return newest
