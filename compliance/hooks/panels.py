"""Compliance panels on the pages of clusters and nodes, through `common.hooks`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from accounts.models import User
from clusters.models import Cluster, Node
from common.hooks import Panel
from compliance.models import HeldNode, NodeStanding, Outlier, OutlierNode, SettingState
from compliance.reports import component_pages, exports, pages, selectors
from compliance.services import held_nodes


def of_node(request: HttpRequest, node: Node) -> Iterable[Panel]:
    """Each setting's values, who won, and where the node differs from its peers; then what happened to it."""
    assert isinstance(request.user, User)
    if held_nodes.has_taint(node) and not node.gone_at:
        hold = HeldNode.objects.filter(pk=node.pk).first()
        has_target = NodeStanding.objects.filter(pk=node.pk).exclude(state=NodeStanding.UNASSIGNED).exists()
        has_agent = bool(node.cluster.equipment.get("hold_policy"))
        context = {"node": node, "hold": hold, "has_target": has_target, "has_agent": has_agent}
        yield Panel("compliance/_node_hold.html", context, order=0)
    yield Panel("compliance/_node_settings.html", node_settings(request.user, node), order=10)
    yield Panel("compliance/_timeline.html", {"url": reverse("compliance:node_timeline", args=[node.pk])}, order=90)


def node_settings(user: User, node: Node) -> dict[str, Any]:
    """Return a node's settings panel: five queries, or seven while the node is not at its pool's target."""
    judged = selectors.nodes(user).filter(pk=node.pk).first()
    expectation = getattr(judged, "expectation", None)
    rows = sorted(
        SettingState.objects.filter(node=node).annotate(shown=selectors.shown_of_setting()),
        key=lambda row: (selectors.RANK[row.state], row.key),
    )
    numbers = selectors.rollout_numbers([*(row.rollout_id for row in rows), getattr(expectation, "rollout_id", None)])
    for row in rows:
        row.rollout_number = numbers.get(row.rollout_id) if row.rollout_id else None
    return {
        "node": node,
        "shown": judged.shown if judged else "",
        "why": exports.why(judged) if judged else "",
        "revision": expectation.revision if expectation else None,
        "since": expectation.since if expectation else None,
        "rollout": numbers.get(expectation.rollout_id) if expectation else None,
        "settings": rows,
        "weakening": sum(1 for row in rows if row.weak),
        "counts": Counter(row.shown for row in rows),
        "is_known": bool(judged and judged.shown != "unknown"),
        "joining": pages.joining(judged) if judged else None,
        "assignment": pages.assignment_of(judged) if judged else None,
        "mode": node.tuning.mode if hasattr(node, "tuning") else "",
        "outliers": list(OutlierNode.objects.filter(node=node).select_related("outlier").order_by("outlier__key")[:20]),
    }


def numbers_of_cluster(cluster: Cluster) -> Iterable[tuple[str, QuerySet[Any]]]:
    yield "outliers", Outlier.objects.filter(cluster=cluster)


def of_component(request: HttpRequest, name: str) -> Iterable[Panel]:
    """Yield the panel of a component's clusters and its state in each."""
    assert isinstance(request.user, User)
    if (context := component_pages.everywhere(request.user, name))["rows"]:
        yield Panel("compliance/_components.html", context)


def of_cluster(request: HttpRequest, cluster: Cluster) -> Iterable[Panel]:
    """Nodes by compliance, and each pool's target; beside them, never merged with them, its components."""
    assert isinstance(request.user, User)
    yield Panel("compliance/_cluster_compliance.html", pages.cluster_targets(request.user, cluster), order=20)
    if (components := component_pages.of_cluster(request.user, cluster))["rows"]:
        yield Panel("compliance/_components.html", components, order=21)
    yield Panel(
        "compliance/_timeline.html", {"url": reverse("compliance:cluster_timeline", args=[cluster.pk])}, order=90
    )
