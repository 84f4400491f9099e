"""The watch against the simulated fleet: what it must never lose, believe or write twice."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import OperationalError

from clusters.connection import registry
from clusters.fleet import FleetUnavailable, Page, Untrusted
from clusters.inventory import enrolment, inspection, store
from clusters.models import Cluster, GpuPod, Node, NodeTuning
from clusters.reports import alert_rules
from clusters.watch import supervisor, writer
from clusters.watch.following import Follower, Following
from clusters.watch.streams import Failed, Stream, Watched, WatchTimings
from clusters.watch.writer import Writer
from common import hooks
from common.clock import now
from common.hooks import Followed
from simfleet.clock import WallClock
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory

PACE = WatchTimings(
    watch=1.5, gather=0.05, tick=0.05, shortest_watch=0, backoff=0.01, longest_backoff=0.02, leases=0.2, enrol=0.1
)


class Here:
    """One cluster, its three streams and the writer, driven by hand: no threads, no waits."""

    def __init__(self, **sim):
        self.sim = SimCluster(**sim)
        self.fleet = SimFleet(self.sim)
        self.cluster = ClusterFactory(uid=self.sim.uid, ownership="ours")
        self.start()

    def start(self):
        """Start as a new process does: it knows nothing but the rows."""
        self.writer = Writer(PACE)
        self.watched = Watched(Cluster.objects.get(), self.fleet)
        self.streams = [Stream(self.watched, kind, self.writer.post, PACE) for kind in ("nodes", "nodetunings", "pods")]

    def step(self, times=1):
        for _ in range(times):
            for stream in self.streams:
                stream.step()
            self.flush()

    def flush(self):
        while self.writer.flush():
            pass

    def row(self):
        return Cluster.objects.get()


@pytest.fixture
def here(db):
    return Here()


def names():
    return sorted(Node.objects.present().values_list("name", flat=True))


# ── list, watch, again ────────────────────────────────────────────────────────────────────────────────────────────────
def test_list_then_watch_follows_the_fleet(here):
    here.sim.add_node("n1")
    here.step()
    assert names() == ["n1"]
    assert here.row().reach == "reachable"

    here.sim.add_node("n2")
    here.sim.nodes.delete("n1")
    here.step()

    assert names() == ["n2"]


def test_a_kill_between_list_and_watch_loses_nothing(here):
    here.sim.add_node("n1")
    for stream in here.streams:
        stream.step()  # listed, and killed before anything was written
    here.sim.add_node("n2")

    here.start()
    here.step(2)

    assert names() == ["n1", "n2"]


def test_a_kill_between_watch_and_write_loses_nothing(here):
    here.step()
    here.sim.add_node("n1")
    for stream in here.streams:
        stream.step()  # the event was read, and never written

    here.start()
    here.step()

    assert names() == ["n1"]


def test_410_lists_again(here):
    here.sim.add_node("n1")
    here.step()
    here.sim.nodes.delete("n1")
    here.sim.add_node("n2")
    here.sim.store.compact()

    here.step(2)

    assert names() == ["n2"]
    assert here.row().reach == "reachable"


def test_a_node_replaced_under_its_name_between_two_looks_is_two_rows(here):
    here.sim.add_node("n1")
    here.step()
    here.sim.nodes.delete("n1")
    here.sim.add_node("n1")

    here.step()

    assert Node.objects.count() == 2
    assert Node.objects.present().get().uid == here.sim.node("n1")["metadata"]["uid"]


def test_events_that_could_not_be_written_are_listed_again(here, monkeypatch):
    here.step()
    here.sim.add_node("n1")
    real = store.observe_nodes

    def away(*args, **kwargs):
        raise OperationalError("database is locked")

    monkeypatch.setitem(writer._OBSERVE, "nodes", away)
    here.step()
    assert names() == []
    monkeypatch.setitem(writer._OBSERVE, "nodes", real)
    here.step()

    assert names() == ["n1"]


class Away:
    """A database that answers nothing at all, not even whether the cluster is still wanted."""

    def __init__(self, monkeypatch):
        self.patch = monkeypatch

    def __enter__(self):
        def away(*args, **kwargs):
            raise OperationalError("connection refused")

        for kind in writer._OBSERVE:
            self.patch.setitem(writer._OBSERVE, kind, away)
        self.patch.setattr(writer, "Cluster", SimpleNamespace(objects=SimpleNamespace(filter=away)))

    def __exit__(self, *exc_info):
        self.patch.undo()


def test_a_database_that_is_away_does_not_end_the_writer(here, monkeypatch):
    here.step()
    here.sim.add_node("n1")
    with Away(monkeypatch):
        here.step(2)
    here.step(2)

    assert names() == ["n1"]


def test_an_object_that_cannot_be_written_does_not_end_the_writer(here, monkeypatch):
    def choke(*args, **kwargs):
        raise KeyError("name")

    here.step()
    here.sim.add_node("n1")
    with monkeypatch.context() as patch:
        patch.setitem(writer._OBSERVE, "nodes", choke)
        here.step(2)
    here.step(2)

    assert names() == ["n1"]


def test_lists_that_cannot_be_written_are_asked_for_ever_more_seldom(here, monkeypatch):
    stream = here.streams[0]
    stream.pace = replace(PACE, backoff=1.0, longest_backoff=30.0)
    here.step()
    waits = []
    for _ in range(6):
        here.watched.relist.add("nodes")
        waits.append(stream.step())

    assert 0.5 <= waits[0] <= 1
    assert all(15 <= wait <= 30 for wait in waits[5:])


def test_gpu_pods_and_agents_answers_arrive(here):
    here.sim.add_node("n1", gpus=8)
    here.step()
    enrolment.enrol(here.watched.cluster, here.fleet)
    here.sim.add_pod("train", node="n1", gpus=8)
    here.sim.tick(120)

    here.step()

    assert GpuPod.objects.get().name == "train"
    assert Node.objects.get().gpu_allocated == 8
    assert NodeTuning.objects.get().protocol == 1


# ── what it takes to be believed ──────────────────────────────────────────────────────────────────────────────────────
def test_a_cached_list_that_lacks_a_node_is_not_believed_without_asking_past_the_cache(here, monkeypatch):
    here.sim.add_node("n1")
    here.step()
    asked = []
    real = here.fleet.list

    def lagging(kind, *, fresh=False):
        asked.append((kind, fresh))
        return real(kind, fresh=fresh) if fresh or kind != "nodes" else Page([], "1")

    monkeypatch.setattr(here.fleet, "list", lagging)
    here.start()
    here.step()

    assert names() == ["n1"]
    assert asked[:2] == [("nodes", False), ("nodes", True)]


def test_another_cluster_behind_the_same_url_is_not_mixed_in(here):
    here.sim.add_node("n1")
    here.step()
    other = SimCluster(seed=2, name="other")
    other.add_node("x1")
    here.fleet = SimFleet(other)
    here.start()

    here.step(2)

    assert names() == ["n1"]
    assert here.row().reach == "unreachable"
    assert "Another cluster answers" in here.row().reach_reason


def test_rows_are_called_true_only_as_of_what_arrived_on_every_stream(here):
    assert here.row().observed_at is None
    for stream in here.streams[:2]:
        stream.step()
    here.flush()
    assert here.row().observed_at is None

    here.streams[2].step()
    here.flush()

    assert here.row().observed_at is not None


# ── unreachable ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_an_outage_turns_the_nodes_unreachable_and_says_since_when_and_why(here, clock):
    here.sim.add_node("n1")
    here.step()
    assert Node.objects.get().health == "healthy"
    seen_true = here.row().observed_at
    began = clock.forward(60)
    here.sim.faults.outage = True

    here.step()
    clock.forward(60)
    here.step(2)

    cluster = here.row()
    assert (cluster.reach, cluster.reach_since) == ("unreachable", began)
    assert "outage" in cluster.reach_reason
    assert cluster.observed_at == seen_true
    assert Node.objects.select_related("cluster").get().health == "unreachable"
    assert "outage" in Node.objects.select_related("cluster").get().health_reason

    here.sim.faults.outage = False
    here.step(2)
    assert (here.row().reach, here.row().reach_reason) == ("reachable", "")
    assert Node.objects.select_related("cluster").get().health == "healthy"


@pytest.mark.parametrize("outcome", ["unauthorized", "impostor"])
def test_a_refused_credential_is_told_from_a_server_that_is_away_and_forgotten_once_it_is_accepted(
    here, clock, outcome
):
    here.sim.add_node("n1")
    here.step()
    began = clock.forward(60)
    here.sim.faults.add(outcome)
    here.step()
    clock.forward(60)
    here.step(2)
    assert (here.row().reach, here.row().refused_since) == ("unreachable", began)
    (alert,) = alert_rules.refused(here.row().pk, 0).amiss
    assert here.row().reach_reason in alert.sentence

    here.sim.faults.clear()
    here.step(2)
    assert (here.row().reach, here.row().refused_since) == ("reachable", None)
    assert not alert_rules.refused(here.row().pk, 0).amiss

    here.sim.faults.outage = True
    here.step(3)
    assert (here.row().reach, here.row().refused_since) == ("unreachable", None)


def test_one_dropped_connection_is_not_an_outage(here):
    here.sim.add_node("n1")
    here.step()
    here.sim.faults.add("timeout", verb="watch", resource="nodes", times=1)

    here.step()
    assert here.row().reach == "reachable"
    here.sim.add_node("n2")
    here.step()

    assert names() == ["n1", "n2"]


def test_being_told_to_slow_down_is_not_an_outage(here):
    here.step()
    here.sim.faults.add("throttle", verb="watch", times=6, retry_after=7)

    waits = [here.streams[0].step() for _ in range(3)]
    here.flush()

    assert min(waits) >= 7
    assert here.row().reach == "reachable"


def test_a_missing_permission_is_named(here):
    here.sim.api.forbidden.add(("list", "pods"))

    here.step()

    assert here.row().reach == "unreachable"
    assert "pods" in here.row().reach_reason


def test_a_program_error_in_a_stream_is_an_outage_not_an_end(here, monkeypatch):
    here.sim.add_node("n1")
    monkeypatch.setattr(here.fleet, "list", lambda *_, **__: 1 / 0)

    here.step()
    assert "ZeroDivisionError" in here.row().reach_reason
    monkeypatch.undo()
    here.step()

    assert names() == ["n1"]


def test_rubbish_from_a_server_is_survived(here, monkeypatch):
    rubbish = [None, 7, [], {"metadata": []}, {"metadata": {"uid": "u", "name": "n", "labels": 3}, "status": "fine"}]
    monkeypatch.setattr(here.fleet, "list", lambda *_, **__: Page(rubbish, "5"))

    here.step()

    assert here.row().reach == "reachable"
    assert names() == ["n"]


# ── quiet ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_quiet_fleet_writes_nothing_but_when_it_was_seen(here, clock, django_assert_num_queries, told):
    for number in range(10):
        here.sim.add_node(f"n{number}")
    here.step()
    told.clear()
    before = list(Node.objects.order_by("pk").values())
    clock.forward(10)

    for stream in here.streams:
        stream.step()
    with django_assert_num_queries(1):  # bookmarks move observed_at
        here.flush()
    clock.forward(1)
    for stream in here.streams:
        stream.step()
    here.flush()

    assert list(Node.objects.order_by("pk").values()) == before
    assert told == []
    assert here.row().observed_at == clock.at - timedelta(seconds=1)


def test_a_burst_is_one_write(here, told):
    here.step()
    told.clear()
    for number in range(40):
        here.sim.add_node(f"n{number}")

    here.streams[0].step()
    here.flush()

    assert [len(pks) for name, pks in told] == [40]


# ── enrolment ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_every_node_gets_a_tuning_in_mode_observe_with_the_catalogs_keys(here):
    hooks.observed_keys.subscribe(lambda: ["vm.swappiness", "net.core.somaxconn"])
    for number in range(5):
        here.sim.add_node(f"n{number}")
    here.step()

    assert enrolment.enrol(here.watched.cluster, here.fleet) == 5
    assert enrolment.enrol(here.watched.cluster, here.fleet) == 0

    spec = here.sim.tuning("n3")["spec"]
    assert spec["nodeUID"] == here.sim.node("n3")["metadata"]["uid"]
    assert (spec["mode"], spec["observe"]) == ("observe", "net.core.somaxconn\nvm.swappiness")
    assert NodeTuning.objects.count() == 5


@pytest.mark.parametrize("ownership", ["foreign", "unclaimed"])
def test_nothing_is_written_to_a_cluster_that_is_not_ours(here, ownership):
    here.sim.add_node("n1")
    here.step()
    here.watched.cluster.ownership = ownership

    assert enrolment.enrol(here.watched.cluster, here.fleet) == 0
    assert here.sim.objects("nodetunings") == []


def test_a_node_that_cannot_be_enrolled_holds_up_no_other_and_is_tried_again(here):
    for number in range(4):
        here.sim.add_node(f"n{number}")
    here.step()
    here.sim.faults.add("error", verb="create", resource="nodetunings", name="n2", times=1)

    assert enrolment.enrol(here.watched.cluster, here.fleet) == 3
    assert enrolment.enrol(here.watched.cluster, here.fleet) == 1


def test_why_nothing_can_be_enrolled_is_on_the_row_until_it_can(here):
    here.sim.add_node("n1")
    here.step()
    here.sim.faults.add("refuse", verb="create", resource="nodetunings", times=1)

    enrolment.enrol(here.watched.cluster, here.fleet)
    assert "policy" in here.row().enrolment_error
    enrolment.enrol(here.watched.cluster, here.fleet)

    assert here.row().enrolment_error == ""


# ── refresh, for who cannot wait ──────────────────────────────────────────────────────────────────────────────────────
def test_refresh_reads_everything_now(here):
    here.sim.add_node("n1", gpus=8)
    here.fleet.observe("n1", here.sim.node("n1")["metadata"]["uid"], _observe(here, "n1"))
    here.sim.add_pod("train", node="n1", gpus=4)
    here.sim.tick(120)

    supervisor.refresh(here.cluster, here.fleet)

    cluster = here.row()
    assert (cluster.reach, names()) == ("reachable", ["n1"])
    assert cluster.observed_at is not None
    assert NodeTuning.objects.get().protocol == 1


def test_refresh_of_another_cluster_is_refused(here):
    with pytest.raises(Untrusted, match="Another cluster"):
        supervisor.refresh(here.cluster, SimFleet(SimCluster(seed=9, name="other")))

    assert here.row().observed_at is None


def test_refresh_says_that_a_cluster_does_not_answer(here):
    here.sim.faults.outage = True

    with pytest.raises(FleetUnavailable):
        supervisor.refresh(here.cluster, here.fleet)


@pytest.mark.parametrize("look", [inspection.inspect, supervisor._leases], ids=["inspection", "leases, every minute"])
def test_a_mark_that_changed_hands_is_noticed(here, settings, look):
    here.fleet.claim(settings.SETPOINT_INSTALLATION)
    inspection.inspect(here.cluster, here.fleet)
    assert here.row().ownership == "ours"

    here.fleet.claim("somebody-else", take_over=True)
    look(here.cluster, here.fleet)

    assert (here.row().ownership, here.row().ownership_mark) == ("foreign", "somebody-else")


def _observe(here, name):
    from contract.nodetuning import Spec

    return Spec(node_uid=here.sim.node(name)["metadata"]["uid"])


# ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────────────
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


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.5), (2, 1), (3, 2), (6, 16), (7, 30), (60, 30)], ids=str)
def test_each_failure_doubles_the_wait_up_to_half_a_minute(failures, seconds):
    """The jitter takes at most half of it, so that two waits of the longest kind have no order."""
    pace = WatchTimings()

    waits = [pace.wait(failures) for _ in range(200)]

    assert seconds / 2 <= min(waits) <= max(waits) <= seconds
    assert len(set(waits)) > 1


def test_a_stream_that_never_listed_says_so_at_its_first_failure(db):
    posted = []
    watched = Watched(ClusterFactory.build(), SimFleet(SimCluster()))
    stream = Stream(watched, "pods", lambda _, message: posted.append(message), PACE)
    watched.fleet.cluster.faults.outage = True

    stream.step()

    assert [type(message) for message in posted] == [Failed]
