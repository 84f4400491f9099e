"""The agent's life against an API server that answers from memory: what it writes, when, and what it survives."""

from __future__ import annotations

import queue
import threading
from dataclasses import replace

import pytest

from agent.client import RequestRefused, Unavailable
from agent.identity import Identity
from agent.journal import Journal
from agent.loop import Loop, Watcher
from agent.reconcile import Reconciler
from contract.nodetuning import RestartGrant, Spec
from tests.agent.kernel import EXPIRES, SYS, Kernel, want


class Cluster:
    """Stand-in for agent.client.Client."""

    def __init__(self):
        self.object = None
        self.statuses = []
        self.leases = 0
        self.failing = 0

    def tuning(self, name):
        return self.object, 0.0

    def write_status(self, name, uid, status):
        if self.failing:
            self.failing -= 1
            raise Unavailable("no route")
        assert uid == self.object["metadata"]["uid"]
        self.statuses.append(status)

    def renew_lease(self, node, node_uid, seconds, now):
        self.leases += 1

    def put(self, spec, generation, uid="object-1", status=None):
        raw = spec if isinstance(spec, dict) else spec.to_json()
        self.object = {"metadata": {"uid": uid, "generation": generation}, "spec": raw}
        if status is not None:
            self.object["status"] = status
        return self.object


class Life:
    """A Loop driven one arrival or tick at a time."""

    def __init__(self, kernel):
        self.kernel, self.cluster, self.now = kernel, Cluster(), 1000.0
        reconciler = Reconciler(
            kernel, Journal(kernel), lambda: 1_000_000 + self.now, node_uid="uid-1", agent_version="1"
        )
        self.loop = Loop(
            self.cluster,
            reconciler,
            Identity("node-1", "uid-1"),
            verify_seconds=5,
            lease_seconds=60,
            clock=lambda: self.now,
        )

    def arrive(self, received):
        self.loop._arrive(received)
        self.loop._tick()

    def pass_(self, seconds):
        for _ in range(int(seconds)):
            self.now += 1
            self.loop._tick()


@pytest.fixture
def life(kernel):
    return Life(kernel)


SPEC = Spec("uid-1", mode="apply", settings=(want("vm.swappiness", "10", "60"),), step="step-1")


def test_one_spec_costs_one_write_and_quiet_costs_none(life, kernel):
    life.arrive(life.cluster.put(SPEC, 1))
    life.pass_(600)

    [status] = life.cluster.statuses
    assert (status["observedGeneration"], status["step"]) == (1, "step-1")
    assert kernel.value("vm.swappiness") == "10"
    assert 9 <= life.cluster.leases <= 12


def test_its_own_status_coming_back_is_no_news(life):
    life.arrive(life.cluster.put(SPEC, 1))
    life.arrive(life.cluster.put(SPEC, 1, status=life.cluster.statuses[0]))

    assert len(life.cluster.statuses) == 1


def test_a_restarted_agent_whose_status_stands_in_the_cluster_writes_nothing(life, kernel):
    life.arrive(life.cluster.put(SPEC, 1))
    again = Life(kernel)
    again.now += 5000
    again.arrive(again.cluster.put(SPEC, 1, status=life.cluster.statuses[0]))
    again.pass_(120)

    assert again.cluster.statuses == []


def test_drift_is_told_within_one_look(life, kernel):
    life.arrive(life.cluster.put(SPEC, 1))
    kernel.live[SYS + "vm/swappiness"] = "77"
    life.pass_(6)

    assert [s["settings"][0]["state"] for s in life.cluster.statuses] == ["Effective", "Drifted"]


def test_an_api_server_that_is_away_gets_the_newest_status_later(life):
    life.cluster.failing = 3
    life.arrive(life.cluster.put(SPEC, 1))
    assert life.cluster.statuses == []
    life.pass_(20)

    assert [s["observedGeneration"] for s in life.cluster.statuses] == [1]


def test_no_object_means_nothing_is_written_anywhere(life, kernel):
    life.arrive(None)
    life.pass_(60)
    life.arrive(life.cluster.put(SPEC, 1))
    effects = len(kernel.effects)
    life.arrive(None)
    kernel.live[SYS + "vm/swappiness"] = "77"
    life.pass_(60)

    assert len(kernel.effects) == effects
    assert len(life.cluster.statuses) == 1


@pytest.mark.parametrize("raw", [{}, {"nodeUID": 7}, {"nodeUID": "uid-1", "settings": [{"key": "x" * 200}]}])
def test_a_spec_that_cannot_be_read_is_said_and_not_obeyed(life, kernel, raw):
    life.arrive(life.cluster.put(raw, 4))

    [status] = life.cluster.statuses
    degraded = next(c for c in status["conditions"] if c["type"] == "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "BadSpec")
    assert status["observedGeneration"] == 4
    assert kernel.effects == []


def test_a_grant_is_carried_out_once_and_told_before_and_after(life, kernel):
    spec = replace(
        SPEC, settings=(want("hugepages-2Mi", "512", "0"),), restart=RestartGrant("g", "kubelet", "boot-1", EXPIRES)
    )
    life.arrive(life.cluster.put(spec, 1))
    life.pass_(30)

    assert [s.get("restart", {}).get("state") for s in life.cluster.statuses] == [None, "Journalled", "Done"]
    assert [e for e in kernel.effects if e[0] == "run"] == [("run", "RESTART_KUBELET")]


def test_a_grant_withdrawn_meanwhile_is_not_carried_out(life, kernel):
    spec = replace(SPEC, restart=RestartGrant("g", "reboot", "boot-1", EXPIRES))
    stale = life.cluster.put(spec, 1)
    life.cluster.put(replace(spec, restart=None), 2)
    life.arrive(stale)
    life.pass_(30)

    assert not [e for e in kernel.effects if e[0] == "run"]


class WatchedCluster(Cluster):
    """Answers a list and then, one after the other, what is in `script`."""

    def __init__(self, script):
        super().__init__()
        self.script, self.lists, self.watched = script, 0, []
        self.over = threading.Event()

    def list_one(self, name):
        self.lists += 1
        return {"metadata": {"uid": "u", "generation": self.lists}}, f"rv-{self.lists}"

    def watch_one(self, name, version):
        self.watched.append(version)
        if not self.script:
            self.over.set()
            threading.Event().wait()
        for item in self.script.pop(0):
            if isinstance(item, Exception):
                raise item
            yield item


def test_a_watch_goes_on_from_its_bookmark_and_an_expired_one_lists_again(monkeypatch):
    monkeypatch.setattr("agent.loop.time.sleep", lambda seconds: None)
    change = {"type": "MODIFIED", "object": {"metadata": {"uid": "u", "generation": 9, "resourceVersion": "rv-9"}}}
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "rv-20"}}}
    gone = {"type": "DELETED", "object": {"metadata": {"resourceVersion": "rv-30"}}}
    cluster = WatchedCluster([[change, bookmark], [gone, RequestRefused(410, "too old")], [Unavailable("reset")]])
    arrivals = queue.SimpleQueue()

    Watcher(cluster, "node-1", arrivals).start()
    assert cluster.over.wait(30)

    assert cluster.watched == ["rv-1", "rv-20", "rv-2", "rv-3"]
    seen = [arrivals.get_nowait() for _ in range(arrivals.qsize())]
    assert [o and o["metadata"]["generation"] for o in seen] == [1, 9, None, 2, 3]


def test_the_virtual_kernel_needs_nothing_but_the_port():
    """The simulated fleet relies on it: the core runs without threads, network or wall clock."""
    kernel = Kernel()
    core = Reconciler(kernel, Journal(kernel), lambda: 0.0, node_uid="uid-1", agent_version="1")
    assert core.reconcile(SPEC, 1).setting("vm.swappiness").state == "Effective"
