"""Panels of this room on a cluster's page, through `common.hooks`."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest

from clusters.models import Cluster
from common.hooks import Panel


def of_cluster(request: HttpRequest, cluster: Cluster) -> Iterable[Panel]:
    """Yield the panel that leads to its components' own values; no query."""
    yield Panel("components/_cluster.html", {"cluster": cluster}, order=85)
