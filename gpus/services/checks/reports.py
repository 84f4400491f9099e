"""Results of checks on a node: the last results, those before them, and its place among its peers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import django_filters
from django.db.models import Q, QuerySet

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Node
from common.clock import now
from common.filtering import ClusterReferenceFilter
from gpus.models import CheckImage, CheckRun
from gpus.services.checks import comparison
from gpus.services.checks.catalog import CHECKS, Check, Measure
from gpus.services.checks.comparison import Place

MOST_COMPARED = 5_000
TREND = 10


@dataclass(frozen=True, slots=True)
class CatalogLine:
    check: Check
    image: str
    """Empty: an administrator has not named one, so the check is off."""


@dataclass(frozen=True, slots=True)
class MeasureLine:
    """One figure of a node."""

    measure: Measure
    value: float
    place: Place | None
    trend: tuple[float, ...] = ()
    """Of the last runs, the oldest first; this one is the last."""


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One check of one node."""

    check: Check
    last: CheckRun
    """The newest run, also one without a result."""
    lines: Sequence[MeasureLine]
    """Of the newest run that has figures."""

    @property
    def far_below(self) -> list[MeasureLine]:
        return [line for line in self.lines if line.place and line.place.is_far_below]


def catalog() -> list[CatalogLine]:
    images = dict(CheckImage.objects.values_list("check_name", "image"))
    return [CatalogLine(check, images.get(name, "")) for name, check in CHECKS.items()]


def runs(user: User) -> QuerySet[CheckRun]:
    return restrict(CheckRun.objects.select_related("cluster", "node"), user)


class CheckRunFilter(django_filters.FilterSet):  # type: ignore[misc]
    check = django_filters.ChoiceFilter(field_name="check_name", choices=[(c.name, c.title) for c in CHECKS.values()])
    status = django_filters.MultipleChoiceFilter(choices=CheckRun.Status.choices)
    outcome = django_filters.MultipleChoiceFilter(choices=CheckRun.Outcome.choices)
    cluster = ClusterReferenceFilter()
    node = django_filters.NumberFilter(field_name="node_id", help_text="Its id.")
    name = django_filters.CharFilter(
        field_name="node__name", lookup_expr="icontains", max_length=253, help_text="A part of the node's name."
    )

    class Meta:
        model = CheckRun
        fields: list[str] = []


def of_node(user: User, node: Node) -> list[CheckLine]:
    """Each check that ever ran here. Two queries."""
    by_check: dict[str, list[CheckRun]] = defaultdict(list)
    recent = CheckRun.objects.filter(node=node, check_name__in=CHECKS).order_by("-created_at", "pk")
    for run in recent[: 20 * len(CHECKS)]:
        by_check[run.check_name].append(run)
    if not by_check:
        return []
    peers = _peers(user, [run for rows in by_check.values() for run in _with_figures(rows)[:1]])
    return [_line(CHECKS[name], by_check[name], peers) for name in CHECKS if name in by_check]


def _line(check: Check, rows: Sequence[CheckRun], peers: Mapping[tuple[str, str], list[float]]) -> CheckLine:
    with_figures = _with_figures(rows)[:TREND]
    lines = []
    for measure in check.measures:
        values = [float(run.measures[measure.name]) for run in with_figures if measure.name in run.measures]
        if values:
            place = comparison.place(measure, values[0], peers.get((check.name, measure.name), []))
            lines.append(MeasureLine(measure, values[0], place, tuple(reversed(values))))
    return CheckLine(check, rows[0], lines)


def _with_figures(rows: Sequence[CheckRun]) -> list[CheckRun]:
    return [run for run in rows if run.measures and run.outcome in CheckRun.VERDICTS]


def _peers(user: User, of: Sequence[CheckRun]) -> dict[tuple[str, str], list[float]]:
    """Return, by check and measure, the newest value of each other node that is comparison.Alike. One query."""
    if not of:
        return {}
    alike = Q(pk__in=())
    for run in of:  # a check that takes no GPU has none, on the same node
        alike |= Q(
            check_name=run.check_name, model=run.model, gpus=run.gpus, image=run.image,
            program_version=run.program_version, targets=run.targets,
        )  # fmt: skip
    rows = restrict(CheckRun.objects.all(), user).filter(
        alike,
        outcome__in=CheckRun.VERDICTS,
        ended_at__gte=now() - comparison.COMPARED_FOR,
        node__gone_at=None,
    )
    rows = rows.exclude(node=of[0].node_id).exclude(measures={}).order_by("-ended_at", "pk")
    seen: set[tuple[str, int]] = set()
    out: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name, node_id, measures in rows.values_list("check_name", "node_id", "measures")[:MOST_COMPARED]:
        if (name, node_id) not in seen:
            seen.add((name, node_id))
            for measure, value in measures.items():
                out[name, measure].append(float(value))
    return out
