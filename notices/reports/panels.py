"""Alert panels on the overview and the pages of clusters and nodes, through `common.hooks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.models import User
from clusters.models import Cluster, Node
from common.hooks import Panel
from notices.alerts import rulebook
from notices.forwarding import shipping
from notices.models import Alert
from notices.reports import selectors

SHOWN = 5


def of_overview(request: HttpRequest) -> Iterable[Panel]:
    """Open alerts unacknowledged; nothing where there are none.

    Those that "Needs attention" has already are left out.
    """
    assert isinstance(request.user, User)
    rows = selectors.alerts(request.user).filter(pk__in=selectors.waiting(request.user).order_by().values("pk"))
    rows = rows.exclude(rule__in=[rule.name for rule in rulebook.offered().values() if rule.is_told_above])
    alerts = list(selectors.ALERT_ORDERS.chosen("").of(rows)[: SHOWN + 1])
    if alerts:
        yield Panel("notices/_open.html", _shown(alerts, "?status=open&waiting=true"))


def of_cluster(_request: HttpRequest, _cluster: Cluster) -> Iterable[Panel]:
    """Yield the panel of a cluster's open alerts; the page counts them together with its other counts."""
    yield Panel("notices/_cluster.html", {}, order=15, place="lead")


def numbers_of_cluster(cluster: Cluster) -> Iterable[tuple[str, QuerySet[Any]]]:
    yield "alerts", Alert.objects.open().filter(cluster=cluster)


def of_node(_request: HttpRequest, node: Node) -> Iterable[Panel]:
    rows = Alert.objects.open().filter(node=node).select_related("cluster").order_by("severity", "-opened_at", "pk")
    alerts = list(rows[: SHOWN + 1])
    if alerts:
        yield Panel("notices/_open.html", _shown(alerts, f"?status=open&node={node.pk}") | {"alone": True}, order=1)


def of_audit() -> Iterable[Panel]:
    """Yield how far each destination of the audit record is; nothing where none is set up."""
    if standings := shipping.standings():
        yield Panel("notices/_forwarding.html", {"standings": standings})


def _shown(alerts: Sequence[Alert], query: str) -> dict[str, Any]:
    return {"alerts": alerts[:SHOWN], "has_more": len(alerts) > SHOWN, "query": query, "alone": False}
