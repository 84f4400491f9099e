"""Two installations connect one cluster at the same time: one of them owns it (law 12)."""

from __future__ import annotations

import pytest

from audit.models import Record
from clusters import connections, services
from clusters.credentials import Credentials
from clusters.models import Cluster
from simfleet import SimCluster, SimFleet
from tests.factories import UserFactory

URL = "https://127.0.0.1:6443"


@pytest.fixture
def sim():
    cluster = SimCluster(name="atlas")
    cluster.add_node("n1")
    cluster.tick(60)
    with connections.override(URL, SimFleet(cluster)):
        yield cluster


@pytest.mark.django_db
def test_a_mark_that_another_set_a_moment_ago_counts(sim, monkeypatch):
    look = services.test_connection

    def look_too_early(credential):
        verdict = look(credential)
        SimFleet(sim).claim("other-installation")
        return verdict

    monkeypatch.setattr(services, "test_connection", look_too_early)
    credential = Credentials(server=URL, token="t")

    with pytest.raises(services.Foreign, match="other-installation"):
        services.connect_cluster(
            name="atlas", environment="staging", credential=credential, by=UserFactory(roles=["admin"])
        )

    assert (Cluster.objects.count(), Record.objects.count()) == (0, 0)
    assert SimFleet(sim).installation() == "other-installation"
