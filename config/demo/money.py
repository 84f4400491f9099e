"""The demo's prices, three teams with their rules, and a budget that is nearly used up."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import ROUND_UP, Decimal

from accounts.models import User
from common.clock import now
from gpus.models import Team
from gpus.showback import periods, pricing, statement, teams

PRICES = {
    "NVIDIA-H100-80GB-HBM3": "2.40",
    "NVIDIA-L40S": "0.85",
}
"""Of a GPU-hour, by the product as nodes are labeled."""
KWH, PUE = "0.19", "1.32"
RAISED, RAISED_IN = "2.55", timedelta(days=30)
"""The next price of an H100, which no statement may show before its day."""
NEARLY = Decimal("0.96")
RULES = (
    {"by": "namespace", "pattern": "team-llm", "team": "Language models"},
    {"by": "namespace", "pattern": "team-vision", "team": "Perception"},
    {"by": "namespace", "pattern": "team-speech*", "team": "Speech"},
)


def set_up(admin: User) -> None:
    """Set the prices, from the first of the month before on, and what is whose."""
    start = (periods.today().replace(day=1) - timedelta(days=1)).replace(day=1)
    for product, amount in PRICES.items():
        pricing.set_price(by=admin, kind="gpu", model=product, amount=Decimal(amount), valid_from=start)
    pricing.set_price(by=admin, kind="energy", amount=Decimal(KWH), pue=Decimal(PUE), valid_from=start)
    for rule in RULES:
        teams.add(by=admin, name=rule["team"])
    teams.save(RULES, by=admin, version=teams.current().version)


def announce(admin: User) -> None:
    """Set the next price of an H100, and budgets beside what is used by now: one of them nearly used up."""
    product = next(iter(PRICES))
    later: date = now().date() + RAISED_IN
    pricing.set_price(by=admin, kind="gpu", model=product, amount=Decimal(RAISED), valid_from=later)
    used = {line.name: line.cost for line in statement.of(admin, periods.parse("", "", "")).lines}
    for number, team in enumerate(Team.objects.order_by("name")):
        cost = used.get(team.name) or Decimal(1000)
        budget = (cost / NEARLY if number == 0 else 3 * cost).quantize(Decimal(1), ROUND_UP)
        teams.change(team, by=admin, version=team.version, name=team.name, budget=budget)
