"""Changes that the watch missed are found by names and versions, repaired and counted; its pending writes are not."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta

import pytest

from clusters.fleet import Page
from clusters.inventory import enrolment, inspection
from clusters.models import Cluster, GpuPod, Node, NodeTuning, RowCheck, Tombstone
from clusters.watch import anti_entropy, value_comparison
from clusters.watch.anti_entropy import AntiEntropy
from clusters.watch.streams import KINDS, Failed, Stream, Watched, WatchTimings
from clusters.watch.writer import Writer
from common.clock import now
from contract.nodetuning import Mode, Spec
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory

pytestmark = pytest.mark.django_db

PACE = WatchTimings(watch=1.5, gather=0.05, shortest_watch=0, backoff=0.01, longest_backoff=0.02, compare=0, settle=0)


class WatchedCluster:
    """A cluster of three nodes with agents' objects and pods, whose rows are true, and what holds them so."""

    def __init__(self, settings):
        self.sim = SimCluster()
        self.fleet = SimFleet(self.sim)
        self.fleet.claim(settings.SETPOINT_INSTALLATION)
        self.cluster = ClusterFactory(uid=self.sim.uid, ownership="ours")
        self.writer = Writer(PACE)
        self.watched = Watched(Cluster.objects.get(), self.fleet)
        self.streams = [Stream(self.watched, kind, self.writer.post, PACE) for kind in KINDS]
        for number in range(3):
            self.sim.add_node(f"n{number}", gpus=8)
            self.sim.pods.add(f"p{number}", node=f"n{number}", gpus=2)
            self.sim.pods.add(f"idle{number}", node=f"n{number}")
        inspection.refresh(self.cluster, self.fleet)
        enrolment.enrol(self.cluster, self.fleet)
        self.follow(2)
        self.entropy = AntiEntropy(self.watched, PACE)

    def follow(self, times=1):
        for _ in range(times):
            for stream in self.streams:
                stream.step()
            while self.writer.flush():
                pass

    def turn(self, kind):
        """Compare once, and settle the differences."""
        if comparison := self.entropy.compare_names(kind):
            self.entropy.settle(comparison)
        return comparison

    def counted(self, kind):
        row = RowCheck.objects.filter(kind=kind).first()
        return {name: n for name in (*RowCheck.COUNTED, "unmended") if row and (n := getattr(row, name))}


@pytest.fixture
def here(settings):
    return WatchedCluster(settings)


ROWS = {
    "nodes": Node.objects.present,
    "nodetunings": NodeTuning.objects.all,
    "pods": GpuPod.objects.all,
}


def truth(kind):
    """Versions and values, not when they were heard."""
    bookkeeping = ("changed_at", "versioned_at", "id", "pk", "gone_at")
    return sorted(str({k: v for k, v in row.items() if k not in bookkeeping}) for row in ROWS[kind]().values())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_true_cost_a_list_of_names(here, kind):
    before = Counter(here.fleet.calls)
    assert here.turn(kind) is None
    calls = Counter(here.fleet.calls) - before
    assert calls.pop(("list", kind)) == 1
    assert set(calls) <= {("get", "namespaces")}  # whether it is the same cluster
    assert here.counted(kind) == {}
    assert RowCheck.objects.get(kind=kind).checks == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_behind_is_mended(here, kind, caplog):
    was = truth(kind)
    column = {"nodes": {"kernel": "old"}, "nodetunings": {"protocol": 7}, "pods": {"phase": "Pending"}}[kind]
    pk = ROWS[kind]().order_by("pk").first().pk
    ROWS[kind]().filter(pk=pk).update(resource_version="1", **column)

    with caplog.at_level(logging.WARNING):
        here.turn(kind)

    assert truth(kind) == was
    assert here.counted(kind) == {"behind": 1}
    assert "1 behind" in caplog.text


ALTERED = {
    "nodes": {"kernel": "another", "labels": {"pool": "another"}},
    "nodetunings": {"observed": {"vm.swappiness": "1"}, "mode": "apply"},
    "pods": {"gpus": 7, "phase": "Pending"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_with_other_values_at_the_right_version_is_mended(here, kind, caplog):
    was = truth(kind)
    row = ROWS[kind]().order_by("pk").last()
    ROWS[kind]().filter(pk=row.pk).update(**ALTERED[kind])
    assert truth(kind) != was

    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            here.entropy.turn()

    assert truth(kind) == was
    assert here.counted(kind) == {"altered": 1}
    assert all(name in caplog.text for name in ALTERED[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_are_true_are_no_difference_and_every_row_has_its_turn(here, kind, monkeypatch):
    """Values are compared in parts; the first may begin at any row."""
    monkeypatch.setattr(value_comparison, "AT_LEAST", 2)
    was = truth(kind)
    values = value_comparison.ComparingValues(here.watched, PACE)
    before = Counter(here.fleet.calls)
    assert [values.turn(kind) for _ in range(3)] == [2, 2, 2]
    assert (Counter(here.fleet.calls) - before)[("get", kind)] == 6, "three rows, in turn"
    assert truth(kind) == was
    assert here.counted(kind) == {}
    assert RowCheck.objects.get(kind=kind).values_compared == 6


def test_a_large_clusters_parts_are_larger_so_that_each_row_is_compared_within_a_day(here, monkeypatch):
    monkeypatch.setattr(value_comparison, "AT_LEAST", 1)
    monkeypatch.setattr(value_comparison, "WITHIN_SECONDS", 1.0)
    assert value_comparison.ComparingValues(here.watched, PACE).turn("nodes") == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_the_watch_is_about_to_write_is_left_to_it(here, kind):
    here.sim.nodes.cordon("n1")
    here.fleet.observe("n1", here.sim.node("n1")["metadata"]["uid"], Spec(node_uid="x", mode=Mode.OBSERVE))
    here.sim.store.delete("pods", "p2", "default")
    was = truth(kind)
    value_comparison.ComparingValues(here.watched, PACE).turn(kind)
    assert truth(kind) == was
    assert here.counted(kind) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_written_while_its_object_is_read_is_not_set_back(here, kind, monkeypatch):
    """The object that was read has the version of before; the row has moved on."""
    ROWS[kind]().update(**ALTERED[kind])
    real = value_comparison.ComparingValues._mend

    def late(self, kind, differing):
        ROWS[kind]().update(resource_version="987654321")
        return real(self, kind, differing)

    monkeypatch.setattr(value_comparison.ComparingValues, "_mend", late)
    value_comparison.ComparingValues(here.watched, PACE).turn(kind)
    assert set(ROWS[kind]().values_list("resource_version", flat=True)) == {"987654321"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_missing_is_mended_though_its_deletion_was_heard(here, kind):
    """A tombstone that is wrong does no harm for longer than this."""
    was = truth(kind)
    row = ROWS[kind]().order_by("pk").first()
    key = row.node.uid if kind == "nodetunings" else row.uid
    far = here.sim.store.rv
    Tombstone.objects.create(cluster=here.cluster, kind=kind, key=key, resource_version=far, at=now())
    if kind == "nodes":
        Node.objects.filter(pk=row.pk).update(gone_at=now(), resource_version=far)
    else:
        row.delete()

    here.turn(kind)

    assert truth(kind) == was
    assert here.counted(kind) == {"missing": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_an_object_is_ended(here, kind):
    remove = {
        "nodes": lambda: here.sim.nodes.delete("n0"),
        "nodetunings": lambda: here.sim.store.delete("nodetunings", "n0"),
        "pods": lambda: here.sim.store.delete("pods", "p0", "default"),
    }[kind]
    remove()  # and the watch never says so

    here.turn(kind)

    assert ROWS[kind]().count() == 2
    assert here.counted(kind) == {"orphaned": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_that_no_object_has_is_mended(here, kind):
    """An etcd restored from a backup counts versions from a lower one, and a watch may continue without a 410."""
    was = truth(kind)
    past = now() - timedelta(minutes=5)
    for row in ROWS[kind]():
        ROWS[kind]().filter(pk=row.pk).update(resource_version="987654321", versioned_at=past)

    here.turn(kind)

    assert truth(kind) == was
    assert here.counted(kind) == {"misread": 3}


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_watch_writes_a_moment_later_is_no_difference(here, kind):
    here.sim.nodes.cordon("n1")
    here.sim.store.delete("pods", "p2", "default")
    here.sim.add_node("n9", gpus=8)
    comparison = here.entropy.compare_names(kind)
    here.follow(2)

    if comparison:
        here.entropy.settle(comparison)

    assert here.counted(kind) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_what_changes_after_the_list_is_not_set_back(here, kind):
    heads, is_true = here.fleet.heads, []

    def slow(kind, **how):
        page = heads(kind, **how)
        here.sim.nodes.cordon("n1")
        here.sim.store.delete("pods", "p2", "default")
        here.sim.nodes.delete("n0")
        here.follow(2)
        is_true.extend(truth(kind))
        return page

    here.fleet.heads = slow
    here.turn(kind)

    assert truth(kind) == is_true
    assert here.counted(kind) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_made_after_the_list_is_no_orphan(here, kind):
    heads = here.fleet.heads

    def slow(kind, **how):
        page = heads(kind, **how)
        here.sim.add_node("n9", gpus=8)
        here.sim.pods.add("p9", node="n9", gpus=2)
        here.follow(2)
        enrolment.enrol(here.cluster, here.fleet)
        return page

    here.fleet.heads = slow
    assert here.turn(kind) is None


def test_many_differences_are_one_list(here, monkeypatch):
    monkeypatch.setattr(anti_entropy, "ONE_BY_ONE", 2)
    was = truth("nodes")
    Node.objects.update(resource_version="1", kernel="old")
    before = Counter(here.fleet.calls)

    here.turn("nodes")

    calls = Counter(here.fleet.calls) - before
    assert (calls[("list", "nodes")], calls[("get", "nodes")]) == (2, 0)  # names, then all of it
    assert truth("nodes") == was
    assert here.counted("nodes") == {"behind": 3}


def test_while_a_watch_fails_nothing_is_compared(here):
    here.watched.failed["nodes"] = Failed("nodes", "away", now())
    Node.objects.update(resource_version="1")
    for _ in range(8):
        here.entropy.turn()
    assert here.counted("nodes") == {}
    here.watched.failed.clear()
    for _ in range(8):
        here.entropy.turn()
    assert here.counted("nodes") == {"behind": 3}


def test_a_predecessors_object_is_read_once_and_then_known(here):
    here.sim.add_node("n7")
    here.follow()
    here.fleet.observe("n7", "uid-of-a-node-before", Spec(node_uid="uid-of-a-node-before", mode=Mode.OBSERVE))
    here.turn("nodetunings")
    before = Counter(here.fleet.calls)

    assert here.turn("nodetunings") is None

    assert (Counter(here.fleet.calls) - before)[("get", "nodetunings")] == 0
    assert here.counted("nodetunings") == {}


def test_pods_without_gpus_are_not_read_again(here):
    before = Counter(here.fleet.calls)
    here.sim.pods.add("late", node="n1")
    here.turn("pods")
    here.turn("pods")
    assert (Counter(here.fleet.calls) - before)[("get", "pods")] == 1
    assert here.counted("pods") == {}


@pytest.mark.parametrize("gpus", [0, 2])
def test_pods_that_are_deleted_while_their_names_are_read_are_no_difference(here, gpus):
    for number in range(5):
        here.sim.pods.add(f"late{number}", node="n1", gpus=gpus)
    here.follow()
    heads = here.fleet.heads

    def slow(kind, *, keep):
        page = heads(kind, keep=None)
        for number in range(5):
            here.sim.store.delete("pods", f"late{number}", "default")
        here.follow()
        return Page([raw for raw in page.items if keep(raw)], page.resource_version)

    here.fleet.heads = slow
    before = Counter(here.fleet.calls)

    assert here.turn("pods") is None
    assert (Counter(here.fleet.calls) - before)[("get", "pods")] == 0
    assert here.counted("pods") == {}


def test_another_cluster_at_the_address_ends_no_row(here):
    other = SimCluster(seed=2, name="other")
    here.watched.fleet = SimFleet(other)
    with pytest.raises(inspection.Untrusted):
        here.entropy.compare_names("nodes")
    assert Node.objects.present().count() == 3


def test_forty_thousand_pods_and_five_thousand_nodes_are_compared_in_bounded_queries(
    here, django_assert_max_num_queries
):
    """Names alone are compared: no query grows with the number of objects, only chunks of rows that differ."""
    heads = {
        f"uid{n}": {"metadata": {"uid": f"uid{n}", "name": f"x{n}", "resourceVersion": "9"}} for n in range(45_000)
    }
    here.watched.rowless |= set(heads)
    page = here.fleet.heads("pods")
    page.items.extend(heads.values())
    here.fleet.heads = lambda kind, **how: page
    with django_assert_max_num_queries(8):
        assert here.turn("pods") is None
