"""Prices as of any day: one look-up for pages, REST, statements and alerts. Money is Decimal and never rounded here."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings

from gpus.metrics import mig
from gpus.models import GpuPrice
from gpus.storage import node_snapshot

Kind = GpuPrice.Kind
ENERGY = ""
"""In the place of a model."""
_HOUR = timedelta(hours=1)


class Rate(NamedTuple):
    """A price on one day."""

    amount: Decimal
    """Of a GPU-hour, or of a kWh that the GPUs took."""
    pue: Decimal = Decimal(1)

    @property
    def each(self) -> Decimal:
        """Price of a kWh of the GPUs, with what the site adds to it."""
        return self.amount * self.pue


@dataclass(frozen=True, slots=True)
class _Since:
    days: Sequence[date]
    """Ascending."""
    rates: Sequence[Rate]

    def on(self, day: date) -> Rate | None:
        place = bisect_right(self.days, day)
        return self.rates[place - 1] if place else None


class PriceBook:
    """All prices that hold or held, in memory: there are few."""

    def __init__(self, rows: Iterable[GpuPrice]) -> None:
        by_key: dict[tuple[str, UUID | None], list[GpuPrice]] = defaultdict(list)
        for row in rows:
            by_key[row.model if row.kind == Kind.GPU else ENERGY, row.cluster_id].append(row)
        self._lists = {}
        for key, several in by_key.items():
            ordered = sorted(several, key=lambda row: row.valid_from)
            rates = [Rate(row.amount, row.pue) for row in ordered]
            self._lists[key] = _Since([row.valid_from for row in ordered], rates)
        self._defaults = defaults()

    def gpu(self, model: str, cluster_id: UUID | None, day: date) -> Decimal | None:
        """Return the price of a whole GPU's hour; None where none is set for the day.

        Where all GPUs are split alike, the product's name includes the profile, and the price is the whole GPU's.
        """
        whole = model.partition(node_snapshot.model_name(mig.MIG))[0]
        rate = self._on(whole, cluster_id, day) if whole else None
        return rate.amount if rate else self._defaults.get(whole)

    def energy(self, cluster_id: UUID | None, day: date) -> Rate | None:
        return self._on(ENERGY, cluster_id, day)

    def changes(self, start: date, end: date) -> list[date]:
        """Return the days after `start` and before `end` from which any price holds."""
        return sorted({day for prices in self._lists.values() for day in prices.days if start < day < end})

    def mean(self, model: str, cluster_id: UUID | None, start: datetime, end: datetime) -> Decimal | None:
        """Return the price of a GPU-hour on the average of this time; None where none holds at its end.

        A change of price counts from its day on, and days before the first price count nothing.
        """
        last = self.gpu(model, cluster_id, end.astimezone(UTC).date())
        if last is None or end <= start:
            return last
        first = start.astimezone(UTC).date()
        days = [first, *self.changes(first, end.astimezone(UTC).date() + timedelta(days=1))]
        begins = [start, *(midnight(day) for day in days[1:])]
        total = Decimal(0)
        for day, begin, until in zip(days, begins, [*begins[1:], end], strict=True):
            total += (self.gpu(model, cluster_id, day) or Decimal(0)) * Decimal((until - begin) / _HOUR)
        return total / Decimal((end - start) / _HOUR)

    def _on(self, model: str, cluster_id: UUID | None, day: date) -> Rate | None:
        own = self._lists.get((model, cluster_id)) if cluster_id else None
        everywhere = self._lists.get((model, None))
        return (own.on(day) if own else None) or (everywhere.on(day) if everywhere else None)


def book() -> PriceBook:
    """Return the price book. One query."""
    return PriceBook(GpuPrice.objects.filter(withdrawn_at=None).order_by())


def defaults() -> dict[str, Decimal]:
    """Return the prices of SETPOINT_GPU_PRICES by model: they hold wherever no price is set."""
    prices: dict[str, Any] = settings.SETPOINT_GPU_PRICES
    return {node_snapshot.model_name(product): Decimal(str(price)) for product, price in prices.items()}


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def currency() -> str:
    return str(settings.SETPOINT_GPU_CURRENCY)
