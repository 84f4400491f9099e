"""Form of a new fleet run: which draft is in which ring, and how long each ring soaks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.errors import Invalid
from jobs.models import Plan
from jobs.rollouts.fleet_runs import LONGEST_SOAK_MINUTES, WantedRing

SHOWN_RINGS = 6
"""REST takes more."""
_MINUTES = re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class RingField:
    """One ring as it was typed."""

    number: int
    name: str
    soak: str


@dataclass(frozen=True, slots=True)
class FleetRunForm:
    """Typed values of the form, kept whole for a page that shows them again."""

    name: str
    rings: Sequence[RingField]
    ring_of: Mapping[str, str]
    """By plan's id, the ring that it was put into; empty: none."""

    @classmethod
    def read(cls, posted: Mapping[str, str]) -> FleetRunForm:
        rings = [
            RingField(n, posted.get(f"ring_{n}_name", ""), posted.get(f"ring_{n}_soak", ""))
            for n in range(1, SHOWN_RINGS + 1)
        ]
        ring_of = {name.removeprefix("plan_"): value for name, value in posted.items() if name.startswith("plan_")}
        return cls(posted.get("name", ""), rings, ring_of)

    def wanted(self, plans: Sequence[Plan]) -> list[WantedRing]:
        """Return the rings up to the last one with a plan. Raises Invalid naming what cannot be read."""
        numbers = {str(ring.number) for ring in self.rings}
        known = {str(plan.pk) for plan in plans}
        errors: list[str] = []
        if unknown := [pk for pk, ring in self.ring_of.items() if ring and pk not in known]:
            errors.append(f"{len(unknown)} of the plans are no longer drafts that you can use: check the list again.")
        if odd := sorted({ring for ring in self.ring_of.values() if ring and ring not in numbers}):
            errors.append(f"There is no ring {odd[0]!r}.")
        used = [int(ring) for pk, ring in self.ring_of.items() if ring in numbers and pk in known]
        rows = self.rings[: max(used, default=0)]
        minutes = {ring.number: _minutes(ring.soak) for ring in rows}
        errors += [
            f"The soak of ring {number} must be a whole number of minutes, from 0 to {LONGEST_SOAK_MINUTES}."
            for number, value in minutes.items()
            if value is None
        ]
        if errors:
            raise Invalid("The fleet run is not valid.", fields={"rings": errors})
        of_ring: dict[int, list[Plan]] = {ring.number: [] for ring in rows}
        for plan in plans:
            if ring := self.ring_of.get(str(plan.pk), ""):
                of_ring[int(ring)].append(plan)
        return [WantedRing(ring.name, minutes[ring.number] or 0, of_ring[ring.number]) for ring in rows]


def _minutes(text: str) -> int | None:
    text = text.strip() or "0"
    return int(text) if _MINUTES.fullmatch(text) else None
