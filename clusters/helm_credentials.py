"""The credential that installs components: kept apart, sealed with keys that only the worker of helm has.

What is stored is a token of `setpoint-helm-issuer`, which may do nothing but ask for tokens. For each run of helm it
asks for one of `setpoint-helm`, good for as long as that run may take and no longer; that one is stored nowhere.
"""

from __future__ import annotations

import json

from django.db import transaction

from audit import services as audit
from clusters import connections, crypto, renewing, tokens
from clusters.credentials import Credentials
from clusters.fleet import FleetRefused
from clusters.models import Cluster, HelmCredential
from common.clock import now
from common.errors import Invalid
from contract import names


def store(cluster: Cluster, token: str, *, by: str) -> HelmCredential:
    """Tried first: it must be the issuer's, end by itself, and give a token for helm. Raises Invalid, FleetError."""
    token = token.strip()
    if tokens.account_of(token) != names.HELM_ISSUER_USERNAME:
        raise _invalid(f"is not a token of the service account {names.HELM_ISSUER_SERVICE_ACCOUNT}")
    if tokens.lifetime(token) is None:
        raise _invalid("does not expire; make one with `kubectl create token`")
    found = tokens.with_token(connections.credentials(cluster), token)
    with connections.server_of(found) as server:
        tokens.request(server, names.HELM_SERVICE_ACCOUNT, tokens.SHORTEST)
    sealed = crypto.seal(cluster.pk, HelmCredential.FIELD, json.dumps(found.to_json()), ring=crypto.HELM)
    fields = {"sealed": sealed.data, "key": sealed.key, "set_at": now(), "expires_at": found.expires_at()}
    with transaction.atomic():
        row, _ = HelmCredential.objects.update_or_create(cluster=cluster, defaults=fields)
        _record(cluster, "cluster.set_helm_credential", by, {"key": sealed.key, "expires_at": found.expires_at()})
    return row


def remove(cluster: Cluster, *, by: str) -> bool:
    with transaction.atomic():
        count, _ = HelmCredential.objects.filter(cluster=cluster).delete()
        if count:
            _record(cluster, "cluster.remove_helm_credential", by, None)
    return bool(count)


def for_run(cluster: Cluster, *, seconds: float) -> Credentials:
    """What one run of helm uses. Raises CredentialUnreadable, FleetError.

    Where none is stored, the cluster's own: an installation from before the two were apart, whose plans say so.
    """
    row = HelmCredential.objects.select_related("cluster").filter(cluster=cluster).first()
    if row is None:
        return connections.credentials(cluster)
    issuer = renewing.renew_issuer(row, _opened(row))
    with connections.server_of(issuer) as server:
        return tokens.with_token(issuer, tokens.request(server, names.HELM_SERVICE_ACCOUNT, seconds))


def _opened(row: HelmCredential) -> Credentials:
    try:
        text = crypto.unseal(
            row.cluster_id, HelmCredential.FIELD, crypto.Sealed(bytes(row.sealed), row.key), ring=crypto.HELM
        )
    except (crypto.CannotOpen, crypto.KeyUnusable) as error:
        raise connections.CredentialUnreadable(
            f"The credential for helm of {row.cluster} cannot be read: {error}."
        ) from error
    found = Credentials.from_json(json.loads(text))
    if found.server != row.cluster.server:
        raise FleetRefused(
            f"{row.cluster} has another address since its credential for helm was set; set it again with "
            f"`manage.py helm_credential {row.cluster}`"
        )
    return found


def _record(cluster: Cluster, action: str, by: str, after: dict[str, object] | None) -> None:
    audit.record(
        by=by,
        action=action,
        target=f"cluster:{cluster.pk}",
        target_name=cluster.name,
        cluster_id=cluster.pk,
        after=after,
    )


def _invalid(text: str) -> Invalid:
    return Invalid(f"token: {text}", fields={"token": [text]})
