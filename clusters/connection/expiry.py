"""Expiry of a cluster's credentials, and when an administrator should be told: one answer for page, REST, metric and
alert.

A token that renews itself needs no attention until its renewal is late. Everything else does before it expires.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from clusters.models import Cluster, HelmCredential
from common.clock import now

SOON = timedelta(days=14)
"""Before the end: time for two people who are on different shifts."""


@dataclass(frozen=True, slots=True)
class CredentialExpiry:
    """One credential or certificate that has an end."""

    what: str
    """`credential`, `authority` or `helm_credential`."""
    title: str
    at: datetime
    renews: bool = False
    is_late: bool = False
    """It should have renewed itself by now."""
    why: str = ""
    """Why its last renewal failed."""

    def is_due(self, within: timedelta = SOON) -> bool:
        """Return whether an administrator should act: its renewal is late, or it ends `within` that time unrenewed."""
        return self.is_late or (not self.renews and self.at < now() + within)

    @property
    def sentence(self) -> str:
        ends = f"{self.at:%Y-%m-%d %H:%M} UTC"
        sentence = f"{self.title} ended at {ends}" if self.at <= now() else f"{self.title} ends at {ends}"
        late = " and has not renewed itself" if self.is_late else ""
        return f"{sentence}{late}. {self.why}".rstrip()


def endings(cluster: Cluster, helm: HelmCredential | None = None) -> list[CredentialExpiry]:
    """All that have an end, the next first."""
    ends = []
    if cluster.credential_expires_at:
        title = "Setpoint's credential for the API server"
        late = cluster.is_renewal_late
        at, why = cluster.credential_expires_at, cluster.renewal_error
        ends.append(CredentialExpiry("credential", title, at, cluster.credential_renews, late, why))
    if cluster.authority_expires_at:
        title = "The authority that the API server is trusted by"
        ends.append(CredentialExpiry("authority", title, cluster.authority_expires_at))
    if helm is not None and helm.expires_at:
        ends.append(CredentialExpiry("helm_credential", "The credential that installs components", helm.expires_at))
    return sorted(ends, key=lambda end: end.at)


def due(cluster: Cluster, helm: HelmCredential | None = None, *, within: timedelta = SOON) -> list[CredentialExpiry]:
    """Those that a person should see to."""
    return [ending for ending in endings(cluster, helm) if ending.is_due(within)]


def of_clusters(clusters: Iterable[Cluster]) -> dict[Cluster, list[CredentialExpiry]]:
    """`endings` of many. One query."""
    rows = list(clusters)
    helm = HelmCredential.objects.filter(cluster__in=rows).defer("sealed").in_bulk()
    return {cluster: endings(cluster, helm.get(cluster.pk)) for cluster in rows}
