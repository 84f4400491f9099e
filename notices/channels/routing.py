"""Routing of notices to channels: notices become delivery rows, which are sent later. No network here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from clusters.models import Cluster
from common.alerting import Severity
from common.clock import now
from notices import members
from notices.channels import incidents
from notices.models import Alert, Channel, Delivery

MOST_NAMED = 100
"""Alerts in one notice; the counts are of all."""
RANK = (Severity.WARNING, Severity.CRITICAL)


def hearing(what: Channel.What, cluster: Cluster | None) -> list[Channel]:
    """Channels that are on and want this kind of thing of this cluster. One query."""
    return [channel for channel in covering(cluster) if what in channel.what]


def covering(cluster: Cluster | None) -> list[Channel]:
    """Channels that are on and are for this cluster. One query."""
    rows = Channel.objects.filter(is_enabled=True).select_related("cluster").order_by("name")
    return [channel for channel in rows if covers(channel, cluster)]


def covers(channel: Channel, cluster: Cluster | None) -> bool:
    if channel.cluster_id is not None:
        return cluster is not None and cluster.pk == channel.cluster_id
    return not channel.environment or (cluster is not None and cluster.environment == channel.environment)


def wants(channel: Channel, alert: Alert) -> bool:
    if RANK.index(Severity(alert.severity)) < RANK.index(Severity(channel.least_severity)):
        return False
    return not channel.namespaces or alert.namespace in channel.namespaces


def tell_alerts(cluster_id: UUID, opened: Sequence[Alert], closed: Sequence[Alert]) -> None:
    """One delivery a channel for all that changed at one look: a rack that fails is one notice, not a hundred.

    Where alerts become incidents, every one has to be sent, in several deliveries if need be, and the end also of
    those that were silenced since: their incidents would stay open.
    """
    if not opened and not closed:
        return
    cluster = Cluster.objects.get(pk=cluster_id)
    for channel in hearing(Channel.What.ALERTS, cluster):
        is_incident = channel.kind == Channel.Kind.PAGERDUTY
        new = [alert for alert in opened if wants(channel, alert) and not alert.is_silenced]
        over = [alert for alert in closed if wants(channel, alert) and (is_incident or not alert.is_silenced)]
        at_once = incidents.AT_ONCE if is_incident else max(len(new), len(over), 1)
        for start in range(0, max(len(new), len(over)), at_once):
            begun, ended = (alerts[start : start + at_once] for alerts in (new, over))
            queue(channel, Channel.What.ALERTS, _title(cluster, begun, ended), _alerts(cluster, begun, ended))


def queue(channel: Channel, event: str, title: str, body: Mapping[str, Any], at: datetime | None = None) -> Delivery:
    title = title if len(title) <= 200 else f"{title[:199]}…"
    return Delivery.objects.create(
        channel=channel, event=event, title=title, body={"event": event, "title": title, **body}, due_at=at or now()
    )


# ── What a notice says ────────────────────────────────────────────────────────────────────────────────────────────────
def _title(cluster: Cluster, opened: Sequence[Alert], closed: Sequence[Alert]) -> str:
    if len(opened) + len(closed) == 1:
        word = "opened" if opened else "closed"
        alert = (opened or closed)[0]
        return f"{cluster}: {alert.subject_name}: {alert.sentence}" if opened else f"{cluster}: {word}: {alert}"
    counted = [f"{len(rows)} {word}" for rows, word in ((opened, "opened"), (closed, "closed")) if rows]
    return f"{cluster}: alerts {' and '.join(counted)}"


def _alerts(cluster: Cluster, opened: Sequence[Alert], closed: Sequence[Alert]) -> dict[str, Any]:
    return {
        "cluster": cluster_said(cluster),
        "opened": [alert_fields(alert) for alert in _worst_first(opened)[:MOST_NAMED]],
        "closed": [alert_fields(alert) for alert in _worst_first(closed)[:MOST_NAMED]],
        "counts": {"opened": len(opened), "closed": len(closed)},
        "link": absolute(f"{reverse('notices:alerts')}?cluster={cluster.name}"),
    }


def _worst_first(alerts: Iterable[Alert]) -> list[Alert]:
    return sorted(alerts, key=lambda a: (-RANK.index(Severity(a.severity)), a.rule, a.subject_name))


def cluster_said(cluster: Cluster) -> dict[str, str]:
    return {"id": str(cluster.pk), "name": cluster.name, "environment": cluster.environment}


def alert_fields(alert: Alert) -> dict[str, Any]:
    """One alert, for programs."""
    return {
        "id": str(alert.pk),
        "rule": alert.rule,
        "severity": alert.severity,
        "subject": {"kind": alert.subject_kind, "id": alert.subject, "name": alert.subject_name},
        "namespace": alert.namespace,
        "sentence": alert.sentence,
        "what_to_do": alert.mend,
        "figures": alert.figures,
        "members": [_member(entry) for entry in members.present(alert.members)[: members.TOLD]],
        "member_count": len(members.present(alert.members)),
        "began_at": alert.began_at.isoformat(),
        "opened_at": alert.opened_at.isoformat(),
        "closed_at": alert.closed_at.isoformat() if alert.closed_at else None,
        "link": absolute(reverse("notices:alert", args=[alert.pk])),
    }


def _member(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("name", "since", "figures")}


def absolute(path: str) -> str:
    return f"{str(settings.BASE_URL).rstrip('/')}{path}"
