"""Clusters that were connected once: letting one go and connecting it again is no way into another environment.

Another environment has other approval rules and other approvers, so a move there waits for a second administrator. A
cluster that comes back therefore comes back where it was, and is moved from there.
"""

from __future__ import annotations

from accounts.models import User
from accounts.people import bootstrap
from clusters.models import Cluster, FormerCluster
from common.errors import Invalid


def remember(cluster: Cluster) -> None:
    """Remember a cluster's name and environment, in the transaction that disconnects it."""
    left = {"environment": cluster.environment, "name": cluster.name}
    FormerCluster.objects.update_or_create(uid=cluster.uid, defaults=left)


def check(uid: str, environment: str, by: User) -> None:
    """Raises Invalid where the cluster of that uid left from another environment."""
    row = FormerCluster.objects.filter(uid=uid).first()
    if row is None or row.environment == environment or bootstrap.needs_no_consent(by):
        return
    reason = (
        f"This cluster was connected here before, as {row.name} in {row.environment}. Connect it as {row.environment}; "
        "then change its environment, which waits for a second administrator's consent."
    )
    raise Invalid(reason, fields={"environment": [reason]})
