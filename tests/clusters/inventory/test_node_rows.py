"""Rows of nodes: what is read, kept, ended and told."""

from __future__ import annotations

import pytest

from clusters.inventory import store
from clusters.models import Node
from tests.clusters.factories import ClusterFactory, raw_node
from tests.clusters.inventory.observed import LATER, see

pytestmark = pytest.mark.django_db


def test_a_node_is_read_whole():
    cluster = ClusterFactory()
    raw = raw_node(
        "gpu-1",
        gpus=8,
        ready=False,
        unschedulable=True,
        labels={"nvidia.com/gpu.product": "H100", "node-role.kubernetes.io/control-plane": ""},
        annotations={"setpoint.dev/cordoned-by": "inst/step", "setpoint.dev/keep-cordoned": "", "team": "ml"},
        taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule", "timeAdded": "2026-11-21T00:00:00Z"}],
    )

    see(cluster, raw, complete=True)

    node = Node.objects.get()
    assert (node.name, node.uid, node.architecture, node.kernel) == (
        "gpu-1",
        "uid-of-gpu-1",
        "amd64",
        "6.8.0-85-generic",
    )
    assert (node.is_ready, node.ready_reason) == (False, "KubeletNotReady: PLEG is not healthy")
    assert (node.is_cordoned, node.cordoned_by, node.keep_cordoned) == (True, "inst/step", True)
    assert (node.gpu_product, node.gpu_count, node.is_control_plane) == ("H100", 8, True)
    assert node.annotations["team"] == "ml"
    assert node.taints == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert "lastHeartbeatTime" not in node.conditions[0]


def test_a_node_replaced_under_its_name_is_another_row(notifications):
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", uid="a"))
    old = Node.objects.get()

    see(cluster, raw_node("n1", uid="b"), at=LATER)

    old.refresh_from_db()
    new = Node.objects.present().get()
    assert old.gone_at == LATER
    assert (new.name, new.uid) == ("n1", "b")
    assert notifications[1:] == [("nodes_changed", [new.pk]), ("nodes_gone", [old.pk])]


def test_a_deleted_node_is_gone_and_comes_back_as_itself(notifications):
    cluster = ClusterFactory()
    raw = raw_node("n1")
    see(cluster, raw)

    see(cluster, deleted=[raw], at=LATER)
    assert Node.objects.get().gone_at == LATER
    see(cluster, raw_node("n1"))

    assert Node.objects.get().gone_at is None
    assert [name for name, _ in notifications] == ["nodes_changed", "nodes_gone", "nodes_changed"]


def test_a_complete_list_ends_what_it_lacks_and_a_partial_one_does_not():
    cluster = ClusterFactory()
    first, second = raw_node("n1"), raw_node("n2")
    see(cluster, first, second, complete=True)

    see(cluster, first)
    assert Node.objects.present().count() == 2
    see(cluster, first, complete=True)
    assert [n.name for n in Node.objects.present()] == ["n1"]


def test_another_clusters_nodes_are_left_alone():
    here, there = ClusterFactory(), ClusterFactory()
    see(there, raw_node("n1"), complete=True)

    see(here, raw_node("n1"), complete=True)
    see(here, complete=True)

    assert Node.objects.present().get().cluster == there


def test_of_a_quiet_fleet_only_versions_are_written(django_assert_num_queries, notifications):
    cluster = ClusterFactory()
    raws = [raw_node(f"n{i}") for i in range(30)]
    see(cluster, *raws, complete=True)
    notifications.clear()
    before = list(Node.objects.order_by("pk").values())

    with django_assert_num_queries(1) as seen:  # the list itself: all versions are known
        see(cluster, *raws, complete=True, at=LATER)
    assert seen.captured_queries[0]["sql"].startswith("SELECT")
    heartbeats = [raw_node(f"n{i}") for i in range(30)]  # new versions, nothing else new
    with django_assert_num_queries(8) as seen:
        see(cluster, *heartbeats, complete=True, at=LATER)
    written = [q["sql"] for q in seen.captured_queries if q["sql"].startswith(("UPDATE", 'INSERT INTO "clusters_node'))]
    assert len(written) == 1  # their versions, in one statement

    heard = {"resource_version", "versioned_at"}
    after = list(Node.objects.order_by("pk").values())
    assert [{k: v for k, v in row.items() if k not in heard} for row in after] == [
        {k: v for k, v in row.items() if k not in heard} for row in before
    ]
    versions = {raw["metadata"]["uid"]: raw["metadata"]["resourceVersion"] for raw in heartbeats}
    assert {row["uid"]: row["resource_version"] for row in after} == versions
    assert notifications == []


def test_only_what_changed_is_written_and_told(notifications):
    cluster = ClusterFactory()
    see(cluster, *[raw_node(f"n{i}") for i in range(5)], complete=True)
    notifications.clear()

    see(cluster, *[raw_node(f"n{i}", ready=i != 3) for i in range(5)], complete=True, at=LATER)

    changed = Node.objects.get(name="n3")
    assert list(Node.objects.filter(changed_at=LATER)) == [changed]
    assert notifications == [("nodes_changed", [changed.pk])]


def test_an_older_event_does_not_set_a_row_back_but_a_complete_list_may():
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", resource_version="900", unschedulable=True))
    older = raw_node("n1", resource_version="99")

    see(cluster, older)
    assert Node.objects.get().is_cordoned
    assert store.doubts(cluster, "nodes", [older])
    see(cluster, older, complete=True)
    assert not Node.objects.get().is_cordoned


def test_a_list_that_would_end_a_row_is_doubted():
    cluster = ClusterFactory()
    raw = raw_node("n1")
    see(cluster, raw)

    assert store.doubts(cluster, "nodes", [])
    assert not store.doubts(cluster, "nodes", [raw, raw_node("n2")])


def test_five_thousand_nodes_cost_a_bounded_number_of_queries(django_assert_max_num_queries):
    cluster = ClusterFactory()
    padding = {"example.com/padding": "x" * 3000}
    raws = [
        raw_node(f"n{i}", gpus=8, annotations=padding, labels={f"l{j}": "v" for j in range(30)}) for i in range(5000)
    ]

    # SQLite takes 999 parameters a statement, so it is the worst case: each column more is some inserts more.
    columns = sum(not field.primary_key for field in Node._meta.concrete_fields)
    inserts = -(-5000 // (999 // columns))
    with django_assert_max_num_queries(inserts + 80):
        see(cluster, *raws, complete=True)
    assert Node.objects.count() == 5000
    with django_assert_max_num_queries(1):
        see(cluster, *raws, complete=True)


def test_subscribers_are_told_in_chunks(notifications):
    cluster = ClusterFactory()

    see(cluster, *[raw_node(f"n{i}") for i in range(450)], complete=True)

    assert [len(pks) for _, pks in notifications] == [200, 200, 50]
