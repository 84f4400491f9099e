"""Stored tokens that expire, exchanged by the account itself before they do.

At half of its life a token is exchanged for one of the same length, so an installation that is stopped for less than
the other half comes back with a credential that works. A renewal that fails is tried again, shown, and never removes
what is stored. Of two that renew at once the second finds that the row was changed and leaves its own token unused.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from audit import services as audit
from clusters.connection import audit_records, encryption, registry
from clusters.fleet import FleetError
from clusters.kube import tokens
from clusters.models import Cluster, HelmCredential
from clusters.net import certificates
from clusters.net.credentials import Credentials
from common.clock import now
from contract import names

log = logging.getLogger(__name__)
BY = "credential renewal"


def due() -> Iterator[Cluster]:
    """Clusters whose token has lived half of its life."""
    for cluster in Cluster.objects.filter(credential_renews=True, credential_expires_at__isnull=False):
        if is_half_over(cluster.credential_set_at, cluster.credential_expires_at):
            yield cluster


def judge_stored() -> int:
    """Look into credentials that were stored before it was noted what they are; returns how many are noted now.

    Whether a token renews itself was written only where a credential was stored, by connecting or rotating, and a
    migration could not look: it has no key. So tokens from before were renewed only after a first rotation by hand.
    """
    count = 0
    ends = Q(credential_renews=False, credential_expires_at__isnull=False) | Q(authority_expires_at=None)
    for cluster in Cluster.objects.filter(ends):
        try:
            credential = registry.credentials(cluster)
        except FleetError:  # the watch says so on the cluster's page
            continue
        renews = cluster.credential_renews or is_renewable(credential)
        authority = certificates.last_not_after(credential.ca)
        if (renews, authority) != (cluster.credential_renews, cluster.authority_expires_at):
            mine = Cluster.objects.filter(pk=cluster.pk, credential_set_at=cluster.credential_set_at)
            count += mine.update(credential_renews=renews, authority_expires_at=authority)
    return count


def is_half_over(since: datetime, until: datetime | None) -> bool:
    return until is not None and now() >= since + (until - since) / 2


def is_renewable(credential: Credentials) -> bool:
    """Return whether it is an expiring token of Setpoint's own account, which may request its successor."""
    return (
        tokens.account_of(credential.token) == names.CONTROLLER_USERNAME
        and tokens.lifetime(credential.token) is not None
    )


def renew(cluster: Cluster) -> bool:
    """Renew a cluster's token; return whether a new one is stored. Errors are on the row and in the log."""
    try:
        credential = registry.credentials(cluster)
        fresh = _exchanged(credential, names.CONTROLLER_SERVICE_ACCOUNT)
        sealed = registry.sealed(cluster.pk, fresh)
    except (FleetError, encryption.KeyUnusable) as error:
        log.warning("the token of %s could not be renewed: %s", cluster, error)
        Cluster.objects.filter(pk=cluster.pk).update(renewal_error=str(error)[:300])
        return False
    before, as_read = audit_records.facts(cluster), cluster.credential_set_at
    fields = {
        "credential": sealed.data,
        "credential_key": sealed.key,
        "credential_set_at": now(),
        "credential_expires_at": fresh.expires_at(),
        "renewal_error": "",
    }
    with transaction.atomic():
        if not Cluster.objects.filter(pk=cluster.pk, credential_set_at=as_read).update(**fields):
            return False
        for name, value in fields.items():
            setattr(cluster, name, value)
        audit_records.record(cluster, "cluster.renew_credential", BY, before)
    return True


def renew_issuer(row: HelmCredential, credential: Credentials) -> Credentials:
    """The credential for helm, exchanged at half of its life, for use now. What fails is logged: it is still good."""
    if not is_half_over(row.set_at, row.expires_at):
        return credential
    try:
        fresh = _exchanged(credential, names.HELM_ISSUER_SERVICE_ACCOUNT)
    except FleetError as error:
        log.warning("the credential for helm of %s could not be renewed: %s", row.cluster, error)
        return credential
    sealed = encryption.seal(row.cluster_id, HelmCredential.FIELD, json.dumps(fresh.to_json()), ring=encryption.HELM)
    with transaction.atomic():
        mine = HelmCredential.objects.filter(pk=row.pk, set_at=row.set_at)
        fields = {"sealed": sealed.data, "key": sealed.key, "set_at": now(), "expires_at": fresh.expires_at()}
        if mine.update(**fields):
            audit.record(
                by=BY,
                action="cluster.renew_helm_credential",
                target=f"cluster:{row.cluster_id}",
                target_name=row.cluster.name,
                cluster_id=row.cluster_id,
                before={"expires_at": row.expires_at},
                after={"expires_at": fresh.expires_at()},
            )
    return fresh


def _exchanged(credential: Credentials, account: str) -> Credentials:
    """Raises FleetError."""
    span = tokens.lifetime(credential.token)
    seconds = (span[1] - span[0]).total_seconds() if span else tokens.SHORTEST
    with registry.server_of(credential) as server:
        return tokens.with_token(credential, tokens.request(server, account, seconds))
