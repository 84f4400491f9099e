"""Late answers: an answer or a list that was read before its object changed, or was deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from clusters.inventory import store
from clusters.models import GpuPod, Node, NodeTuning
from tests.clusters.factories import ClusterFactory, raw_node, raw_pod, raw_status, raw_tuning

pytestmark = pytest.mark.django_db

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = AT + timedelta(seconds=1)
LATEST = AT + timedelta(seconds=2)


def at_version(raw, version):
    raw["metadata"]["resourceVersion"] = str(version)
    return raw


def a_node(version, **over):
    return at_version(raw_node("n1", **over), version)


def a_tuning(version, **over):
    return at_version(raw_tuning("n1", **over), version)


def a_pod(version, **over):
    return at_version(raw_pod("p1", **over), version)


KINDS = {
    "nodes": (store.observe_nodes, a_node, Node.objects.present),
    "nodetunings": (store.observe_tunings, a_tuning, NodeTuning.objects.all),
    "pods": (store.observe_pods, a_pod, GpuPod.objects.all),
}
OTHER = {
    "nodes": lambda: a_node(0, unschedulable=True),
    "nodetunings": lambda: a_tuning(0, status=raw_status("n1")),
    "pods": lambda: a_pod(0, phase="Pending"),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def cluster(kind):
    made = ClusterFactory()
    if kind == "nodetunings":
        store.observe_nodes(made, [a_node(1)], complete=True, at=AT)
    return made


def test_a_version_that_says_nothing_new_is_known_all_the_same(cluster, kind):
    """Cordoned and given back at once: the answer to the cordon comes last, and is older than what the watch heard."""
    observe, raw, present = KINDS[kind]
    observe(cluster, [raw(10)], complete=False, at=AT)
    observe(cluster, [raw(12)], complete=False, at=LATER)
    assert present().get().resource_version == "12"
    before = present().values().get()

    assert not observe(cluster, [at_version(OTHER[kind](), 11)], complete=False, at=LATEST)
    assert present().values().get() == before


def test_what_says_nothing_new_is_no_change(cluster, kind, notifications):
    observe, raw, present = KINDS[kind]
    observe(cluster, [raw(10)], complete=False, at=AT)
    changed_at = present().values_list("pk" if kind == "pods" else "changed_at").get()
    notifications.clear()

    assert not observe(cluster, [raw(12)], complete=False, at=LATER)
    assert notifications == []
    assert present().values_list("pk" if kind == "pods" else "changed_at").get() == changed_at


def test_a_late_answer_does_not_bring_back_what_was_deleted(cluster, kind):
    observe, raw, present = KINDS[kind]
    observe(cluster, [raw(10)], complete=False, at=AT)
    observe(cluster, [], complete=False, deleted=[raw(12)], at=LATER)

    observe(cluster, [raw(11)], complete=False, at=LATEST)

    assert not present().exists()


def test_nor_what_came_and_went_before_it_had_a_row(cluster, kind):
    observe, raw, present = KINDS[kind]
    observe(cluster, [], complete=False, deleted=[raw(12)], at=AT)

    observe(cluster, [raw(11)], complete=False, at=LATER)
    observe(cluster, [raw(11)], complete=True, at=AT - timedelta(seconds=1), version="11")

    assert not present().exists()


def test_nor_what_a_list_ended(cluster, kind):
    observe, raw, present = KINDS[kind]
    observe(cluster, [raw(10)], complete=False, at=AT)
    observe(cluster, [], complete=True, at=LATER, version="15")

    observe(cluster, [raw(14)], complete=False, at=LATEST)

    assert not present().exists()


def test_a_list_read_before_a_deletion_does_not_bring_it_back(cluster, kind):
    observe, raw, present = KINDS[kind]
    observe(cluster, [raw(10)], complete=False, at=AT)
    observe(cluster, [], complete=False, deleted=[raw(12)], at=LATEST)

    observe(cluster, [raw(10)], complete=True, at=LATER, version="11")

    assert not present().exists()


def test_a_list_read_before_an_object_was_made_does_not_end_its_row(cluster, kind):
    observe, raw, present = KINDS[kind]
    observe(cluster, [raw(12)], complete=False, at=LATER)

    observe(cluster, [], complete=True, at=AT, version="11")

    assert present().exists()


def test_a_list_that_knows_the_rows_version_ends_it_whatever_the_clocks_say(cluster, kind):
    observe, raw, present = KINDS[kind]
    observe(cluster, [raw(12)], complete=False, at=LATER)

    observe(cluster, [], complete=True, at=AT, version="13")

    assert not present().exists()


def test_what_a_restored_etcd_has_comes_back(cluster, kind):
    """Its versions begin lower than those of the deletion that was heard before."""
    observe, raw, present = KINDS[kind]
    observe(cluster, [raw(10)], complete=False, at=AT)
    observe(cluster, [], complete=False, deleted=[raw(12)], at=AT)

    observe(cluster, [raw(5)], complete=True, at=LATER, version="6")

    assert present().get().resource_version == "5"
    observe(cluster, [raw(7)], complete=False, at=LATEST)
    assert present().get().resource_version == "7"


def test_an_object_made_again_under_its_name_has_a_row(cluster, kind):
    observe, raw, present = KINDS[kind]
    observe(cluster, [raw(10)], complete=False, at=AT)
    observe(cluster, [], complete=False, deleted=[raw(12)], at=LATER)
    over = {} if kind == "nodetunings" else {"uid": "another"}

    observe(cluster, [raw(13, **over)], complete=False, at=LATEST)

    assert present().get().resource_version == "13"


def test_a_late_answer_of_a_predecessor_does_not_end_the_node_that_has_its_name():
    cluster = ClusterFactory()
    store.observe_nodes(cluster, [a_node(20, uid="second")], complete=False, at=AT)

    store.observe_nodes(cluster, [a_node(11, uid="first")], complete=False, at=LATER)

    assert list(Node.objects.present().values_list("uid", flat=True)) == ["second"]


def test_a_late_deletion_of_a_predecessors_tuning_leaves_the_new_one():
    cluster = ClusterFactory()
    store.observe_nodes(cluster, [a_node(20)], complete=False, at=AT)
    store.observe_tunings(cluster, [a_tuning(21)], complete=False, at=AT)

    store.observe_tunings(cluster, [], complete=False, deleted=[a_tuning(12, uid="first")], at=LATER)

    assert NodeTuning.objects.exists()
