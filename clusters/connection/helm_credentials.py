"""The credential that installs components: kept apart, sealed with keys that only the worker of helm has.

What is stored is a token of `setpoint-helm-issuer`, which may do nothing but ask for tokens. For each run of helm it
asks for one of `setpoint-helm`, good for as long as that run may take and no longer; that one is stored nowhere.

Beside it, for a while, may be a token of `setpoint-helm-admin`, a cluster administrator. A person made it, with
an end that the API server keeps; Setpoint may neither make nor prolong one, and uses it for plans that name it only.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from django.db import transaction

from audit import services as audit
from clusters.connection import encryption, registry, token_renewal
from clusters.fleet import CredentialsRefused, FleetRefused, NotFound
from clusters.kube import tokens
from clusters.kube.apiserver import Call
from clusters.models import AdministratorCredential, Cluster, HelmCredential
from clusters.net.credentials import Credentials
from common.clock import now
from common.errors import Invalid
from contract import names

LONGEST = timedelta(hours=24)
"""A judgment: an installation and its revert on one working day. For longer it is given again."""


def store(cluster: Cluster, token: str, *, by: str) -> HelmCredential:
    """Tried first: it must be the issuer's, end by itself, and give a token for helm. Raises Invalid, FleetError."""
    token = token.strip()
    if tokens.account_of(token) != names.HELM_ISSUER_USERNAME:
        raise _invalid(f"is not a token of the service account {names.HELM_ISSUER_SERVICE_ACCOUNT}")
    if tokens.lifetime(token) is None:
        raise _invalid("does not expire; make one with `kubectl create token`")
    credentials = tokens.with_token(registry.credentials(cluster), token)
    with registry.server_of(credentials) as server:
        tokens.request(server, names.HELM_SERVICE_ACCOUNT, tokens.SHORTEST)
    sealed = encryption.seal(cluster.pk, HelmCredential.FIELD, json.dumps(credentials.to_json()), ring=encryption.HELM)
    fields = {"sealed": sealed.data, "key": sealed.key, "set_at": now(), "expires_at": credentials.expires_at()}
    with transaction.atomic():
        row, _ = HelmCredential.objects.update_or_create(cluster=cluster, defaults=fields)
        _record(cluster, "cluster.set_helm_credential", by, {"key": sealed.key, "expires_at": credentials.expires_at()})
    return row


def store_administrator(cluster: Cluster, token: str, *, by: str) -> AdministratorCredential:
    """Tried first: it must be of the one account for this, and end within LONGEST. Raises Invalid, FleetError."""
    token = token.strip()
    if tokens.account_of(token) != names.HELM_ADMIN_USERNAME:
        raise _invalid(f"is not a token of the service account {names.HELM_ADMIN_SERVICE_ACCOUNT}")
    span = tokens.lifetime(token)
    hours = int(LONGEST.total_seconds()) // 3600
    if span is None or span[1] - now() > LONGEST:
        raise _invalid(f"must end within {hours} hours; make one with `kubectl create token --duration`")
    if span[1] <= now():
        raise _invalid(f"ended at {span[1]:%Y-%m-%d %H:%M} UTC")
    credentials = tokens.with_token(registry.credentials(cluster), token)
    with registry.server_of(credentials) as server:
        server.get(Call("get", "namespaces", names.NAMESPACE), f"/api/v1/namespaces/{names.NAMESPACE}", "Namespace")
    sealed = encryption.seal(
        cluster.pk, AdministratorCredential.FIELD, json.dumps(credentials.to_json()), ring=encryption.HELM
    )
    fields = {"sealed": sealed.data, "key": sealed.key, "set_at": now(), "expires_at": span[1]}
    with transaction.atomic():
        row, _ = AdministratorCredential.objects.update_or_create(cluster=cluster, defaults=fields)
        details = {"key": sealed.key, "expires_at": span[1]}
        _record(cluster, "cluster.set_administrator_credential", by, details)
    return row


def remove(cluster: Cluster, *, by: str) -> bool:
    return _forgotten(HelmCredential, cluster, "cluster.remove_helm_credential", by)


def remove_administrator(cluster: Cluster, *, by: str) -> bool:
    return _forgotten(AdministratorCredential, cluster, "cluster.remove_administrator_credential", by)


def administrator_until(cluster: Cluster) -> datetime | None:
    """Return until when helm can run as a cluster administrator, None if it cannot. Decrypts nothing."""
    row = AdministratorCredential.objects.filter(cluster=cluster, expires_at__gt=now()).first()
    return row.expires_at if row else None


def for_run_as_administrator(cluster: Cluster) -> Credentials:
    """Return the administrator's credentials, for what a plan named alone. Raises FleetRefused once they have ended,
    CredentialUnreadable."""
    row = AdministratorCredential.objects.select_related("cluster").filter(cluster=cluster).first()
    if row is None or row.expires_at <= now():
        ended = f"at {row.expires_at:%Y-%m-%d %H:%M} UTC" if row else "and is forgotten"
        raise FleetRefused(
            f"the plan lets helm be a cluster administrator in {cluster}, which has ended {ended}: plan again, with "
            "the component's own rights or with a new credential"
        )
    return _opened(row)


def for_run(cluster: Cluster, *, seconds: float) -> Credentials:
    """Return the credentials of one helm run. Raises CredentialUnreadable, FleetError.

    Where none is stored, the cluster's own: an installation from before the two were separated, whose plans say so.
    """
    row = HelmCredential.objects.select_related("cluster").filter(cluster=cluster).first()
    if row is None:
        return registry.credentials(cluster)
    issuer = token_renewal.renew_issuer(row, _opened(row))
    with registry.server_of(issuer) as server:
        try:
            return tokens.with_token(issuer, tokens.request(server, names.HELM_SERVICE_ACCOUNT, seconds))
        except NotFound as error:
            raise CredentialsRefused(
                f"{names.HELM_SERVICE_ACCOUNT} is not in {cluster}: apply deploy/setpoint-components.yaml again"
            ) from error


def _forgotten(model: type[HelmCredential | AdministratorCredential], cluster: Cluster, action: str, by: str) -> bool:
    with transaction.atomic():
        count, _ = model._default_manager.filter(cluster=cluster).delete()
        if count:
            _record(cluster, action, by, None)
    return bool(count)


def _opened(row: HelmCredential | AdministratorCredential) -> Credentials:
    """Decrypt a credential. Raises CredentialsRefused if it is unusable: an administrator must act, no step fails."""
    try:
        sealed = encryption.Sealed(bytes(row.sealed), row.key)
        text = encryption.unseal(row.cluster_id, row.FIELD, sealed, ring=encryption.HELM)
    except (encryption.CannotOpen, encryption.KeyUnusable) as error:
        raise registry.CredentialUnreadable(
            f"The credential for helm of {row.cluster} cannot be read: {error}."
        ) from error
    credentials = Credentials.from_json(json.loads(text))
    if credentials.server != row.cluster.server:
        raise CredentialsRefused(
            f"{row.cluster} has another address since its credential for helm was set; set it again with "
            f"`manage.py helm_credential {row.cluster}`"
        )
    return credentials


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
