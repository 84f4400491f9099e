"""Clusters and nodes in the search: an answer to `common.hooks.search`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse

from accounts.permissions import restrict
from clusters.models import Cluster, Node
from common.search import EACH, Needle, SearchGroup, SearchResult


def find(user: Any, needle: Needle) -> Iterable[SearchGroup]:
    yield _clusters(user, needle)
    yield _nodes(user, needle)


def _clusters(user: Any, needle: Needle) -> SearchGroup:
    """Find clusters by any part of the name (there are a hundred at most), or by either identifier."""
    named = Q(name__icontains=needle.text) | needle.is_of("id")
    if needle.digits:
        named |= needle.begins("uid", needle.text.lower())
    rows = restrict(Cluster.objects.filter(named), user, prefix="")[:EACH]
    return SearchGroup(
        "cluster",
        "Clusters",
        "topology-star-3",
        20,
        [SearchResult(str(c.pk), c.name, reverse("clusters:cluster", args=[c.pk]), c.environment) for c in rows],
    )


def _nodes(user: Any, needle: Needle) -> SearchGroup:
    """Present ones by how the name begins; by UID also those that are gone or were replaced."""
    text = needle.text.lower()
    present = restrict(Node.objects.present().filter(needle.begins("name", text)), user)
    rows = list(present.select_related("cluster").only(*_SHOWN).order_by("name", "pk")[: EACH + 1])
    if needle.digits and not rows:
        there = restrict(Cluster.objects.order_by(), user, prefix="").values("pk")
        by_uid = Node.objects.filter(needle.begins("uid", text), cluster__in=there)
        rows = list(by_uid.select_related("cluster").only(*_SHOWN).order_by("uid")[: EACH + 1])
    more = f"{reverse('clusters:nodes')}?{urlencode({'q': needle.text})}"
    results = [SearchResult(str(n.pk), n.name, reverse("clusters:node", args=[n.pk]), _note(n)) for n in rows[:EACH]]
    return SearchGroup("node", "Nodes", "server", 10, results, more if len(rows) > EACH else "")


_SHOWN = ("name", "uid", "gone_at", "is_ready", "cluster__name")


def _note(node: Node) -> str:
    return f"{node.cluster.name}{', gone' if node.gone_at else '' if node.is_ready else ', not ready'}"
