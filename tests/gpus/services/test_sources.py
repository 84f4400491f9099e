"""Setting up where telemetry comes from: by whom, with what, and that no secret goes anywhere else."""

from __future__ import annotations

import pytest

from audit.models import Record
from common.errors import Invalid, NotAllowed, Stale
from gpus.models import TelemetrySource
from gpus.services import polling, sources
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
Kind, Auth, State = TelemetrySource.Kind, TelemetrySource.Auth, TelemetrySource.State
THERE = {"kind": Kind.PROMETHEUS, "url": "https://prometheus.example", "auth": Auth.BEARER}


@pytest.fixture
def cluster():
    return ClusterFactory()


@pytest.fixture
def admin():
    return UserFactory(roles=["admin"])


def test_an_administrator_of_the_cluster_sets_it_up_and_it_is_read_at_once(cluster, admin, clock):
    source = sources.of_cluster(cluster)
    TelemetrySource.objects.update(due_at="2030-01-01T00:00Z", claimed_until="2030-01-01T00:00Z", state=State.WELL)
    sources.update(source, by=admin, version=1, secret="s3cret", **THERE)
    assert (source.version, source.url, source.open_secret()) == (2, THERE["url"], "s3cret")
    assert (source.state, source.claimed_until, polling.due()) == (State.NEVER, None, [source.pk])
    record = Record.objects.get(action="telemetry.update")
    assert "s3cret" not in f"{record.before}{record.after}"
    for other in (UserFactory(roles=["operator"]), UserFactory(roles=["admin@env:production"])):
        with pytest.raises(NotAllowed):
            sources.update(source, by=other, version=2, secret="x")
    with pytest.raises(Stale):
        sources.update(source, by=admin, version=1, is_enabled=False)


def test_a_source_that_is_switched_off_is_not_read(cluster, admin, clock):
    sources.update(source := sources.of_cluster(cluster), by=admin, version=1, is_enabled=False)
    assert polling.due() == []
    assert not polling.tick(source.pk)


def test_a_stored_secret_goes_to_no_other_host(cluster, admin):
    source = sources.of_cluster(cluster)
    sources.update(source, by=admin, version=1, secret="s3cret", **THERE)
    elsewhere = THERE | {"url": "https://elsewhere.example"}
    with pytest.raises(Invalid) as caught:
        sources.filled(source, **elsewhere)
    assert list(caught.value.fields) == ["secret"]
    with pytest.raises(Invalid) as caught:
        sources.filled(source, **(THERE | {"url": "https://[::1"}))
    assert set(caught.value.fields) == {"url", "secret"}
    # Nor by a detour over no authentication at all.
    sources.update(source, by=admin, version=2, **(elsewhere | {"auth": Auth.NONE}))
    assert not source.secret
    with pytest.raises(Invalid):
        sources.filled(source, **elsewhere)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"kind": Kind.PROMETHEUS}, "url"),
        ({"kind": Kind.PROMETHEUS, "url": "ftp://x"}, "url"),
        ({"kind": Kind.PROMETHEUS, "url": "https://ann:pw@x"}, "url"),
        ({"kind": Kind.PROMETHEUS, "url": "http://x", "auth": Auth.BEARER, "secret": "s"}, "url"),
        ({"kind": Kind.PROMETHEUS, "url": "https://x", "auth": Auth.BEARER}, "secret"),
        ({"kind": Kind.PROMETHEUS, "url": "https://x", "auth": Auth.BEARER, "secret": "a\nb"}, "secret"),
        ({"kind": Kind.PROMETHEUS, "url": "https://x", "auth": Auth.BASIC, "secret": "s"}, "username"),
        ({"kind": Kind.PROMETHEUS, "url": "https://x", "auth": Auth.CERTIFICATE, "secret": "s"}, "certificate"),
        ({"kind": Kind.EXPORTERS, "auth": Auth.BEARER, "secret": "s"}, "auth"),
        ({"kind": Kind.SERVICE, "service": "prometheus:9090"}, "service"),
        ({"kind": Kind.SERVICE, "service": "../x:9090"}, "service"),
        ({"kind": Kind.EXPORTERS, "ca": "x"}, "ca"),
        ({"kind": Kind.EXPORTERS, "namespace": "a/b"}, "namespace"),
        ({"selector": 'a="b"} or up{'}, "selector"),
        ({"selector": 'a="b" c="d"'}, "selector"),
    ],
)
def test_what_cannot_work_is_refused_with_its_field(cluster, fields, wrong):
    with pytest.raises(Invalid) as caught:
        sources.filled(sources.of_cluster(cluster), **fields)
    assert wrong in caught.value.fields


@pytest.mark.parametrize("selector", ["", 'cluster="a"', 'cluster="a", zone=~"b.*" ,x!="\\"}"'])
def test_a_selector_is_label_matchers_only(cluster, selector):
    assert sources.filled(sources.of_cluster(cluster), selector=selector).selector == selector.strip()
