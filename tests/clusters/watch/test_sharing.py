"""Clusters are shared by weight: a later process gets a share, shares settle, and one process holds each cluster."""

from __future__ import annotations

import random
from contextlib import ExitStack
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import DatabaseError
from hypothesis import given
from hypothesis import strategies as st

from clusters.models import Cluster, Node, Watcher
from clusters.watch import sharing, supervisor
from clusters.watch.devices import DeviceWatch
from clusters.watch.sharing import MARGIN, hand_over
from clusters.watch.streams import Watched, WatchTimings
from common.clock import now
from tests.clusters.factories import ClusterFactory

LEASE = 30.0
TICK = 1.0


# ── the decision ──────────────────────────────────────────────────────────────────────────────────────────────────────
def turn(owners, weights, processes, me):
    loads = {p: sum(w for c, w in enumerate(weights) if owners[c] == p) for p in processes}
    mine = {c: w for c, w in enumerate(weights) if owners[c] == me}
    return hand_over(me, mine, loads, sum(weights))


@given(
    weights=st.lists(st.one_of(st.integers(1, 20), st.integers(1, 5000)), min_size=1, max_size=60),
    count=st.integers(1, 8),
    chance=st.randoms(use_true_random=False),
)
def test_shares_settle_whoever_holds_what_at_first_and_stay(weights, count, chance):
    processes = [f"p{n}" for n in range(count)]
    owners = [chance.choice(processes) for _ in weights]
    share = sum(weights) / count
    moves = 0
    for _ in range(200):
        given_now = 0
        for me in chance.sample(processes, count):
            for cluster, to in turn(owners, weights, processes, me):
                assert owners[cluster] == me != to
                owners[cluster] = to
                given_now += 1
        moves += given_now
        if not given_now:
            break
    else:
        raise AssertionError("no end of handing over")
    assert moves <= len(weights) * count
    loads = {p: sum(w for c, w in enumerate(weights) if owners[c] == p) for p in processes}
    least = min(loads.values())
    for cluster, owner in enumerate(owners):
        is_above = loads[owner] > share * (1 + MARGIN)
        assert not is_above or least + weights[cluster] >= loads[owner] - MARGIN * share
    assert all(turn(owners, weights, processes, me) == [] for me in processes)


@given(
    weights=st.lists(st.integers(50, 150), min_size=20, max_size=60),
    count=st.integers(2, 5),
    chance=st.randoms(use_true_random=False),
)
def test_a_node_that_comes_or_goes_moves_nothing_once_all_have_their_share(weights, count, chance):
    processes = [f"p{n}" for n in range(count)]
    owners = [processes[0]] * len(weights)
    for _ in range(50):
        for me in processes:
            for cluster, to in turn(owners, weights, processes, me):
                owners[cluster] = to
    settled = list(owners)
    calm = 0
    for _ in range(20):
        cluster = chance.randrange(len(weights))
        weights[cluster] += chance.choice((-1, 1))
        calm += all(turn(owners, weights, processes, me) == [] for me in processes)
        for me in processes:
            for moved, to in turn(owners, weights, processes, me):
                owners[moved] = to
    assert sum(a != b for a, b in zip(owners, settled, strict=True)) <= 1
    assert calm >= 19


def test_the_lightest_that_fits_goes():
    assert hand_over("a", {"big": 90, "small": 10}, {"a": 100, "b": 0}, 100) == [("small", "b")]
    assert hand_over("a", {"big": 60, "other": 50}, {"a": 110, "b": 0}, 110) == [("other", "b")]
    assert hand_over("a", {"only": 5000}, {"a": 5000, "b": 0}, 5000) == []


# ── several processes on one database ─────────────────────────────────────────────────────────────────────────────────
class Site:
    """Processes that tick in one test, in an order that a seed decides; what they hold has no threads."""

    def __init__(self, clock, weights):
        self.clock, self.processes, self.made = clock, {}, 0
        self.clusters = [ClusterFactory() for _ in weights]
        self.unwatched: dict[object, float] = {}
        for cluster, weight in zip(self.clusters, weights, strict=True):
            Node.objects.bulk_create(
                Node(cluster=cluster, uid=f"{cluster.pk}-{n}", name=f"n{n}") for n in range(weight)
            )

    def join(self):
        self.made += 1
        process = supervisor.Watch(f"p{self.made}", WatchTimings())
        self.processes[process.owner] = process
        return process

    def holders(self):
        return {c.pk: [p.owner for p in self.processes.values() if c.pk in p.held] for c in self.clusters}

    def pass_time(self, seconds, chance):
        """Tick every process each second, in any order. No two ever hold one cluster; none is long without a holder."""
        worst = 0.0
        for _ in range(int(seconds / TICK)):
            self.clock.forward(seconds=TICK)
            for process in chance.sample(list(self.processes.values()), len(self.processes)):
                process.tick()
                held = self.holders()
                assert all(len(by) <= 1 for by in held.values()), held
            for pk, by in self.holders().items():
                self.unwatched[pk] = 0.0 if by else self.unwatched.get(pk, 0.0) + TICK
            worst = max(worst, *self.unwatched.values())
        return worst

    def loads(self):
        return {owner: sum(of.values()) for owner, of in sharing.loads().items()}

    def must_be_shared(self):
        loads, heaviest = self.loads(), max(sharing.weights().values())
        assert set(loads) == set(self.processes)
        margin = MARGIN * sum(loads.values()) / len(loads)
        most = max(sum(loads.values()) / len(loads), min(loads.values()) + heaviest)
        assert max(loads.values()) <= most + margin, loads


@pytest.fixture
def site(db, settings, clock, monkeypatch):
    settings.SETPOINT_LEASE_SECONDS = LEASE

    def start(self, cluster):
        watched = Watched(cluster, None)
        devices = DeviceWatch(watched, None, None)
        self.held[cluster.pk] = supervisor._HeldCluster(watched, ExitStack(), [], {}, None, None, devices)

    monkeypatch.setattr(supervisor.Watch, "_start", start)
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: clock().timestamp()))
    return lambda weights: Site(clock, weights)


@pytest.mark.parametrize("seed", range(4))
def test_a_new_process_gets_its_share_within_a_minute_and_no_cluster_is_left_alone(site, seed):
    chance = random.Random(seed)
    here = site([chance.randrange(30) for _ in range(12)])
    first = here.join()
    here.pass_time(20, chance)
    assert len(first.held) == 12
    for _ in range(2):
        here.join()
        assert here.pass_time(60, chance) <= 2 * TICK
        here.must_be_shared()
    before = here.holders()
    here.pass_time(60, chance)
    assert here.holders() == before


@pytest.mark.parametrize("seed", range(4))
def test_after_a_rolling_restart_all_have_their_share(site, seed):
    chance = random.Random(seed)
    here = site([chance.randrange(20) for _ in range(9)])
    for _ in range(3):
        here.join()
    here.pass_time(40, chance)
    for owner in list(here.processes):
        here.processes.pop(owner)._let_go_of_all()
        here.join()
        assert here.pass_time(25, chance) <= 3 * TICK
    here.pass_time(40, chance)
    assert all(process.held for process in here.processes.values())
    here.must_be_shared()


@pytest.mark.parametrize("seed", range(4))
def test_a_process_that_is_killed_costs_its_clusters_a_lease_and_gets_no_more(site, seed):
    chance = random.Random(seed)
    here = site([chance.randrange(20) for _ in range(8)])
    for _ in range(3):
        here.join()
    here.pass_time(40, chance)
    here.processes.pop(chance.choice(list(here.processes)))  # without a word
    assert here.pass_time(90, chance) <= LEASE + 5 * TICK
    assert all(len(by) == 1 for by in here.holders().values())
    assert set(here.loads()) == set(here.processes)


def test_what_is_handed_over_to_a_process_that_just_died_is_free_after_a_lease(site):
    here = site([5, 5, 5, 5])
    first, second = here.join(), here.join()
    first.tick()
    sharing.register(second.owner, timedelta(seconds=LEASE))
    here.processes.pop(second.owner)
    assert here.pass_time(12, random.Random(1)) > 0  # some were given to it
    assert here.pass_time(60, random.Random(1)) <= LEASE + 5 * TICK
    assert len(first.held) == 4


@pytest.mark.django_db
def test_a_process_says_that_it_is_alive_only_by_ticks_that_did_their_work(tmp_path, monkeypatch):
    alive = tmp_path / "alive"
    process = supervisor.Watch("p1", WatchTimings(), alive_file=alive)

    def away(self):
        raise DatabaseError("away")

    with monkeypatch.context() as patch:
        patch.setattr(supervisor.Watch, "_acquire", away)
        process.tick()
    assert not alive.exists()
    process.tick()
    assert alive.exists()
    process.alive_file = tmp_path / "no" / "folder"
    process.tick()  # and continues


@pytest.mark.django_db
def test_a_process_that_ends_is_no_one_to_hand_over_to():
    ClusterFactory()
    process = supervisor.Watch("p1", WatchTimings())
    sharing.register("p1", timedelta(seconds=LEASE))
    process._let_go_of_all()
    assert not Watcher.objects.exists()
    assert not Cluster.objects.filter(watch_lease_until__gt=now()).exists()
