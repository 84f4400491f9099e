"""What this room adds to the pages of nodes and clusters, through `common.hooks`."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest

from accounts.models import User
from clusters.models import Node
from common.hooks import Panel
from gpus import pages


def of_node(request: HttpRequest, node: Node) -> Iterable[Panel]:
    assert isinstance(request.user, User)
    if node.gone_at is None and (found := pages.of_node(request.user, node)) is not None:
        yield Panel("gpus/_node_gpus.html", found, order=5)
