"""Expiry is reported in advance: by page, REST, metric and alert alike, and only if an administrator must act."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse

from accounts.models import RoleBinding
from clusters.connection import expiry
from clusters.models import Cluster, HelmCredential
from clusters.reports import alert_rules
from clusters.services import lifecycle
from common.clock import now
from tests.clusters.factories import ClusterFactory
from tests.controlplane.pki import Authority
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def sentences(cluster: Cluster, days: float = 14) -> list[str]:
    return [condition.sentence for condition in alert_rules.ends(cluster.pk, days).conditions]


@pytest.mark.parametrize("field", ["credential_expires_at", "authority_expires_at"])
def test_what_ends_soon_is_told_by_the_threshold(field: str) -> None:
    cluster = ClusterFactory(**{field: now() + 10 * DAY})
    assert len(sentences(cluster)) == 1
    assert sentences(cluster, days=9) == []
    assert f"{now() + 10 * DAY:%Y-%m-%d}" in sentences(cluster)[0]


def test_helms_credential_is_told_of_too() -> None:
    cluster = ClusterFactory()
    HelmCredential.objects.create(cluster=cluster, sealed=b"-", key="-", expires_at=now() + DAY)
    (sentence,) = sentences(cluster)
    assert "components" in sentence


def test_what_renews_itself_is_told_once_its_renewal_is_late() -> None:
    fields: dict[str, Any] = {"credential_renews": True, "renewal_error": "may not create serviceaccounts/token"}
    cluster = ClusterFactory(credential_set_at=now() - DAY, credential_expires_at=now() + DAY, **fields)
    assert sentences(cluster) == []
    Cluster.objects.filter(pk=cluster.pk).update(credential_set_at=now() - 9 * DAY)
    (sentence,) = sentences(cluster)
    assert "may not create serviceaccounts/token" in sentence


def test_page_rest_metric_and_alert_say_the_same(client: Any, settings: Any) -> None:
    user = UserFactory()
    RoleBinding.objects.create(user=user, role="admin", scope="*")
    cluster = ClusterFactory(authority_expires_at=now() + DAY, reach="reachable", observed_at=now())
    (ending,) = expiry.due(cluster)
    assert sentences(cluster) == [ending.sentence]
    client.force_login(user)
    assert ending.sentence in client.get(reverse("clusters:cluster", args=[cluster.pk])).content.decode()
    assert ending.sentence in client.get("/").content.decode()
    body = client.get(f"/api/v1/clusters/{cluster.pk}").json()
    assert [(ending["what"], ending["is_due"], ending["sentence"]) for ending in body["credential_endings"]] == [
        ("authority", True, ending.sentence)
    ]
    settings.SETPOINT_METRICS_TOKEN = "m" * 32
    metrics = client.get("/metrics", headers={"Authorization": f"Bearer {'m' * 32}"}).content.decode()
    name = "setpoint_cluster_credential_expires_timestamp_seconds"
    line = f'{name}{{cluster="{cluster.name}",credential="authority"}}'
    (value,) = [sample.rpartition(" ")[2] for sample in metrics.splitlines() if sample.startswith(line)]
    assert abs(float(value) - ending.at.timestamp()) < 1


def test_a_stored_credential_says_when_its_authority_ends() -> None:
    cluster = Cluster(name="a")
    pem = Authority().pem
    lifecycle._seal(cluster, lifecycle.Credentials(server="https://127.0.0.1:6443", ca=pem, token="t"))
    assert cluster.authority_expires_at > now()
    lifecycle._seal(cluster, lifecycle.Credentials(server="https://127.0.0.1:6443", token="t"))
    assert cluster.authority_expires_at is None
