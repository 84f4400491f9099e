"""Panels that this room adds to the pages of clusters and nodes, through `common.hooks`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.models import User
from clusters.models import Cluster, Node
from common.hooks import Panel
from jobs.models import Freeze, Step
from jobs.reports import counts, overview
from jobs.rollouts import takeovers

SHOWN = 5


def of_node(request: HttpRequest, node: Node) -> Iterable[Panel]:
    steps = Step.objects.filter(node=node).select_related("rollout__plan__revision__profile")
    yield Panel("jobs/_node_steps.html", {"steps": steps.order_by("-rollout__number")[:SHOWN]}, order=50)


def numbers_of_cluster(cluster: Cluster) -> Iterable[tuple[str, QuerySet[Any]]]:
    yield "newer_objects", takeovers.newer_tunings(cluster)
    yield "newer_cordons", takeovers.newer_cordons(cluster)


def of_cluster(request: HttpRequest, cluster: Cluster) -> Iterable[Panel]:
    """The operation axis and what needs attention here; then the newest rollouts, open plans and freezes."""
    assert isinstance(request.user, User)
    work = overview.cluster_work(request.user, [cluster])
    live = work.live[0] if work.live else None
    row: Any = cluster
    row.live_rollouts = work.live  # what jobs.hooks.blockers says on the same page is of the same moment
    yield Panel(
        "jobs/_cluster_tile.html",
        {"live": live, "cluster": cluster, "standing": counts.count_rollouts(work.live)},
        order=10,
        place="tile",
    )
    yield Panel("jobs/_cluster_newer.html", {"cluster": cluster}, order=5, place="lead")
    matters = overview.attention_items(request.user, [cluster], work)
    yield Panel("jobs/_cluster_attention.html", {"matters": matters}, order=10, place="lead")
    context = {
        "rollouts": work.newest,
        "plans": work.plans["open"],
        "freezes": Freeze.standing(cluster.pk),
    }
    yield Panel("jobs/_cluster_jobs.html", context, order=30)
