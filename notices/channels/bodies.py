"""Texts and bodies of notices, as programs and people receive them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.urls import reverse

from clusters.models import Cluster
from common.alerting import Severity
from notices import members
from notices.models import Alert

MOST_NAMED = 100
"""Alerts in one notice; the counts are of all."""
RANK = (Severity.WARNING, Severity.CRITICAL)
LONGEST_TITLE = 200
"""As the column."""


def shortened(title: str) -> str:
    return title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"


def alerts_title(cluster: Cluster, opened: Sequence[Alert], closed: Sequence[Alert]) -> str:
    if len(opened) + len(closed) == 1:
        word = "opened" if opened else "closed"
        alert = (opened or closed)[0]
        return f"{cluster}: {alert.subject_name}: {alert.sentence}" if opened else f"{cluster}: {word}: {alert}"
    counted = [f"{len(rows)} {word}" for rows, word in ((opened, "opened"), (closed, "closed")) if rows]
    return f"{cluster}: alerts {' and '.join(counted)}"


def alerts_body(cluster: Cluster, opened: Sequence[Alert], closed: Sequence[Alert]) -> dict[str, Any]:
    return {
        "cluster": cluster_fields(cluster),
        "opened": [alert_fields(alert) for alert in _worst_first(opened)[:MOST_NAMED]],
        "closed": [alert_fields(alert) for alert in _worst_first(closed)[:MOST_NAMED]],
        "counts": {"opened": len(opened), "closed": len(closed)},
        "link": absolute(f"{reverse('notices:alerts')}?cluster={cluster.name}"),
    }


def _worst_first(alerts: Iterable[Alert]) -> list[Alert]:
    return sorted(alerts, key=lambda a: (-RANK.index(Severity(a.severity)), a.rule, a.subject_name))


def cluster_fields(cluster: Cluster) -> dict[str, str]:
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
