"""Teams, their budgets and the rules that say what is whose, as administrators change them. All of it is audited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Sum

from accounts.models import User
from accounts.permissions import TEAM
from audit import services as audit
from common import hooks
from common.clock import now
from common.errors import Invalid, Stale, WrongState
from gpus.models import GpuUse, Team, TeamRules
from gpus.showback import periods, rules
from gpus.showback.pricing import require_change
from gpus.showback.rules import RuleList

MOST = 200
MOST_BUDGET = Decimal(1_000_000_000)
SHOWN = 5
"""Things that a team owns which a refusal names."""
PREVIEWED = timedelta(days=30)
RESERVED = ("unassigned", "unheld", "not attributed", "total")
"""Names of a statement's other lines."""


def add(*, by: User, name: str, budget: Decimal | None = None) -> Team:
    """Raises NotAllowed, Invalid."""
    require_change(by)
    team = Team(name=name.strip(), budget=budget, changed_by=by)
    _judge(team)
    if Team.objects.count() >= MOST:
        raise Invalid("No team can be added.", fields={"name": [f"There are {MOST} teams, the most possible."]})
    with transaction.atomic():
        _save(team)
        audit.record(by=by, action="gpu_team.add", **_subject(team), after=fields_of(team))
    return team


def change(team: Team, *, by: User, version: int, name: str, budget: Decimal | None) -> Team:
    """Raises NotAllowed, Invalid, Stale."""
    require_change(by)
    before, team.name, team.budget = fields_of(team), name.strip(), budget
    _judge(team)
    fields = {"name": team.name, "budget": budget, "changed_at": now(), "changed_by": by, "version": F("version") + 1}
    try:
        with transaction.atomic():
            if not Team.objects.filter(pk=team.pk, version=version).update(**fields):
                raise Stale("This team was changed meanwhile. Reload and try again.")
            audit.record(by=by, action="gpu_team.change", **_subject(team), before=before, after=fields_of(team))
    except IntegrityError as error:
        raise _taken(team) from error
    team.refresh_from_db()
    return team


def remove(team: Team, *, by: User) -> None:
    """Raises NotAllowed, WrongState."""
    require_change(by)
    with transaction.atomic():
        named = [row["pattern"] for row in _locked().rules if row["team"] == team.pk]
        if named:
            raise WrongState(f"Rules name this team: {', '.join(named[:5])}. Change them first.")
        if owned := hooks.team_holdings(team.pk):
            more = f" and {len(owned) - SHOWN} more" if len(owned) > SHOWN else ""
            raise WrongState(
                f"This team owns {', '.join(owned[:SHOWN])}{more}. Give them another owner, or none, first."
            )
        audit.record(by=by, action="gpu_team.remove", **_subject(team), before=fields_of(team))
        team.delete()


def fields_of(team: Team) -> dict[str, Any]:
    return {"name": team.name, "budget": None if team.budget is None else str(team.budget)}


def _judge(team: Team) -> None:
    wrong = {}
    if not team.name or not team.name.isprintable() or len(team.name) > 63:
        wrong["name"] = ["From 1 to 63 visible characters."]
    elif team.name.lower() in RESERVED:
        wrong["name"] = ["This name is another line of the statement: choose another."]
    if team.budget is not None:
        if not team.budget.is_finite() or not 0 <= team.budget < MOST_BUDGET:
            wrong["budget"] = [f"From 0 to less than {MOST_BUDGET:,}; empty: none."]
        elif team.budget != round(team.budget, 2):
            wrong["budget"] = ["At most 2 decimal places."]
    if wrong:
        raise Invalid("The team cannot be saved so.", fields=wrong)


def _save(team: Team) -> None:
    try:
        with transaction.atomic():
            team.save()
    except IntegrityError as error:
        raise _taken(team) from error


def _taken(team: Team) -> Invalid:
    return Invalid("The team cannot be saved so.", fields={"name": [f"There is a team {team.name} already."]})


def _subject(team: Team) -> Mapping[str, Any]:
    return {"target": f"gpu_team:{team.pk}", "target_name": team.name}


# ── Rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def current() -> TeamRules:
    """Return the rules as they are; not stored before the first change."""
    return TeamRules.objects.select_related("changed_by").first() or TeamRules(version=0)


def names() -> dict[int, str]:
    return dict(Team.objects.order_by("name").values_list("pk", "name"))


def role_scopes() -> list[tuple[str, str]]:
    """Return (scope, name) of each team to which a viewer can be limited."""
    return [(f"{TEAM}{pk}", name) for pk, name in names().items()]


def locked(team: int) -> list[int]:
    """Return the team's key if it is there; until the transaction ends it is not removed."""
    _locked()
    return list(Team.objects.filter(pk=team).values_list("pk", flat=True))


def judge(rows: Sequence[Mapping[str, str]]) -> RuleList:
    """Raises Invalid."""
    return rules.parsed(rows, {name: pk for pk, name in names().items()})


def save(rows: Sequence[Mapping[str, str]], *, by: User, version: int) -> TeamRules:
    """Replace all rules. They hold for all time that is kept. Raises NotAllowed, Invalid, Stale."""
    require_change(by)
    with transaction.atomic():
        row = _locked()
        if row.version != version:
            raise Stale("The rules were changed meanwhile. Your input is kept; saving again replaces theirs.")
        wanted, teams = judge(rows), names()
        former = rules.stored(row.rules)
        before = rules.as_text(former, teams)
        if wanted.owners() - former.owners():
            row.owners_changed_at = now()
        row.rules, row.changed_at, row.changed_by, row.version = rules.as_rows(wanted), now(), by, row.version + 1
        row.save()
        audit.record(
            by=by,
            action="gpu_team_rules.save",
            target="gpu_team_rules:1",
            target_name="rules of teams",
            before={"rules": before.splitlines()},
            after={"rules": rules.as_text(wanted, teams).splitlines()},
        )
    return row


def _locked() -> TeamRules:
    """Within the caller's transaction: changes of rules, and removals of teams, come one after another."""
    TeamRules.objects.get_or_create(only=True, defaults={"version": 0})
    return TeamRules.objects.select_for_update(of=("self",)).get()


@dataclass(frozen=True, slots=True)
class Preview:
    """Team to which the rules send what one namespace held in the last 30 days."""

    namespace: str
    team: str
    """Empty: unassigned."""
    now_team: str
    """By the rules that are saved."""
    gpu_hours: float

    @property
    def moves(self) -> bool:
        return self.team != self.now_team


def preview(wanted: RuleList, *, by: User) -> list[Preview]:
    """The most GPU-hours first; a namespace comes once for each team that its workloads go to. Raises NotAllowed."""
    require_change(by)
    saved, teams = rules.stored(current().rules), names()
    columns = ["namespace", "owner"] if wanted.needs_owner or saved.needs_owner else ["namespace"]
    uses = GpuUse.objects.filter(day__gt=periods.today() - PREVIEWED).order_by()
    held = uses.values(*columns).annotate(seconds=sum((Sum(name) for name in GpuUse.STATES[1:]), Sum("effective")))
    totals: dict[tuple[str, int | None, int | None], float] = {}
    for *key, seconds in held.values_list(*columns, "seconds"):
        place = key[0], wanted.team(*key), saved.team(*key)
        totals[place] = totals.get(place, 0.0) + seconds
    rows = [
        Preview(namespace, teams.get(team or 0, ""), teams.get(old or 0, ""), seconds / 3600)
        for (namespace, team, old), seconds in totals.items()
    ]
    return sorted(rows, key=lambda row: (-row.gpu_hours, row.namespace, row.team))
