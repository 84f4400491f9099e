"""Charges: use by line, with its price, from daily roll-ups and state bands, in three queries for any fleet.

Held GPU-hours are those of `GpuUse`; what the bands say beyond is unheld, or not attributed: held before workloads were
recorded. So a period's charges sum to the bands' capacity, which pages of GPUs show.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import F, QuerySet, Sum
from django.db.models.functions import TruncDate

from accounts.models import User
from accounts.permissions import restrict
from gpus.models import GpuBand, GpuUse
from gpus.showback import periods, whose
from gpus.showback.periods import Period
from gpus.showback.prices import PriceBook, Rate, midnight
from gpus.showback.rules import RuleList

TEAM, UNASSIGNED, UNATTRIBUTED, UNHELD = "team", "unassigned", "not_attributed", "unheld"
HELD = GpuUse.STATES
FREE = ("free", "out", "free_unknown")
SECONDS, JOULES = 3600, Decimal("3600000")
PLACES = Decimal("1e-9")
"""Of an hour, or of a kWh: what roll-ups, which are floats, become once."""
LEAST = Decimal("1e-6")
"""Hours below it are what floats differ by."""
Amounts = dict[str, Decimal]


class LineKey(NamedTuple):
    kind: str
    team: int = 0


@dataclass(frozen=True, slots=True)
class Charge:
    """Use by one line of one GPU model of one cluster, from `day` on, while prices were the same."""

    day: date
    cluster_id: UUID
    model: str
    """Empty: not known."""
    line: LineKey
    hours: Mapping[str, Decimal]
    """GPU-hours by the columns of GpuBand."""
    kwh: Decimal
    price: Decimal | None
    """Of a GPU-hour."""
    energy: Rate | None

    @property
    def gpu_hours(self) -> Decimal:
        return sum(self.hours.values(), Decimal(0))

    @property
    def cost(self) -> Decimal | None:
        return None if self.price is None else self.price * self.gpu_hours

    @property
    def energy_cost(self) -> Decimal | None:
        return None if self.energy is None else self.energy.each * self.kwh


class _Place(NamedTuple):
    day: date
    cluster_id: UUID
    model: str


def charges(user: User, period: Period, book: PriceBook, rules: RuleList, *, daily: bool = False) -> list[Charge]:
    """Return the charges of the clusters that the person sees, in no order. Two queries. `daily`: each day apart."""
    changes = book.changes(period.start, period.end)
    used = _used(restrict(GpuUse.objects.all(), user), period, rules, changes, daily=daily)
    bands, joules = _bands(user, period, changes, daily=daily)
    _add_rest(used, bands, joules)
    return _priced(used, book)


def of_team(rows: QuerySet[GpuUse], team: int, period: Period, book: PriceBook, rules: RuleList) -> list[Charge]:
    """Return the charges of one team among these rows, in no order. One query."""
    changes = book.changes(period.start, period.end)
    used = _used(rows.filter(whose.held_by(team, rules)), period, rules, changes, daily=False)
    return _priced({key: amounts for key, amounts in used.items() if key[1] == LineKey(TEAM, team)}, book)


def _priced(used: Mapping[tuple[_Place, LineKey], Amounts], book: PriceBook) -> list[Charge]:
    return [
        Charge(
            day=place.day,
            cluster_id=place.cluster_id,
            model=place.model,
            line=line,
            hours={name: amounts[name] for name in GpuBand.STATES},
            kwh=amounts["kwh"],
            price=book.gpu(place.model, place.cluster_id, place.day),
            energy=book.energy(place.cluster_id, place.day),
        )
        for (place, line), amounts in used.items()
    ]


_Used = dict[tuple[_Place, LineKey], Amounts]


def _none() -> Amounts:
    return dict.fromkeys((*GpuBand.STATES, "kwh"), Decimal(0))


def as_hours(seconds: float) -> Decimal:
    return (Decimal(seconds) / SECONDS).quantize(PLACES)


def as_kwh(joules: float) -> Decimal:
    return (Decimal(joules) / JOULES).quantize(PLACES)


def _used(rows: QuerySet[GpuUse], period: Period, rules: RuleList, changes: list[date], *, daily: bool) -> _Used:
    rows = rows.filter(day__gte=period.start, day__lt=period.end)
    rows = rows.annotate(priced=F("day") if daily else periods.since("day", period.start, changes, is_day=True))
    columns = ["priced", "cluster", "model", "namespace", *(["owner"] if rules.needs_owner else [])]
    sums = {f"sum_{name}": Sum(name) for name in (*HELD, "joules")}
    grouped = rows.order_by().values(*columns).annotate(**sums).values_list(*columns, *sums)
    used: _Used = defaultdict(_none)
    for day, cluster_id, model, *key_and_sums in grouped.iterator(2000):
        key, amounts = key_and_sums[: -len(sums)], key_and_sums[-len(sums) :]
        team = rules.team(*key)
        into = used[_Place(day, cluster_id, model), LineKey(TEAM, team) if team else LineKey(UNASSIGNED)]
        for name, seconds in zip(HELD, amounts, strict=False):
            into[name] += as_hours(seconds)
        into["kwh"] += as_kwh(amounts[-1])
    return used


def _bands(
    user: User, period: Period, changes: list[date], *, daily: bool
) -> tuple[dict[_Place, Amounts], dict[_Place, Decimal]]:
    """Capacity by place, and each cluster's energy; what no model's bands have is of the model "", not known."""
    scopes = (GpuBand.Scope.CLUSTER, GpuBand.Scope.MODEL)
    rows = GpuBand.objects.filter(seconds=SECONDS, scope__in=scopes)
    rows = restrict(rows.filter(start__gte=midnight(period.start), start__lt=midnight(period.end)), user)
    rows = rows.annotate(
        priced=TruncDate("start", tzinfo=UTC) if daily else periods.since("start", period.start, changes)
    )
    sums = {f"sum_{name}": Sum(name) for name in (*GpuBand.STATES, "joules")}
    columns = ("priced", "cluster", "scope", "name")
    bands: dict[_Place, Amounts] = defaultdict(_none)
    joules: dict[_Place, Decimal] = {}
    for day, cluster_id, scope, name, *amounts, energy in (
        rows.order_by().values(*columns).annotate(**sums).values_list(*columns, *sums).iterator(2000)
    ):
        unknown = bands[_Place(day, cluster_id, "")]
        is_whole = scope == GpuBand.Scope.CLUSTER
        model = unknown if is_whole else bands[_Place(day, cluster_id, name)]
        for state, seconds in zip(GpuBand.STATES, amounts, strict=True):
            hours = as_hours(seconds)
            model[state] += hours
            if not is_whole:
                unknown[state] -= hours
        if is_whole:
            joules[_Place(day, cluster_id, "")] = as_kwh(energy)
    return bands, joules


def _add_rest(used: _Used, bands: Mapping[_Place, Amounts], joules: Mapping[_Place, Decimal]) -> None:
    """Add what no workload held: hours by model, energy by cluster, in parts of these hours."""
    held: dict[_Place, Amounts] = defaultdict(_none)
    spent: dict[_Place, Decimal] = defaultdict(Decimal)
    for (place, _), amounts in used.items():
        spent[place._replace(model="")] += amounts["kwh"]
        for name in HELD:
            held[place][name] += amounts[name]
    rest: dict[_Place, dict[str, Decimal]] = defaultdict(lambda: {UNATTRIBUTED: Decimal(0), UNHELD: Decimal(0)})
    for place in {*bands, *held}:
        capacity, whole = bands.get(place) or _none(), place._replace(model="")
        for kind, hours in (
            (UNATTRIBUTED, {name: capacity[name] - held[place][name] for name in HELD}),
            (UNHELD, {name: capacity[name] for name in FREE}),
        ):
            if any(abs(amount) >= LEAST for amount in hours.values()):
                used[place, LineKey(kind)] |= hours
                rest[whole][kind] += max(Decimal(0), sum(hours.values()))
    for whole, kwh in joules.items():
        left, parts = kwh - spent[whole], rest[whole]
        together = sum(parts.values())
        for kind, part_hours in parts.items():
            share = part_hours / together if together else Decimal(kind == UNHELD)
            if part := (left * share).quantize(PLACES):
                used[whole, LineKey(kind)]["kwh"] += part


def recorded_since(user: User) -> tuple[date | None, date | None]:
    """The first day whose bands, and the first whose workloads are kept. One query each."""
    bands = restrict(GpuBand.objects.filter(scope=GpuBand.Scope.CLUSTER, seconds=SECONDS), user)
    uses = restrict(GpuUse.objects.all(), user)
    first: Any = bands.order_by("start").values_list("start", flat=True).first()
    return first.astimezone(UTC).date() if first else None, uses.order_by("day").values_list("day", flat=True).first()


def total(amounts: Iterable[Decimal]) -> Decimal:
    return sum(amounts, Decimal(0))
