"""Alert rules of compliance, as `notices` evaluates them: nodes that drifted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from django.urls import reverse

from clusters.models import Cluster, Node
from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, SubjectKind
from common.look import sign
from compliance.models import SettingState
from compliance.reports import selectors

DRIFT = "drift"


def rules() -> Iterable[AlertRule]:
    yield AlertRule(
        DRIFT,
        "Drift",
        "A node's kernel reports another value than approved{lasting}.",
        Severity.WARNING,
        drifted,
        opens_after=timedelta(minutes=10),
        closes_after=timedelta(minutes=2),
        order=60,
        is_told_above=True,
    )


def drifted(cluster_id: UUID, _threshold: float) -> RuleResult:
    """Report the nodes that drifted. Four queries, independent of the number of nodes."""
    cluster = Cluster.objects.get(pk=cluster_id)
    if not cluster.is_current:
        return RuleResult(blind=cluster.why_unknown)
    present = Node.objects.present().filter(cluster=cluster_id)
    nodes = list(present.filter(selectors.is_shown("drifted")).order_by("name").only("pk", "uid", "name"))
    states = SettingState.objects.filter(state=SettingState.State.DRIFTED, node__cluster=cluster_id, node__gone_at=None)
    by_node: dict[int, list[SettingState]] = {node.pk: [] for node in nodes}
    for state in states.order_by("since", "key"):
        if state.node_id in by_node:
            by_node[state.node_id].append(state)
    unknown = present.filter(selectors.is_shown("unknown")).values_list("uid", flat=True)
    return RuleResult([_condition(node, by_node[node.pk]) for node in nodes], unknown=frozenset(unknown))


def _condition(node: Node, states: Sequence[SettingState]) -> AlertCondition:
    sentence = "Something differs from what was approved."
    if states:
        first = states[0]
        effective = "absent" if first.effective is None else first.effective
        approved = f"{sign(first.operator)} {first.desired[:100]}".removeprefix("= ")
        sentence = f"{first.key} is {effective[:100]}, approved value: {approved}."
        if first.won_by:
            sentence += f" {first.won_by} sets it."
        if len(states) > 1:
            sentence += f" {len(states) - 1} more setting{'s differ' if len(states) > 2 else ' differs'}."
    return AlertCondition(
        SubjectKind.NODE,
        node.uid,
        node.name,
        sentence,
        mend="Find the writer on the node's page and remove it, or plan the same revision again.",
        link=reverse("clusters:node", args=[node.pk]),
        node=node.pk,
        figures={"settings": len(states)},
    )
