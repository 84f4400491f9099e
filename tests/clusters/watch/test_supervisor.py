"""Watch processes: leases, sharing of clusters, and what starts and ends with them."""

from __future__ import annotations

import threading
import time

import pytest

from clusters.connection import registry
from clusters.models import Cluster, Node, NodeTuning
from clusters.watch import supervisor
from clusters.watch.following import Follower, Following
from common import hooks
from common.clock import now
from common.hooks import Followed
from simfleet.clock import WallClock
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.clusters.watch.driven import PACE


@pytest.fixture
def many(transactional_db, settings):
    """Watches of this test, stopped at its end."""
    settings.SETPOINT_LEASE_SECONDS = 0.6
    watches: list[supervisor.Watch] = []

    def make(owner):
        watches.append(supervisor.Watch(owner, PACE))
        return watches[-1]

    yield make
    for each in watches:
        each._let_go_of_all(release=False)
        each._chores.shutdown(wait=True)


def live():
    sim = SimCluster(clock=WallClock(), live=True)
    return sim, ClusterFactory(uid=sim.uid, ownership="ours")


def test_of_two_watches_one_holds_the_lease(many):
    sim, cluster = live()
    with registry.override(cluster.pk, SimFleet(sim)):
        first, second = many("first"), many("second")
        first.tick()
        second.tick()

        assert (list(first.held), list(second.held)) == ([cluster.pk], [])
        assert Cluster.objects.get().watch_owner == "first"


def test_a_lease_seen_free_and_taken_meanwhile_is_not_taken_twice(many):
    _, cluster = live()
    first, second = many("first"), many("second")  # both saw it free

    assert first.win(cluster.pk) is True
    assert second.win(cluster.pk) is False
    assert first.win(cluster.pk) is True
    assert Cluster.objects.get().watch_owner == "first"


def test_a_dead_watchs_cluster_is_taken_over_within_its_lease(many):
    sim, cluster = live()
    with registry.override(cluster.pk, SimFleet(sim)):
        first, second = many("first"), many("second")
        first.tick()  # and never again: killed
        second.tick()
        assert not second.held
        time.sleep(0.65)
        second.tick()

        assert list(second.held) == [cluster.pk]
        first._renewed = 0
        first.tick()
        assert not first.held  # a late riser sees that it lost, and lets go


def test_clusters_are_shared(many):
    sims = [SimCluster(seed=number, name=f"s{number}", clock=WallClock(), live=True) for number in range(8)]
    rows = [ClusterFactory(uid=sim.uid) for sim in sims]
    for row, sim in zip(rows, sims, strict=True):
        registry.install(row.pk, SimFleet(sim))
    try:
        first, second = many("first"), many("second")
        first.tick()
        second.tick()

        assert (len(first.held), len(second.held)) == (4, 4)
    finally:
        for row in rows:
            registry.uninstall(row.pk)


def test_a_new_credential_restarts_the_watch(many):
    sim, cluster = live()
    with registry.override(cluster.pk, SimFleet(sim)):
        first = many("first")
        first.tick()
        held = first.held[cluster.pk]
        Cluster.objects.update(credential_set_at=now())
        first._renewed = 0
        first.tick()

        assert held.watched.stop.is_set()
        assert first.held[cluster.pk] is not held


@pytest.mark.django_db
def test_what_is_let_go_while_its_watches_are_arranged_leaves_none(monkeypatch):
    """The chore runs in a thread of its own: it may be in the middle when the credential turns out to be another."""
    following, runs = Following(ClusterFactory(), PACE), []
    monkeypatch.setattr(Follower, "run", runs.append)

    def wanted(cluster_id):
        following.close()
        return [Followed("v1", "services", "a=b")]

    monkeypatch.setattr(hooks, "follow", wanted)
    following.turn()
    following.turn()
    assert runs == []


def test_a_credential_that_does_not_open_is_said_on_the_cluster(many):
    ClusterFactory(credential=b"x", credential_key="not-a-key")
    Cluster.objects.update(credential_key="not-a-key")

    many("first").tick()

    cluster = Cluster.objects.get()
    assert cluster.reach == "unreachable"
    assert "not-a-key" in cluster.reach_reason


def test_a_running_watch_follows_enrols_and_gives_its_leases_back(transactional_db, settings):
    settings.SETPOINT_LEASE_SECONDS = 3
    sim, cluster = live()
    SimFleet(sim).claim(settings.SETPOINT_INSTALLATION)
    stop = threading.Event()
    with registry.override(cluster.pk, SimFleet(sim)):
        thread = threading.Thread(target=supervisor.run, args=(stop, "me", PACE))
        thread.start()
        try:
            sim.add_node("n1")
            assert _soon(lambda: NodeTuning.objects.filter(node__name="n1").exists())
            sim.nodes.delete("n1")
            assert _soon(lambda: not Node.objects.present().exists())
        finally:
            stop.set()
            thread.join(10)

    assert not thread.is_alive()
    assert Cluster.objects.get().watch_owner == ""


def _soon(is_so, seconds=5.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if is_so():
            return True
        time.sleep(0.02)
    return False
