"""The page of a telemetry source: tried without being stored, saved by version, and nothing typed is lost."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from audit.models import Record
from clusters.connection import registry
from gpus.models import GpuDevice, TelemetrySource
from gpus.services import sources
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory
from tests.gpus.exporting import Exporting, Gpu

pytestmark = pytest.mark.django_db
THERE = {"kind": "prometheus", "url": "https://prometheus.example", "auth": "bearer", "is_enabled": "on"}


@pytest.fixture
def sim():
    exporting = Exporting()
    exporting.node("n1", Gpu("GPU-1", busy=140), Gpu("GPU-2"))
    return exporting


@pytest.fixture
def cluster(sim):
    return ClusterFactory(uid=sim.cluster.uid)


@pytest.fixture
def client():
    admin_client = Client()
    admin_client.force_login(UserFactory(roles=["admin"]))
    return admin_client


def at(cluster) -> str:
    return f"/gpus/clusters/{cluster.pk}/source/"


def test_a_test_reads_once_says_what_it_found_and_stores_nothing(client, cluster, sim):
    body = {"kind": "automatic", "auth": "none", "is_enabled": "on", "version": "1", "intent": "test"}
    with registry.override(cluster.pk, sim.fleet):
        answer = client.post(at(cluster), body)
    page = re.sub(r"\s+", " ", answer.content.decode())
    assert answer.status_code == 200
    assert "Auto-detected: the exporters themselves." in page
    assert "<dt>GPUs</dt> <dd>2</dd>" in page
    assert "1 values are impossible" in page
    assert not GpuDevice.objects.exists()
    assert not Record.objects.filter(action="telemetry.update").exists()
    assert (sources.of_cluster(cluster).state, sources.of_cluster(cluster).chosen) == (TelemetrySource.State.NEVER, "")


def test_it_is_saved_and_the_secret_is_never_shown(client, cluster):
    answer = client.post(at(cluster), THERE | {"version": "1", "secret": "s3cret", "intent": "save"})
    assert (answer.status_code, answer["Location"]) == (302, f"/gpus/clusters/{cluster.pk}/")
    assert sources.of_cluster(cluster).open_secret() == "s3cret"
    page = client.get(at(cluster)).content.decode()
    assert "s3cret" not in page
    assert "One is stored. Empty: it stays." in page
    client.post(at(cluster), THERE | {"version": "2", "selector": 'a="b"', "intent": "save"})
    assert (sources.of_cluster(cluster).open_secret(), sources.of_cluster(cluster).selector) == ("s3cret", 'a="b"')
    client.post(at(cluster), THERE | {"version": "3", "auth": "none", "forget_secret": "on", "intent": "save"})
    assert not sources.of_cluster(cluster).secret


def test_a_refusal_names_the_field_and_loses_nothing(client, cluster):
    body = THERE | {"url": "prometheus", "secret": "s3cret", "version": "1", "intent": "save"}
    answer = client.post(at(cluster), body)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert 'value="prometheus"' in page
    assert "s3cret" in page  # typed just now, in an answer that is not stored
    assert "no-store" in answer["Cache-Control"]
    assert "Write https://host:port" in page


def test_nobody_overwrites_what_another_saved_meanwhile(client, cluster):
    other = UserFactory(roles=["admin"], email="bo@example.com")
    sources.update(sources.of_cluster(cluster), by=other, version=1, namespace="monitoring")
    body = {"kind": "exporters", "auth": "none", "is_enabled": "on", "version": "1", "intent": "save"}
    answer = client.post(at(cluster), body)
    page = re.sub(r"\s+", " ", answer.content.decode())
    assert answer.status_code == 412
    assert "bo@example.com meanwhile" in page
    assert re.search(r"<dt>Exporters&#x27; namespace</dt><dd[^>]*>monitoring</dd>", page)
    assert sources.of_cluster(cluster).kind == "automatic"
    assert client.post(at(cluster), body | {"version": "2"}).status_code == 302
    assert sources.of_cluster(cluster).kind == "exporters"


def test_only_an_administrator_of_the_cluster_may(cluster):
    client = Client()
    client.force_login(UserFactory(roles=["operator"]))
    assert client.get(at(cluster)).status_code == 403
    assert client.post(at(cluster), THERE).status_code == 403
