"""Facts of a cluster for the audit record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounts.models import User
from audit import services as audit
from clusters.models import Cluster


def facts(cluster: Cluster) -> dict[str, Any]:
    """Return what the audit record shows: never the credential, only which key sealed it."""
    return {
        "name": cluster.name,
        "environment": cluster.environment,
        "server": cluster.server,
        "uid": cluster.uid,
        "budget": cluster.budget,
        "credential_key": cluster.credential_key,
        "credential_set_at": cluster.credential_set_at,
        "credential_expires_at": cluster.credential_expires_at,
        "authority_expires_at": cluster.authority_expires_at,
    }


def record(
    cluster: Cluster, action: str, by: User | str, before: Mapping[str, Any], *, gone: bool = False, message: str = ""
) -> None:
    audit.record(
        by=by,
        action=action,
        target=f"cluster:{cluster.pk}",
        target_name=cluster.name,
        cluster_id=cluster.pk,
        message=message,
        before=before,
        after=None if gone else facts(cluster),
    )
