"""REST of a cluster's telemetry source: by version, tried first, and no secret in any answer."""

from __future__ import annotations

import pytest

from clusters.connection import registry
from gpus.models import TelemetrySource
from gpus.services import sources
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db
THERE = {"kind": "prometheus", "url": "https://prometheus.example", "auth": "bearer"}


@pytest.fixture
def cluster():
    return ClusterFactory()


@pytest.fixture
def admin():
    return UserFactory(roles=["admin"])


def url(cluster, rest=""):
    return f"/api/v1/clusters/{cluster.pk}/telemetry{rest}"


def test_rest_sets_it_up_by_version_and_never_tells_the_secret(cluster, admin):
    client = TokenClient(admin)
    answer = client.get(url(cluster))
    assert (answer.status_code, answer["ETag"], answer.json()["kind"]) == (200, '"1"', "automatic")
    wanted = {**THERE, "secret": "s3cret"}
    assert client.put(url(cluster), wanted, content_type="application/json").status_code == 428
    answer = client.put(url(cluster), wanted, content_type="application/json", headers={"If-Match": '"1"'})
    assert (answer.status_code, answer["ETag"]) == (200, '"2"'), answer.content
    assert answer.json()["has_secret"] is True
    assert "s3cret" not in answer.content.decode()
    refused = client.put(url(cluster), {"kind": "x"}, content_type="application/json", headers={"If-Match": '"2"'})
    assert refused.status_code == 422


def test_rest_tries_it_before_it_is_saved(cluster, admin):
    body = {"kind": "prometheus", "url": "http://127.0.0.1:9"}
    with registry.override(cluster.pk, SimFleet(SimCluster(seed=3))):
        answer = TokenClient(admin).post(url(cluster, "/actions/test"), body, content_type="application/json")
    assert (answer.status_code, answer.json()["state"]) == (200, "failed")
    assert "SETPOINT_ALLOW_NETWORKS" in answer.json()["sentence"]
    assert answer.json()["reads"] == "Prometheus at http://127.0.0.1:9, as set up."
    assert sources.of_cluster(cluster).kind == TelemetrySource.Kind.AUTOMATIC
