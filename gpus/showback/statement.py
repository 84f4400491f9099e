"""A period's statement: a line for each team, for what no rule matches, and for capacity that no pod held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from accounts.models import User
from accounts.permissions import visible_scopes
from gpus.metrics import states
from gpus.models import GpuBand, Team
from gpus.showback import charges, prices, rules, teams
from gpus.showback.charges import FREE, HELD, TEAM, UNASSIGNED, UNATTRIBUTED, UNHELD, Charge, LineKey, total
from gpus.showback.periods import Period

NAMES: Mapping[str, str] = {
    UNASSIGNED: "Unassigned",
    UNATTRIBUTED: "Not attributed",
    UNHELD: "Unheld capacity",
    "total": "Capacity",
}
ORDER = (TEAM, UNASSIGNED, UNATTRIBUTED, UNHELD)
NEARLY = Decimal("0.9")
"""Of a budget: from here on the page warns."""


@dataclass(slots=True)
class Line:
    """Sums of one line. Costs are None where nothing of it has a price."""

    kind: str
    name: str
    team: Team | None = None
    hours: dict[str, Decimal] = field(default_factory=lambda: dict.fromkeys(GpuBand.STATES, Decimal(0)))
    kwh: Decimal = Decimal(0)
    gpu_cost: Decimal | None = None
    idle_cost: Decimal | None = None
    energy_cost: Decimal | None = None
    unpriced: Decimal = Decimal(0)
    """GPU-hours that have no price, and are in no cost."""
    share: Decimal | None = None
    """0-1 of the capacity."""
    previous: Line | None = None
    """Of the period before; None where nothing was recorded then."""
    budget: Decimal | None = None

    def add(self, charge: Charge) -> None:
        for name, hours in charge.hours.items():
            self.hours[name] += hours
        self.kwh += charge.kwh
        if charge.price is not None:
            self.gpu_cost = (self.gpu_cost or Decimal(0)) + charge.price * charge.gpu_hours
            self.idle_cost = (self.idle_cost or Decimal(0)) + charge.price * charge.hours["held"]
        else:
            self.unpriced += charge.gpu_hours
        if charge.energy_cost is not None:
            self.energy_cost = (self.energy_cost or Decimal(0)) + charge.energy_cost

    @property
    def gpu_hours(self) -> Decimal:
        """All of the line: of a team what its pods held."""
        return total(self.hours.values())

    @property
    def held(self) -> Decimal:
        return total(self.hours[name] for name in HELD)

    @property
    def unheld(self) -> Decimal:
        return total(self.hours[name] for name in FREE)

    @property
    def effective(self) -> Decimal:
        return self.hours["effective"]

    @property
    def active(self) -> Decimal:
        return self.hours["effective"] + self.hours["low"]

    @property
    def held_idle(self) -> Decimal:
        return self.hours["held"]

    @property
    def unknown(self) -> Decimal:
        """GPU-hours without telemetry."""
        return self.hours["held_unknown"] + self.hours["free_unknown"]

    @property
    def bands(self) -> list[tuple[str, int]]:
        """Whole GPU-hours by state, for a bar."""
        columns = {
            states.EFFECTIVE: self.effective,
            states.LOW: self.hours["low"],
            states.HELD: self.held_idle,
            states.FREE: self.hours["free"],
            states.OUT: self.hours["out"],
            states.NONE: self.unknown,
        }
        return [(state, round(hours)) for state, hours in columns.items()]

    @property
    def trend_percent(self) -> Decimal | None:
        return None if self.trend is None else 100 * self.trend

    @property
    def share_percent(self) -> Decimal | None:
        return None if self.share is None else 100 * self.share

    @property
    def used_percent(self) -> Decimal | None:
        """Percent of the budget."""
        return None if self.used_budget is None else 100 * self.used_budget

    @property
    def overspent(self) -> Decimal | None:
        return None if self.rest is None else -self.rest

    @property
    def cost(self) -> Decimal | None:
        """GPUs and energy together."""
        costs = [cost for cost in (self.gpu_cost, self.energy_cost) if cost is not None]
        return total(costs) if costs else None

    @property
    def trend(self) -> Decimal | None:
        """Its cost against the period before, as a share of it; of GPU-hours where nothing has a price."""
        if self.previous is None:
            return None
        now, before = (self.gpu_hours, self.previous.gpu_hours)
        if self.cost is not None and self.previous.cost is not None:
            now, before = self.cost, self.previous.cost
        return now / before - 1 if before else None

    @property
    def rest(self) -> Decimal | None:
        """Rest of the budget; negative: overspent."""
        return None if self.budget is None else self.budget - (self.cost or Decimal(0))

    @property
    def used_budget(self) -> Decimal | None:
        return (self.cost or Decimal(0)) / self.budget if self.budget else None

    @property
    def severity(self) -> str:
        """Severity of its budget: `bad` over it, `warn` nearly, else empty."""
        if self.rest is None:
            return ""
        if self.rest < 0:
            return "bad"
        return "warn" if (self.used_budget or Decimal(0)) >= NEARLY else ""


@dataclass(frozen=True, slots=True)
class Statement:
    period: Period
    lines: Sequence[Line]
    total: Line
    """The capacity: the sum of all lines."""
    before: Period | None
    """The period that trends compare with; None where nothing was recorded then."""
    since: date | None
    """The first day whose bands are kept."""
    teams_since: date | None
    """The first day whose workloads are kept."""
    currency: str
    unpriced_models: Sequence[str]
    sees_all: bool
    """Else it is of some clusters, and budgets, which are for all, are not held against it."""
    has_energy: bool

    @property
    def has_budgets(self) -> bool:
        return any(line.budget is not None for line in self.lines)

    @property
    def held_percent(self) -> Decimal | None:
        """Percent of the capacity."""
        return self._percent(self.total.held)

    @property
    def effective_percent(self) -> Decimal | None:
        return self._percent(self.total.effective)

    def _percent(self, hours: Decimal) -> Decimal | None:
        capacity = self.total.gpu_hours
        return 100 * hours / capacity if capacity else None

    @property
    def is_empty(self) -> bool:
        return not self.lines


def of(user: User, period: Period) -> Statement:
    """Eleven queries at most, for any fleet and period."""
    book, rule_list = prices.book(), rules.stored(teams.current().rules)
    by_id = {team.pk: team for team in Team.objects.all()}
    entries = charges.charges(user, period, book, rule_list)
    earlier = charges.charges(user, period.before, book, rule_list)
    lines, before = _lines(entries, by_id), _lines(earlier, by_id)
    sees_all, whole, whole_before = "*" in visible_scopes(user), _sum(entries), _sum(earlier)
    if period.is_month and sees_all:
        for team in by_id.values():
            if team.budget is not None:
                key = LineKey(TEAM, team.pk)
                lines.setdefault(key, Line(TEAM, team.name, team)).budget = team.budget
    for key, line in lines.items():
        line.share = line.gpu_hours / whole.gpu_hours if whole.gpu_hours else None
        line.previous = before.get(key)
    whole.share = Decimal(1) if whole.gpu_hours else None
    whole.previous = whole_before if earlier else None
    since, teams_since = charges.recorded_since(user)
    return Statement(
        period=period,
        lines=sorted(lines.values(), key=_place),
        total=whole,
        before=period.before if earlier else None,
        since=since,
        teams_since=teams_since,
        currency=prices.currency(),
        unpriced_models=sorted({entry.model for entry in entries if entry.price is None and entry.gpu_hours > 0}),
        sees_all=sees_all,
        has_energy=any(entry.energy for entry in entries),
    )


def _lines(entries: Iterable[Charge], by_id: Mapping[int, Team]) -> dict[LineKey, Line]:
    lines: dict[LineKey, Line] = {}
    for entry in entries:
        line = lines.get(entry.line)
        if line is None:
            team = by_id.get(entry.line.team)
            name = team.name if team else NAMES[entry.line.kind]
            line = lines[entry.line] = Line(entry.line.kind, name, team)
        line.add(entry)
    return lines


def _sum(entries: Iterable[Charge]) -> Line:
    whole = Line("total", NAMES["total"])
    for entry in entries:
        whole.add(entry)
    return whole


def _place(line: Line) -> tuple[int, Decimal, Decimal, str]:
    return ORDER.index(line.kind), -(line.cost or Decimal(0)), -line.gpu_hours, line.name
