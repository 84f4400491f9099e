"""Subscriptions of channels: their kinds of notices, environment, cluster, severity and namespaces."""

from __future__ import annotations

from clusters.models import Cluster
from common.alerting import Severity
from notices.channels.bodies import RANK
from notices.models import Alert, Channel


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
