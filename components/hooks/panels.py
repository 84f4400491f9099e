"""What this room adds to a cluster's page, through `common.hooks`."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest

from clusters.models import Cluster
from common.hooks import Panel


def of_cluster(request: HttpRequest, cluster: Cluster) -> Iterable[Panel]:
    """Where its components' own values are; no query."""
    yield Panel("components/_cluster.html", {"cluster": cluster}, order=85)
