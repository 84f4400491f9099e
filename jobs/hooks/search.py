"""Plans and rollouts in the search: an answer to `common.hooks.search`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse

from common.search import EACH, Needle, SearchGroup, SearchResult
from jobs.models import Plan, Rollout, Step
from jobs.reports import selectors

_HEAVY_PLAN = ("summary", "findings", "strategy", "selector")


def find(user: Any, needle: Needle) -> Iterable[SearchGroup]:
    yield _plans(user, needle)
    yield _rollouts(user, needle)


def _plans(user: Any, needle: Needle) -> SearchGroup:
    """Find plans by number, identifier or digest; else the newest whose profile's or pool's name begins so."""
    named = needle.begins("revision__profile__name") | needle.begins("pool__name")
    condition = named | needle.is_of() | _numbered(needle, "P")
    if needle.digest:
        condition |= needle.begins("digest", needle.digest)
    rows = list(selectors.visible_plans(user).filter(condition).defer(*_HEAVY_PLAN, "revision__source")[: EACH + 1])
    exact = sorted(rows, key=lambda plan: (plan.number != needle.number("P"), -plan.number))
    hits = [
        SearchResult(
            str(p.pk), str(p), reverse("jobs:plan", args=[p.number]), f"{p.revision} to {p.pool}, {_status(p)}"
        )
        for p in exact[:EACH]
    ]
    more = f"{reverse('jobs:plans')}?{urlencode({'q': needle.text})}" if len(rows) > EACH else ""
    return SearchGroup("plan", "Plans", "file-diff", 40, hits, more)


def _rollouts(user: Any, needle: Needle) -> SearchGroup:
    """Find rollouts by number or identifier, also of their steps, which a NodeTuning names; else by profile or pool."""
    named = needle.begins("plan__revision__profile__name") | needle.begins("plan__pool__name")
    condition = named | needle.is_of() | _numbered(needle, "R") | _numbered(needle, "P", "plan__number")
    if needle.uuids:
        condition |= Q(pk__in=Step.objects.filter(needle.is_of()).values("rollout"))
    heavy = (*(f"plan__{name}" for name in _HEAVY_PLAN), "plan__revision__source")
    rows = list(selectors.visible_rollouts(user).filter(condition).defer(*heavy)[: EACH + 1])
    exact = sorted(rows, key=lambda rollout: (rollout.number != needle.number("R"), -rollout.number))
    hits = [
        SearchResult(
            str(r.pk), str(r), reverse("jobs:rollout", args=[r.number]),
            f"{r.plan.revision} to {r.plan.pool}, {_status(r)}",
        )
        for r in exact[:EACH]
    ]  # fmt: skip
    more = f"{reverse('jobs:rollouts')}?{urlencode({'q': needle.text})}" if len(rows) > EACH else ""
    return SearchGroup("rollout", "Rollouts", "player-track-next", 50, hits, more)


def _numbered(needle: Needle, letter: str, column: str = "number") -> Q:
    number = needle.number(letter)
    return Q(pk__in=()) if number is None else Q(**{column: number})


def _status(row: Plan | Rollout) -> str:
    return row.state_word if isinstance(row, Rollout) else str(row.get_status_display()).lower()
