"""Port of telemetry: any source of readings of a cluster's GPUs. Exporters and Prometheus implement it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from gpus.metrics.findings import Findings
from gpus.metrics.samples import ExporterPod, Series

MOST_REASONS = 8
"""Kept of what returned nothing; thousands of exporters mostly fail for one reason."""


class Unreadable(Exception):
    """Failure to read anything at all. `str()` is a sentence with the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class SourceChoice:
    """Choice of the automatic kind: the source to read, and why."""

    reads: str
    """`exporters`, or namespace/name:port of Prometheus' service."""
    because: str
    """A sentence."""
    at: datetime


@dataclass(slots=True)
class Gathering:
    """Facts gathered about a source while its series are read; complete when they have ended."""

    when: datetime
    """The reading's own time, by our clock."""
    deadline: float
    """time.monotonic()'s: what has not answered by then is left out."""
    findings: Findings = field(default_factory=Findings)
    exporters: list[ExporterPod] = field(default_factory=list)
    asked: int = 0
    unanswered: int = 0
    partial: int = 0
    """Answers that their source itself calls incomplete."""
    reasons: list[tuple[str, str]] = field(default_factory=list)
    """What was asked, and why it returned nothing."""
    skew_seconds: float | None = None
    """The source's clock minus ours."""
    choice: SourceChoice | None = None
    """Of the automatic kind, once it was read."""

    @property
    def left(self) -> float:
        """Seconds; 0 when the time is over."""
        return max(0.0, self.deadline - time.monotonic())

    def missed(self, what: str, why: str) -> None:
        self.unanswered += 1
        self.note_reason(what, why)

    def note_reason(self, what: str, why: str) -> None:
        known = {reason for _, reason in self.reasons}
        if why not in known and len(self.reasons) < MOST_REASONS:
            self.reasons.append((what[:200], why[:400]))


class Telemetry(Protocol):
    def series(self, into: Gathering) -> Iterator[Series]:
        """All series of now, one after the other, so that a large fleet's need not fit into memory at once.

        What fails for itself alone is noted in `into`, and the rest continues. Raises Unreadable.
        """

    def close(self) -> None: ...
