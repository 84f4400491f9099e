"""The credential for helm and the controller's own token: decryption by process, use and renewal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet

from audit.models import Record
from clusters import tasks
from clusters.connection import helm_credentials, registry, token_renewal
from clusters.fleet import CredentialsRefused, FleetError, NotFound
from clusters.kube import tokens
from clusters.kube.apiserver import Call
from clusters.models import Cluster, HelmCredential
from clusters.services import lifecycle
from common.clock import now
from common.errors import Invalid
from contract import names
from simfleet.apiserver.callers import Caller
from tests.clusters.factories import ClusterFactory, reached_with
from tests.contract.door import DoorWorld

pytestmark = pytest.mark.django_db
WEB, HELM = Fernet.generate_key().decode(), Fernet.generate_key().decode()


@pytest.fixture
def door(settings: Any) -> Iterator[DoorWorld]:
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    settings.EMBEDDED, settings.SETPOINT_CREDENTIAL_KEYS = False, [WEB]
    settings.SETPOINT_HELM_CREDENTIAL_KEYS = [HELM]
    world = DoorWorld()
    yield world
    world.clean()


@pytest.fixture
def cluster(door: DoorWorld) -> Cluster:
    made = reached_with(ClusterFactory(), door.entrance.credentials(token(door, names.CONTROLLER_SERVICE_ACCOUNT)))
    lifecycle._seal(made, registry.credentials(made))
    made.save()
    return made


def token(door: DoorWorld, account: str, seconds: int = 3600) -> str:
    """Request a token as the cluster's administrator does with kubectl."""
    door.entrance.door.tokens["admin"] = Caller("admin", "kubectl")
    with registry.server_of(door.entrance.credentials("admin")) as server:
        return tokens.request(server, account, seconds)


def aged(row: Any, part: float, *, since: str, until: str) -> Any:
    """The same row when that part of its life is over."""
    span = getattr(row, until) - getattr(row, since)
    moved = {since: now() - span * part, until: now() + span * (1 - part)}
    type(row).objects.filter(pk=row.pk).update(**moved)
    row.refresh_from_db()
    return row


def user_of(credentials: Any) -> str:
    with registry.server_of(credentials) as server:
        server.get(Call("get", "version"), "/version")
    return tokens.account_of(credentials.token)


# ── helm's ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_helm_runs_with_a_token_of_its_own_that_is_stored_nowhere(door, cluster):
    helm_credentials.store(cluster, token(door, names.HELM_ISSUER_SERVICE_ACCOUNT), by="admin")
    credentials = helm_credentials.for_run(cluster, seconds=700)
    assert user_of(credentials) == names.HELM_USERNAME
    since, until = tokens.lifetime(credentials.token) or pytest.fail("it does not end")
    assert until - since <= timedelta(seconds=800)
    assert user_of(helm_credentials._opened(cluster.helm_credential)) == names.HELM_ISSUER_USERNAME


def test_a_process_without_helms_keys_cannot_open_it(door, cluster, settings):
    """A web process has SETPOINT_CREDENTIAL_KEYS and the database, and that is not enough."""
    helm_credentials.store(cluster, token(door, names.HELM_ISSUER_SERVICE_ACCOUNT), by="admin")
    settings.SETPOINT_HELM_CREDENTIAL_KEYS = []
    with pytest.raises(registry.CredentialUnreadable, match="SETPOINT_HELM_CREDENTIAL_KEYS"):
        helm_credentials.for_run(cluster, seconds=600)
    settings.SETPOINT_HELM_CREDENTIAL_KEYS = settings.SETPOINT_CREDENTIAL_KEYS
    with pytest.raises(registry.CredentialUnreadable, match="encrypted with key"):
        helm_credentials.for_run(cluster, seconds=600)


@pytest.mark.parametrize("account", [names.CONTROLLER_SERVICE_ACCOUNT, names.HELM_SERVICE_ACCOUNT])
def test_only_the_issuers_token_is_kept_for_helm(door, cluster, account):
    with pytest.raises(Invalid, match=names.HELM_ISSUER_SERVICE_ACCOUNT):
        helm_credentials.store(cluster, token(door, account), by="admin")
    assert not HelmCredential.objects.exists()


@pytest.mark.parametrize("account", [names.CONTROLLER_SERVICE_ACCOUNT, names.HELM_SERVICE_ACCOUNT])
def test_only_the_administrators_own_account_is_one(door, cluster, account):
    with pytest.raises(Invalid, match=names.HELM_ADMIN_SERVICE_ACCOUNT):
        helm_credentials.store_administrator(cluster, token(door, account), by="admin")
    assert helm_credentials.administrator_until(cluster) is None


def test_an_administrators_token_that_lives_for_days_is_not_kept(door, cluster):
    with pytest.raises(Invalid, match="24 hours"):
        helm_credentials.store_administrator(cluster, token(door, names.HELM_ADMIN_SERVICE_ACCOUNT, 90000), by="admin")
    assert helm_credentials.administrator_until(cluster) is None


def test_an_administrators_token_is_used_until_it_ends_and_never_renewed(door, cluster, settings):
    made = token(door, names.HELM_ADMIN_SERVICE_ACCOUNT)
    row = helm_credentials.store_administrator(cluster, made, by="admin")
    assert Record.objects.filter(action="cluster.set_administrator_credential").exists()
    aged(row, 0.9, since="set_at", until="expires_at")
    assert helm_credentials.for_run_as_administrator(cluster).token == made
    settings.SETPOINT_HELM_CREDENTIAL_KEYS = []
    with pytest.raises(registry.CredentialUnreadable):
        helm_credentials.for_run_as_administrator(cluster)
    assert helm_credentials.remove_administrator(cluster, by="admin")
    assert helm_credentials.administrator_until(cluster) is None


def test_a_token_that_the_cluster_does_not_know_is_not_kept(door, cluster):
    good = token(door, names.HELM_ISSUER_SERVICE_ACCOUNT)
    with pytest.raises(FleetError):
        helm_credentials.store(cluster, f"{good}x", by="admin")
    assert not HelmCredential.objects.exists()


def test_a_cluster_that_moved_does_not_take_its_credential_for_helm_along(door, cluster):
    """A user with the right to change the address must not be sent the token."""
    helm_credentials.store(cluster, token(door, names.HELM_ISSUER_SERVICE_ACCOUNT), by="admin")
    Cluster.objects.filter(pk=cluster.pk).update(server="https://elsewhere.example:6443")
    with pytest.raises(CredentialsRefused, match="another address"):
        helm_credentials.for_run(cluster, seconds=600)


def test_an_account_that_is_not_there_now_is_waited_for(door, cluster, monkeypatch):
    """The account is absent while the manifests are deleted and applied again: no component is at fault."""
    helm_credentials.store(cluster, token(door, names.HELM_ISSUER_SERVICE_ACCOUNT), by="admin")

    def gone(*_: object) -> str:
        raise NotFound('create serviceaccounts/token setpoint-helm: serviceaccounts "setpoint-helm" not found')

    monkeypatch.setattr(tokens, "request", gone)
    with pytest.raises(CredentialsRefused, match="setpoint-components"):
        helm_credentials.for_run(cluster, seconds=600)


def test_without_one_an_older_installation_goes_on_with_the_clusters_own(cluster):
    assert user_of(helm_credentials.for_run(cluster, seconds=600)) == names.CONTROLLER_USERNAME


def test_it_is_renewed_at_half_of_its_life_and_recorded(door, cluster):
    row = helm_credentials.store(cluster, token(door, names.HELM_ISSUER_SERVICE_ACCOUNT), by="admin")
    first = helm_credentials._opened(row).token
    helm_credentials.for_run(cluster, seconds=600)
    row.refresh_from_db()
    assert helm_credentials._opened(row).token == first
    aged(row, 0.6, since="set_at", until="expires_at")
    helm_credentials.for_run(cluster, seconds=600)
    row.refresh_from_db()
    assert helm_credentials._opened(row).token != first
    assert row.expires_at > now() + timedelta(minutes=50)
    assert Record.objects.filter(action="cluster.renew_helm_credential").count() == 1


# ── the controller's ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_token_that_ends_is_exchanged_at_half_of_its_life(cluster):
    first = registry.credentials(cluster).token
    assert list(token_renewal.due()) == []
    aged(cluster, 0.55, since="credential_set_at", until="credential_expires_at")
    assert list(token_renewal.due()) == [cluster]
    assert token_renewal.renew(cluster)
    cluster.refresh_from_db()
    assert user_of(registry.credentials(cluster)) == names.CONTROLLER_USERNAME
    assert registry.credentials(cluster).token != first
    assert cluster.credential_expires_at > now() + timedelta(minutes=50)
    record = Record.objects.get(action="cluster.renew_credential")
    assert registry.credentials(cluster).token not in str(record.after)
    assert list(token_renewal.due()) == []


def test_what_fails_keeps_the_token_and_is_said_before_it_ends(cluster, door):
    first = registry.credentials(cluster).token
    aged(cluster, 0.8, since="credential_set_at", until="credential_expires_at")
    door.cluster.faults.outage = True
    assert not token_renewal.renew(cluster)
    cluster.refresh_from_db()
    assert registry.credentials(cluster).token == first
    assert cluster.renewal_error
    assert cluster.is_renewal_late


def test_a_credential_given_meanwhile_is_not_overwritten_by_a_renewal(cluster, door):
    older = Cluster.objects.get(pk=cluster.pk)
    lifecycle._seal(cluster, door.entrance.credentials("setpoint"))
    cluster.save()
    assert not token_renewal.renew(older)
    cluster.refresh_from_db()
    assert registry.credentials(cluster).token == "setpoint"


def test_what_does_not_end_or_is_not_ours_is_left_alone(cluster, door):
    for bearer in ("setpoint", token(door, names.HELM_SERVICE_ACCOUNT)):
        lifecycle._seal(cluster, door.entrance.credentials(bearer))
        cluster.save()
        if cluster.credential_expires_at:
            aged(cluster, 0.9, since="credential_set_at", until="credential_expires_at")
        assert list(token_renewal.due()) == []


def test_a_token_that_was_stored_before_renewal_existed_renews_itself_without_a_rotation(cluster):
    """Its row says what a migration could: nothing, for it has no key to look into the credential."""
    Cluster.objects.filter(pk=cluster.pk).update(credential_renews=False, authority_expires_at=None)
    aged(cluster, 0.55, since="credential_set_at", until="credential_expires_at")
    first = registry.credentials(cluster).token
    tasks.renew_credentials()
    cluster.refresh_from_db()
    assert cluster.credential_renews
    assert cluster.authority_expires_at > now()
    assert registry.credentials(cluster).token != first
    assert token_renewal.judge_stored() == 0


def test_what_it_may_not_do_itself_is_a_warning_that_keeps_nobody_from_a_new_credential(cluster, door):
    door.cluster.api.forbidden.add(("create", "serviceaccounts/token"))
    verdict = lifecycle.test_connection(registry.credentials(cluster))
    (check,) = [check for check in verdict.checks if check.name == "Permissions"]
    assert (check.state, "serviceaccounts/token" in check.text) == ("warn", True)
