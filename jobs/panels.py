"""What this room adds to the pages of clusters and nodes, through `common.hooks`."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest

from clusters.models import Cluster, Node
from common.hooks import Panel
from jobs.models import Freeze, Plan, Rollout, Step

SHOWN = 5


def of_node(request: HttpRequest, node: Node) -> Iterable[Panel]:
    steps = Step.objects.filter(node=node).select_related("rollout__plan__revision__profile")
    yield Panel("jobs/_node_steps.html", {"steps": steps.order_by("-rollout__number")[:SHOWN]}, order=50)


def of_cluster(request: HttpRequest, cluster: Cluster) -> Iterable[Panel]:
    rollouts = Rollout.objects.filter(cluster=cluster).select_related(
        "plan__pool__cluster", "plan__revision__profile", "started_by"
    )
    context = {
        "rollouts": rollouts[:SHOWN],
        "plans": Plan.objects.open().filter(cluster=cluster)[:SHOWN],
        "freezes": Freeze.standing(cluster.pk),
    }
    yield Panel("jobs/_cluster_jobs.html", context, order=30)
