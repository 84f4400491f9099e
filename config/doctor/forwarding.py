"""Check of how far the destinations of the audit record are."""

from __future__ import annotations

from collections.abc import Iterator

from config.doctor.findings import Finding, ok, problem, warning
from notices.forwarding import shipping

FORWARDING = "audit forwarding"
LAG_NOTICED = 1000
"""Records: a busy minute makes a few dozen."""


def destinations() -> Iterator[Finding]:
    """Compare how far each destination of the audit record is with the record itself."""
    for standing in shipping.standings():
        name, row = standing.destination.name, standing.row
        if row.failures:
            yield problem(
                FORWARDING,
                f"{standing.lag:,} audit records wait for {name}: {row.error}",
                "Nothing is lost: they are sent when it answers. See its address, certificate and secret.",
            )
        elif standing.lag > LAG_NOTICED:
            yield warning(
                FORWARDING, f"{standing.lag:,} audit records wait for {name}.", "See that workers are running."
            )
        else:
            yield ok(FORWARDING, f"{name} has the audit record up to {row.seq:,}.")
        if row.rejected:
            yield warning(
                FORWARDING, f"{name} refused {row.rejected:,} audit records for good: {row.rejection}",
                "Have its limits raised, and fetch them from /api/v1/audit/follow.",
            )  # fmt: skip
