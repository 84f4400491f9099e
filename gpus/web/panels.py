"""GPU panels on the pages of nodes, clusters, compliance, rollouts and profiles, through `common.hooks`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.http import urlencode

from accounts.models import User
from clusters.models import Cluster, Node
from common.hooks import Panel
from gpus.effects import reports as effect_reports
from gpus.models import NodePace
from gpus.peers import reports as peer_reports
from gpus.services.checks import reports as check_reports
from gpus.web import context
from jobs.models import Plan, Rollout
from profiles.models import Profile


def of_node(request: HttpRequest, node: Node) -> Iterable[Panel]:
    assert isinstance(request.user, User)
    if node.gone_at is None and (node_context := context.of_node(request.user, node, request.GET)) is not None:
        yield Panel("gpus/_node_gpus.html", node_context, order=5)
        yield Panel("gpus/_host_later.html", {"node": node}, order=6)
    if node.gone_at is None and node.gpu_count and (lines := check_reports.of_node(request.user, node)):
        yield Panel("gpus/_node_checks.html", {"node": node, "lines": lines}, order=7)


def of_cluster(_request: HttpRequest, cluster: Cluster) -> Iterable[Panel]:
    """Nodes that are non-compliant and underperforming; nothing where none was looked at."""
    yield Panel("gpus/_pace_cluster.html", {"query": urlencode({"cluster": cluster.name})}, order=22)


def numbers_of_cluster(cluster: Cluster) -> Iterable[tuple[str, QuerySet[Any]]]:
    yield "paces", NodePace.objects.filter(cluster=cluster)


def of_compliance(request: HttpRequest, params: Mapping[str, str]) -> Iterable[Panel]:
    """The same of what the page is narrowed to, at once: three queries."""
    assert isinstance(request.user, User)
    columns = {"cluster": "cluster__name", "environment": "cluster__environment"}
    given = {name: params[name] for name in columns if params.get(name)}
    within = Q(**{columns[name]: value for name, value in given.items()})
    card = peer_reports.card(request.user, within=within, query=urlencode(given))
    if card["total"]:
        yield Panel("gpus/_pace.html", card, order=20)


def of_plan(_request: HttpRequest, plan: Plan) -> Iterable[Panel]:
    """Forecast of its study, which the page asks for later: no query here."""
    if plan.status in Plan.NEXT and plan.summary.get("nodes") and plan.summary.get("gpus"):
        yield Panel("gpus/_forecast_later.html", {"plan": plan}, order=10)


def of_rollout(request: HttpRequest, rollout: Rollout) -> Iterable[Panel]:
    assert isinstance(request.user, User)
    if (effect := effect_reports.of_rollout(request.user, rollout)) is not None:
        yield Panel("gpus/_effect.html", effect, order=10)
        if not rollout.is_live:
            yield Panel("gpus/_rollout_starts_later.html", {"rollout": rollout}, order=11)


def of_profile(request: HttpRequest, profile: Profile) -> Iterable[Panel]:
    assert isinstance(request.user, User)
    if rows := effect_reports.of_profile(request.user, profile):
        yield Panel("gpus/_profile_effects.html", {"rows": rows}, order=10)
