"""Several processes hand clusters over, take them, come and die at the same moment: each cluster has one holder.

On PostgreSQL, where transactions overlap. The clock is fixed while all of them tick at once, and moves in between,
so that nothing depends on how fast this machine is. Each cluster's holder is noted when a process begins to watch it,
and when it ends that.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from uuid import UUID

import pytest
from django.db import connections

from clusters.models import Cluster, Node, Watcher
from clusters.watch import sharing, supervisor
from clusters.watch.devices import DeviceWatch
from clusters.watch.sharing import MARGIN
from clusters.watch.streams import Watched, WatchTimings
from tests.clusters.factories import ClusterFactory
from tests.conftest import Clock

pytestmark = pytest.mark.django_db(transaction=True)

LEASE = 30.0
ROUND = LEASE / 3 + 1
"""So that every process renews and hands over in every round."""
PATIENCE_SECONDS = 60.0


class Processes:
    def __init__(self, clock: Clock, chance: random.Random, weights: list[int]) -> None:
        self.clock, self.chance, self.made = clock, chance, 0
        self.alive: dict[str, supervisor.Watch] = {}
        self.guard = threading.Lock()
        self.holders: dict[UUID, str] = {}
        self.wrong: list[str] = []
        self.starts = self.hand_overs = 0
        self.clusters = [ClusterFactory() for _ in weights]
        self.unwatched = {cluster.pk: 0.0 for cluster in self.clusters}
        for cluster, weight in zip(self.clusters, weights, strict=True):
            Node.objects.bulk_create(
                Node(cluster=cluster, uid=f"{cluster.pk}-{n}", name=f"n{n}") for n in range(weight)
            )

    def join(self) -> None:
        self.made += 1
        self.alive[f"p{self.made}"] = supervisor.Watch(f"p{self.made}", WatchTimings())

    def kill(self) -> None:
        """Die without releasing anything; the leases do not know that."""
        gone = self.chance.choice(list(self.alive))
        self.alive.pop(gone)
        for pk in [pk for pk, owner in self.holders.items() if owner == gone]:
            del self.holders[pk]

    def begins(self, process: supervisor.Watch, pk: UUID) -> None:
        with self.guard:
            self.starts += 1
            if other := self.holders.get(pk):
                self.wrong.append(f"{process.owner} began to watch what {other} watched")
            self.holders[pk] = process.owner

    def ends(self, process: supervisor.Watch, pk: UUID) -> None:
        with self.guard:
            self.hand_overs += 1
            if self.holders.get(pk) != process.owner:
                self.wrong.append(f"{process.owner} ended what {self.holders.get(pk)} watched")
            self.holders.pop(pk, None)

    def tick(self, *also: Callable[[], None]) -> None:
        """All of them, and what else is done, at the same moment."""
        self.clock.forward(seconds=ROUND)
        work = [process.tick for process in self.alive.values()] + list(also)
        together = threading.Barrier(len(work))

        def run(task: Callable[[], None], pause: float) -> None:
            try:
                together.wait(PATIENCE_SECONDS)
                time.sleep(pause)
                task()
            except BaseException as error:
                self.wrong.append(repr(error))
            finally:
                connections.close_all()

        threads = [threading.Thread(target=run, args=(task, self.chance.uniform(0, 0.02))) for task in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert not any(thread.is_alive() for thread in threads)
        for pk in self.unwatched:
            self.unwatched[pk] = 0.0 if pk in self.holders else self.unwatched[pk] + ROUND

    def leave(self) -> Callable[[], None]:
        """One of them ends in order, while the others tick."""
        process = self.alive.pop(self.chance.choice(list(self.alive)))
        return process._let_go_of_all

    def must_be_shared(self) -> None:
        loads = {owner: sum(of.values()) for owner, of in sharing.loads().items()}
        assert set(loads) == set(self.alive)
        share, heaviest = sum(loads.values()) / len(loads), max(sharing.weights().values())
        assert max(loads.values()) <= max(share, min(loads.values()) + heaviest) + MARGIN * share, loads


@pytest.fixture
def make(settings, clock, monkeypatch):
    settings.SETPOINT_LEASE_SECONDS = LEASE
    here: list[Processes] = []
    really_ends = supervisor.Watch._let_go

    def start(process, cluster):
        here[0].begins(process, cluster.pk)
        watched = Watched(cluster, None)
        devices = DeviceWatch(watched, None, None)
        process.held[cluster.pk] = supervisor._HeldCluster(watched, ExitStack(), [], {}, None, None, devices)

    def let_go(process, pk):
        really_ends(process, pk)
        here[0].ends(process, pk)

    monkeypatch.setattr(supervisor.Watch, "_start", start)
    monkeypatch.setattr(supervisor.Watch, "_let_go", let_go)
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: clock().timestamp()))

    def made(chance, weights):
        here.append(Processes(clock, chance, weights))
        return here[0]

    return made


@pytest.mark.parametrize("seed", range(4))
def test_no_cluster_has_two_holders_or_none_for_longer_than_a_lease_and_shares_settle(make, seed, caplog):
    chance = random.Random(seed)
    here = make(chance, [chance.randrange(40) for _ in range(24)])
    with caplog.at_level(logging.ERROR):
        here.join()
        here.join()
        for number in range(40):
            also = []
            what = chance.random()
            if number % 5 == 0 and len(here.alive) < 6:
                here.join()
                here.join()  # two who have nothing, so that the two who have too much give at once
            elif what < 0.15 and len(here.alive) > 2:
                here.kill()
            elif what < 0.3 and len(here.alive) > 2:
                also = [here.leave()]
            here.tick(*also)
            assert here.wrong == []
            longest = max(here.unwatched.values())
            assert longest <= LEASE + 2 * ROUND, f"nobody watched a cluster for {longest} s"
    assert "could not reach the database" not in caplog.text, "a deadlock: a tick was lost"

    for _ in range(12):
        here.tick()
    assert here.wrong == []
    settled = dict(here.holders)
    for _ in range(4):
        here.tick()
    assert here.holders == settled, "nothing goes to and fro"
    assert set(settled) == {cluster.pk for cluster in here.clusters}
    stored = dict(Cluster.objects.values_list("pk", "watch_owner"))
    assert stored == settled, "what the leases say is what is so"
    here.must_be_shared()
    assert here.hand_overs > 30, "or this tried too little"
    assert Watcher.objects.count() >= len(here.alive)


def test_two_that_have_too_much_give_to_one_that_has_nothing_and_not_twice(make):
    """Each counts with the other's gift: the one that has nothing does not end up with more than its share."""
    for seed in range(3):
        Cluster.objects.all().delete()
        Watcher.objects.all().delete()
        chance = random.Random(seed)
        here = make(chance, [])
        here.__init__(here.clock, chance, [10] * 12)
        here.join()
        here.tick()
        here.join()
        for _ in range(5):
            here.tick()
        here.join()
        for _ in range(2):
            here.tick()
            loads = {owner: sum(of.values()) for owner, of in sharing.loads().items()}
            assert loads["p3"] <= sum(loads.values()) / 3 * (1 + MARGIN), loads
        assert here.wrong == []
        for _ in range(3):
            here.tick()
        here.must_be_shared()
