"""Alert rules over active checks: nodes that failed one, and nodes that passed one far behind their peers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet
from django.urls import reverse

from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, SubjectKind
from common.clock import now
from gpus.models import CheckRun
from gpus.services.checks import comparison
from gpus.services.checks.catalog import CHECKS, Measure
from gpus.services.checks.comparison import Alike, Place

FAILED, FAR = "check-failed", "check-far-from-peers"
LONGEST = 500
"""Characters of an alert's text."""
_COLUMNS = (
    "check_name", "model", "gpus", "image", "program_version", "targets", "measures", "ended_at",
    "node__uid", "node__name",
)  # fmt: skip


def rules() -> Iterator[AlertRule]:
    yield AlertRule(
        FAILED,
        "Active check failed",
        "A node failed an active check, and has not passed it since. Runs without a result neither open nor close it.",
        Severity.WARNING,
        checks_failed,
        closes_after=timedelta(0),
        order=14,
    )
    yield AlertRule(
        FAR,
        "Far from its peers in an active check",
        "A node passed an active check with a throughput far below that of nodes with the same GPUs in the same check. "
        "A newer result near theirs closes it; runs without a result, and too few peers, change nothing.",
        Severity.WARNING,
        far_from_peers,
        closes_after=timedelta(0),
        order=15,
    )


def checks_failed(cluster_id: UUID, _threshold: float) -> RuleResult:
    """One condition a node, whichever checks it failed. One query."""
    rows = _newest(cluster_id).filter(outcome=CheckRun.Outcome.FAILED)
    by_node: dict[int, list[CheckRun]] = defaultdict(list)
    for run in rows.select_related("node").order_by("node__name", "check_name"):
        by_node[run.node_id].append(run)
    return RuleResult([_condition(runs) for runs in by_node.values()])


def _newest(cluster_id: UUID) -> QuerySet[CheckRun]:
    """Return the newest verdict on each present node by each check.

    A run without a verdict says nothing of the hardware: the one before it counts.
    """
    judged = CheckRun.objects.filter(status=CheckRun.Status.ENDED, outcome__in=CheckRun.VERDICTS)
    later = judged.filter(
        node=OuterRef("node"), check_name=OuterRef("check_name"), created_at__gt=OuterRef("created_at")
    )
    return judged.filter(~Exists(later), cluster=cluster_id, node__gone_at=None)


def _condition(runs: list[CheckRun]) -> AlertCondition:
    node = runs[0].node
    sentences = [
        f"{_title(run)}: {run.reason.rstrip('.')}." if run.reason else f"{_title(run)} failed." for run in runs
    ]
    return AlertCondition(
        SubjectKind.NODE,
        node.uid,
        node.name,
        " ".join(sentences)[:LONGEST],
        mend="Read what the check says, cordon the node where its hardware is at fault, and run the check again.",
        link=reverse("clusters:node", args=[node.pk]),
        node=node.pk,
        since=min(run.ended_at for run in runs if run.ended_at),
        figures={"checks": len(runs), "failed": ",".join(run.check_name for run in runs)},
    )


def _title(run: CheckRun) -> str:
    return CHECKS[run.check_name].title if run.check_name in CHECKS else run.check_name


# ── Far from its peers ────────────────────────────────────────────────────────────────────────────────────────────────
class _Figure(NamedTuple):
    run: CheckRun
    measure: Measure
    value: float


class _Lag(NamedTuple):
    """A figure of a node that is far below its peers'."""

    figure: _Figure
    place: Place


def far_from_peers(cluster_id: UUID, _threshold: float) -> RuleResult:
    """One condition a node, whichever of its newest results are far below. One query."""
    groups, unjudged = _figures(cluster_id)
    lags: dict[str, list[_Lag]] = defaultdict(list)
    for figures in groups:
        if len(figures) <= comparison.FEWEST:
            unjudged.update(figure.run.node.uid for figure in figures)
        values = [figure.value for figure in figures]
        for index, place in comparison.far_below(values):
            lags[figures[index].run.node.uid].append(_Lag(figures[index], place))
    return RuleResult(list(map(_far, lags.values())), unknown=frozenset(unjudged))


def _figures(cluster_id: UUID) -> tuple[Sequence[Sequence[_Figure]], set[str]]:
    """Return the newest figures of nodes that passed, one group for those alike, and nodes whose last is no figure,
    or too old.

    Throughputs alone: how long the slowest of a few tries took differs between equal nodes by chance.
    """
    measures = {name: [m for m in check.measures if m.is_higher_better] for name, check in CHECKS.items()}
    groups: dict[tuple[Alike, str], list[_Figure]] = defaultdict(list)
    unjudged, since = set(), now() - comparison.COMPARED_FOR
    names = [name for name, its in measures.items() if its]
    rows = _newest(cluster_id).filter(outcome=CheckRun.Outcome.PASSED, check_name__in=names).select_related("node")
    for run in rows.only(*_COLUMNS).order_by("node__name", "check_name", "pk"):
        for measure in measures[run.check_name]:
            value = comparison.figure(run, measure)
            if value is None or run.ended_at is None or run.ended_at < since:
                unjudged.add(run.node.uid)
            else:
                groups[Alike.of(run), measure.name].append(_Figure(run, measure, value))
    return list(groups.values()), unjudged


def _far(lags: Sequence[_Lag]) -> AlertCondition:
    lags = sorted(lags, key=lambda lag: lag.place.gap)
    node, worst = lags[0].figure.run.node, lags[0].place
    return AlertCondition(
        SubjectKind.NODE,
        node.uid,
        node.name,
        _joined(map(_sentence, lags)),
        mend="Run the check again. Where the node stays behind, compare its settings, clocks and links with a peer's.",
        link=reverse("clusters:node", args=[node.pk]),
        node=node.pk,
        since=min(lag.figure.run.ended_at for lag in lags if lag.figure.run.ended_at),
        figures={
            "measures": ",".join(f"{lag.figure.run.check_name}.{lag.figure.measure.name}" for lag in lags),
            "gap": round(worst.gap, 4),
            "peers": worst.peers,
        },
    )


def _joined(sentences: Iterable[str]) -> str:
    """Return as many whole sentences as an alert holds, the first ones first."""
    text = ""
    for sentence in sentences:
        longer = f"{text} {sentence}".strip()
        if text and len(longer) > LONGEST:
            break
        text = longer
    return text[:LONGEST]


def _sentence(lag: _Lag) -> str:
    figure, place = lag
    return (
        f"{_title(figure.run)}: {figure.measure.title} {_number(figure.value)} {figure.measure.unit}, "
        f"{-place.gap:.0%} below the usual {_number(place.usual)} of {place.peers:,} nodes like it.".replace("%", " %")
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
