"""Streams against the simulated fleet: list, watch and list again, and the lists that are believed."""

from __future__ import annotations

import pytest

from clusters.fleet import Page
from clusters.inventory import enrolment
from clusters.models import GpuPod, Node, NodeTuning
from clusters.watch.streams import Failed, Stream, Watched, WatchTimings
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.clusters.watch.driven import PACE, names


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


def test_a_cached_list_that_lacks_a_node_is_not_believed_without_asking_past_the_cache(here, monkeypatch):
    here.sim.add_node("n1")
    here.step()
    lists = []
    real = here.fleet.list

    def lagging(kind, *, fresh=False, **how):
        lists.append((kind, fresh))
        return real(kind, fresh=fresh, **how) if fresh or kind != "nodes" else Page([], "1")

    monkeypatch.setattr(here.fleet, "list", lagging)
    here.start()
    here.step()

    assert names() == ["n1"]
    assert lists[:2] == [("nodes", False), ("nodes", True)]


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
