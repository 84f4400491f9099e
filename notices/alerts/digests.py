"""Once a day, what is held idle: every namespace with its pods, since when, and what that came to within the day.

A channel that names namespaces gets theirs alone: that is a namespace's own digest. Nothing idle, nothing sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from common.clock import now
from notices.channels import bodies, routing, subscriptions
from notices.models import Alert, Channel

RULE = "held-idle"
"""The rule whose alerts it is made of: each is of pods that hold GPUs idle."""
DAY = timedelta(days=1)
MOST_NAMED = 500


class _Stretch(NamedTuple):
    """Time in which one pod held GPUs idle."""

    pod: str
    since: datetime
    left: datetime | None
    """None: it holds them still."""
    figures: Mapping[str, Any]


def send_due() -> int:
    """Queues the digest of every channel whose hour has come today. Returns how many."""
    at, count = now(), 0
    for channel in Channel.objects.filter(is_enabled=True, digest_hour__lte=at.hour).exclude(digested_on=at.date()):
        if Channel.What.DIGEST not in channel.what:
            continue
        with transaction.atomic():
            mine = Channel.objects.filter(Q(digested_on=None) | ~Q(digested_on=at.date()), pk=channel.pk)
            if not mine.update(digested_on=at.date()):
                continue  # another worker was faster
            body = compose(channel, at)
            if body["pods"]:  # no news is no mail
                routing.queue(channel, Channel.What.DIGEST, str(body.pop("said")), body)
                count += 1
    return count


def compose(channel: Channel, at: datetime) -> dict[str, Any]:
    """Pods that are, or within the last day were, held idle, the most GPU-hours first.

    For any least severity of the channel: that is about alerts. Silenced ones are left out.
    """
    lately = Q(status=Alert.Status.OPEN) | Q(status=Alert.Status.CLOSED, closed_at__gte=at - DAY)
    rows = Alert.objects.filter(lately, rule=RULE).select_related("cluster").order_by("began_at", "pk")
    alerts = [alert for alert in rows if _is_of(channel, alert) and not alert.is_silenced]
    by_namespace: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for alert in alerts:
        by_namespace[alert.namespace] += _pods(alert, at)
    namespaces = [_namespace(name, pods) for name, pods in by_namespace.items()]
    namespaces.sort(key=lambda namespace: (-namespace["gpu_hours"], namespace["namespace"]))
    gpus = sum(namespace["gpus_now"] for namespace in namespaces)
    count = len(namespaces)
    return {
        "said": f"GPUs held idle: {gpus:,} now, in {count} namespace{'' if count == 1 else 's'}",
        "from": (at - DAY).isoformat(),
        "to": at.isoformat(),
        "pods": sum(len(pods) for pods in by_namespace.values()),
        "gpus_now": gpus,
        "namespaces": namespaces,
        "currency": settings.SETPOINT_GPU_CURRENCY,
        "link": bodies.absolute("/gpus/"),
        **_came_to(namespaces),
    }


def _is_of(channel: Channel, alert: Alert) -> bool:
    return subscriptions.covers(channel, alert.cluster) and (
        not channel.namespaces or alert.namespace in channel.namespaces
    )


def _namespace(name: str, pods: Sequence[dict[str, Any]]) -> dict[str, Any]:
    ordered = sorted(pods, key=lambda pod: (-pod["gpu_hours"], pod["pod"]))
    return {
        "namespace": name,
        "gpus_now": sum(pod["gpus"] for pod in pods if pod["is_idle_now"]),
        "pods": ordered[:MOST_NAMED],
        **_came_to(pods),
    }


def _came_to(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Cost is of those that have a price; None where none has."""
    costs = [part["cost"] for part in parts if part["cost"] is not None]
    hours = round(sum(part["gpu_hours"] for part in parts), 1)
    return {"gpu_hours": hours, "cost": round(sum(costs), 2) if costs else None}


def _pods(alert: Alert, at: datetime) -> list[dict[str, Any]]:
    """Return an alert's pods, also those that left it within the day."""
    over = (alert.well_since or alert.closed_at) if alert.closed_at else None
    if not alert.members:  # of a version that had an alert for each pod
        return [_pod(alert, _Stretch(alert.subject_name, alert.began_at, over, alert.figures), at)]
    pods = []
    for entry in alert.members:
        left = datetime.fromisoformat(entry["left_at"]) if entry["left_at"] else over
        if left is None or left >= at - DAY:
            since = datetime.fromisoformat(entry["since"])
            pods.append(_pod(alert, _Stretch(entry["name"], since, left, entry["figures"]), at))
    return pods


def _pod(alert: Alert, stretch: _Stretch, at: datetime) -> dict[str, Any]:
    """GPU-hours of the last day alone, so that one day's digests add up to what the days were. In whole GPUs."""
    figures = stretch.figures
    gpus = int(figures.get("gpus", 0))
    begin, end = max(stretch.since, at - DAY), stretch.left or at
    hours = float(figures.get("share", gpus)) * max((end - begin).total_seconds(), 0.0) / 3600
    price = figures.get("price")
    return {
        "cluster": alert.cluster.name,
        "pod": stretch.pod,
        "owner": str(figures.get("owner", "")),
        "gpus": gpus,
        "since": stretch.since.isoformat(),
        "is_idle_now": alert.status == Alert.Status.OPEN and stretch.left is None,
        "gpu_hours": round(hours, 1),
        "cost": None if price is None else round(float(price) * hours, 2),
        "link": bodies.absolute(alert.link) if alert.link else "",
    }
