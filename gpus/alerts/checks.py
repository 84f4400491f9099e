"""The alert rule over active checks: nodes that failed one, and have not passed it since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from django.db.models import Exists, OuterRef
from django.urls import reverse

from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, SubjectKind
from gpus.models import CheckRun
from gpus.services.checks.catalog import CHECKS

FAILED = "check-failed"


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


def checks_failed(cluster_id: UUID, _threshold: float) -> RuleResult:
    """One condition a node, whichever checks it failed. One query."""
    # A run without a verdict says nothing of the hardware: the one before it counts.
    judged = CheckRun.objects.filter(status=CheckRun.Status.ENDED, outcome__in=CheckRun.VERDICTS)
    later = judged.filter(
        node=OuterRef("node"), check_name=OuterRef("check_name"), created_at__gt=OuterRef("created_at")
    )
    rows = judged.filter(~Exists(later), cluster=cluster_id, outcome=CheckRun.Outcome.FAILED, node__gone_at=None)
    by_node: dict[int, list[CheckRun]] = defaultdict(list)
    for run in rows.select_related("node").order_by("node__name", "check_name"):
        by_node[run.node_id].append(run)
    return RuleResult([_condition(runs) for runs in by_node.values()])


def _condition(runs: list[CheckRun]) -> AlertCondition:
    node = runs[0].node
    sentences = [
        f"{_title(run)}: {run.reason.rstrip('.')}." if run.reason else f"{_title(run)} failed." for run in runs
    ]
    return AlertCondition(
        SubjectKind.NODE,
        node.uid,
        node.name,
        " ".join(sentences)[:500],
        mend="Read what the check says, cordon the node where its hardware is at fault, and run the check again.",
        link=reverse("clusters:node", args=[node.pk]),
        node=node.pk,
        since=min(run.ended_at for run in runs if run.ended_at),
        figures={"checks": len(runs), "failed": ",".join(run.check_name for run in runs)},
    )


def _title(run: CheckRun) -> str:
    return CHECKS[run.check_name].title if run.check_name in CHECKS else run.check_name
