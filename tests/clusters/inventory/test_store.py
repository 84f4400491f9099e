from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusters.inventory import reachability, rows, store
from clusters.models import Cluster, GpuPod, Node, NodeTuning
from tests.clusters.factories import ClusterFactory, raw_lease, raw_node, raw_pod, raw_status, raw_tuning

pytestmark = pytest.mark.django_db

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = AT + timedelta(minutes=1)


def see(cluster, *raws, complete=False, at=AT, deleted=()):
    return store.observe_nodes(cluster, list(raws), complete=complete, at=at, deleted=deleted)


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
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


def test_a_node_replaced_under_its_name_is_another_row(told):
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", uid="a"))
    old = Node.objects.get()

    see(cluster, raw_node("n1", uid="b"), at=LATER)

    old.refresh_from_db()
    new = Node.objects.present().get()
    assert old.gone_at == LATER
    assert (new.name, new.uid) == ("n1", "b")
    assert told[1:] == [("nodes_changed", [new.pk]), ("nodes_gone", [old.pk])]


def test_a_deleted_node_is_gone_and_comes_back_as_itself(told):
    cluster = ClusterFactory()
    raw = raw_node("n1")
    see(cluster, raw)

    see(cluster, deleted=[raw], at=LATER)
    assert Node.objects.get().gone_at == LATER
    see(cluster, raw_node("n1"))

    assert Node.objects.get().gone_at is None
    assert [name for name, _ in told] == ["nodes_changed", "nodes_gone", "nodes_changed"]


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


def test_of_a_quiet_fleet_only_versions_are_written(django_assert_num_queries, told):
    cluster = ClusterFactory()
    raws = [raw_node(f"n{i}") for i in range(30)]
    see(cluster, *raws, complete=True)
    told.clear()
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
    assert told == []


def test_only_what_changed_is_written_and_told(told):
    cluster = ClusterFactory()
    see(cluster, *[raw_node(f"n{i}") for i in range(5)], complete=True)
    told.clear()

    see(cluster, *[raw_node(f"n{i}", ready=i != 3) for i in range(5)], complete=True, at=LATER)

    changed = Node.objects.get(name="n3")
    assert list(Node.objects.filter(changed_at=LATER)) == [changed]
    assert told == [("nodes_changed", [changed.pk])]


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

    # SQLite takes 999 parameters a statement, so it is the worst case: some 40 rows of 26 columns each.
    with django_assert_max_num_queries(220):
        see(cluster, *raws, complete=True)
    assert Node.objects.count() == 5000
    with django_assert_max_num_queries(1):
        see(cluster, *raws, complete=True)


def test_subscribers_are_told_in_chunks(told):
    cluster = ClusterFactory()

    see(cluster, *[raw_node(f"n{i}") for i in range(450)], complete=True)

    assert [len(pks) for _, pks in told] == [200, 200, 50]


words = st.text(st.characters(exclude_categories=()), max_size=8)  # with NUL and lone surrogates
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
rubbish = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {
            "metadata": json_values
            | st.fixed_dictionaries(
                {"uid": st.just("u1"), "name": st.just("n1"), "labels": json_values, "annotations": json_values},
                optional={"resourceVersion": json_values, "generation": json_values, "ownerReferences": json_values},
            )
        },
        optional={
            "spec": json_values
            | st.fixed_dictionaries(
                {"nodeUID": st.just("u1")},
                optional={
                    "taints": json_values,
                    "containers": st.lists(st.fixed_dictionaries({"resources": json_values}), max_size=2),
                    "unschedulable": json_values,
                    "renewTime": json_values,
                },
            ),
            "status": json_values
            | st.fixed_dictionaries(
                {},
                optional={
                    "conditions": json_values,
                    "nodeInfo": json_values,
                    "allocatable": json_values,
                    "capacity": json_values,
                    "observed": json_values | json_values.map(json.dumps),
                    "settings": json_values,
                    "restart": json_values,
                    "protocol": json_values,
                },
            ),
        },
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raws=st.lists(rubbish, max_size=4))
def test_rubbish_never_raises_and_what_is_stored_can_be_read(raws):
    cluster = Cluster.objects.first() or ClusterFactory()

    for complete in (False, True):
        see(cluster, *raws, complete=complete)
        store.observe_tunings(cluster, raws, complete=complete, at=AT, deleted=raws)
        store.observe_pods(cluster, raws, complete=complete, at=AT, deleted=raws)
        store.observe_leases(cluster, raws, at=AT)

    list(Node.objects.all())


# ── the agents' objects ───────────────────────────────────────────────────────────────────────────────────────────────
def tune(cluster, *raws, complete=False, at=AT, deleted=()):
    return store.observe_tunings(cluster, list(raws), complete=complete, at=at, deleted=deleted)


def test_an_agents_answer_is_kept_with_observed_values_apart():
    cluster = ClusterFactory()
    see(cluster, raw_node("n1"))

    tune(cluster, raw_tuning("n1", status=raw_status("n1"), spec={"step": "s1", "mode": "apply"}, generation=4))

    tuning = NodeTuning.objects.get()
    assert (tuning.generation, tuning.observed_generation, tuning.spec_step, tuning.mode) == (4, 1, "s1", "apply")
    assert (tuning.protocol, tuning.observed) == (1, {"vm.swappiness": "60"})
    assert "observed" not in tuning.status


def test_an_agent_that_never_answered_has_protocol_0():
    cluster = ClusterFactory()
    see(cluster, raw_node("n1"))

    tune(cluster, raw_tuning("n1"))

    assert (NodeTuning.objects.get().protocol, NodeTuning.objects.get().status) == (0, {})


def test_a_predecessors_object_is_not_the_new_nodes():
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", uid="new"))

    tune(cluster, raw_tuning("n1", uid="old", status=raw_status("n1", nodeUID="old")), complete=True)

    assert not NodeTuning.objects.exists()


@pytest.mark.parametrize(
    ("lie", "named"),
    [
        ({"settings": "all fine"}, "settings"),
        ({"observed": {"vm.swappiness": "60"}}, "observed"),
        ({"observed": json.dumps({"vm.swappiness": "x" * 513})}, "observed"),
        ({"observed": json.dumps({"k" * 129: "1"})}, "observed"),
        ({"observed": json.dumps({f"k{n}": "1" for n in range(513)})}, "observed"),
        ({"observed": json.dumps({"vm.swappiness": 60})}, "observed"),
        ({"observed": '["vm.swappiness"]'}, "observed"),
        ({"observed": "vm.swappiness = 60"}, "observed"),
        ({"observed": "[" * 300_000}, "observed"),
        ({"observed": "1" * 5_000}, "observed"),
        ({"observed": '"' + "x" * 400_000 + '"'}, "observed"),
        ({"observed": json.dumps({"vm.swappiness": "6\x000"})}, "characters"),
        ({"observed": '{"vm.swappiness": "6\\ud800"}'}, "characters"),
        ({"nodeUID": "uid-of-n2"}, "nodeUID"),
        ({"protocol": -1}, "protocol"),
        ({"observedGeneration": 2**60}, "observedGeneration"),
    ],
)
def test_a_lying_agent_is_recorded_as_such_and_its_last_good_answer_stays(lie, named):
    cluster = ClusterFactory()
    see(cluster, raw_node("n1"))
    tune(cluster, raw_tuning("n1", status=raw_status("n1")))

    tune(cluster, raw_tuning("n1", status=raw_status("n1", observed='{"vm.swappiness": "10"}') | lie, generation=2))

    tuning = NodeTuning.objects.get()
    assert named in tuning.malformed
    assert (tuning.observed, tuning.generation) == ({"vm.swappiness": "60"}, 2)


def test_a_mended_answer_clears_the_complaint():
    cluster = ClusterFactory()
    see(cluster, raw_node("n1"))
    tune(cluster, raw_tuning("n1", status=raw_status("n1", settings=7)))

    tune(cluster, raw_tuning("n1", status=raw_status("n1")))

    assert NodeTuning.objects.get().malformed == ""


def test_tunings_that_say_nothing_new_are_not_written(django_assert_num_queries, told):
    cluster = ClusterFactory()
    see(cluster, *[raw_node(f"n{i}") for i in range(5)])
    raws = [raw_tuning(f"n{i}", status=raw_status(f"n{i}")) for i in range(5)]
    tune(cluster, *raws, complete=True)
    told.clear()

    with django_assert_num_queries(2) as seen:
        tune(cluster, *raws, complete=True, at=LATER)

    assert all(q["sql"].startswith("SELECT") for q in seen.captured_queries)
    assert told == []


def test_a_deleted_tuning_has_no_row(told):
    cluster = ClusterFactory()
    see(cluster, raw_node("n1"))
    raw = raw_tuning("n1")
    tune(cluster, raw)
    told.clear()

    tune(cluster, deleted=[raw])

    assert not NodeTuning.objects.exists()
    assert told == [("nodes_changed", [Node.objects.get().pk])]


# ── who is heard ──────────────────────────────────────────────────────────────────────────────────────────────────────
MUCH_LATER = AT + timedelta(minutes=10)


@pytest.fixture
def three():
    """n0, n1 and n2, whose agents have answered."""
    cluster = ClusterFactory()
    see(cluster, *[raw_node(f"n{i}") for i in range(3)])
    tune(cluster, *[raw_tuning(f"n{i}", status=raw_status(f"n{i}")) for i in range(3)])
    NodeTuning.objects.update(changed_at=AT)
    return cluster


def silent_since():
    return {t.node.name: t.silent_since for t in NodeTuning.objects.select_related("node") if t.silent_since}


def leases(at, *names):
    return [raw_lease(name, f"{at:%Y-%m-%dT%H:%M:%S}Z") for name in names]


def test_a_fleet_that_goes_on_as_before_writes_nothing_but_that_it_was_heard(three):
    store.observe_leases(three, leases(AT, "n0", "n1", "n2"), at=AT)

    with CaptureQueriesContext(connection) as seen:
        written = store.observe_leases(three, leases(MUCH_LATER, "n0", "n1", "n2"), at=MUCH_LATER)

    assert written == 0
    updates = [query["sql"] for query in seen.captured_queries if query["sql"].startswith("UPDATE")]
    assert len(updates) == 1
    assert "leases_at" in updates[0]
    three.refresh_from_db()
    assert three.leases_at == MUCH_LATER


def test_who_renews_no_more_is_silent_since_then_until_heard_again(three):
    store.observe_leases(three, leases(AT, "n0", "n1", "n2"), at=AT)

    assert store.observe_leases(three, leases(AT, "n0") + leases(MUCH_LATER, "n1", "n2"), at=MUCH_LATER) == 1
    assert silent_since() == {"n0": AT}
    assert store.observe_leases(three, leases(AT, "n0") + leases(MUCH_LATER, "n1", "n2"), at=MUCH_LATER) == 0
    assert store.observe_leases(three, leases(MUCH_LATER, "n0", "n1", "n2"), at=MUCH_LATER) == 1
    assert silent_since() == {}


def test_who_answered_and_renews_no_lease_was_heard_last_when_it_answered(three):
    store.observe_leases(three, leases(AT, "n1", "n2"), at=AT)
    assert silent_since() == {}, "its Lease may come yet"

    store.observe_leases(three, leases(MUCH_LATER, "n1", "n2"), at=MUCH_LATER)
    assert silent_since() == {"n0": AT}


def test_who_never_answered_is_not_called_silent(three):
    NodeTuning.objects.filter(node__name="n0").update(protocol=0)

    store.observe_leases(three, leases(MUCH_LATER, "n1", "n2"), at=MUCH_LATER)
    assert silent_since() == {}


def test_a_clock_that_is_ahead_a_little_is_believed_and_one_ahead_for_years_is_not(three):
    ahead = [raw_lease("n1", "2031-01-01T00:00:00Z"), raw_lease("n2", "soon")]
    for at in (MUCH_LATER, MUCH_LATER + timedelta(minutes=1)):
        store.observe_leases(three, leases(at + timedelta(minutes=2), "n0") + ahead, at=at)

    assert silent_since() == {"n1": MUCH_LATER, "n2": AT}


def test_nobody_is_heard_while_nobody_listens(three, clock):
    store.observe_leases(three, leases(clock.at, "n0", "n1", "n2"), at=clock.at)
    tuning = NodeTuning.objects.first()
    assert tuning.silence(three) is None
    assert Node.objects.present().heard().count() == 3

    listened = clock.at
    clock.forward(minutes=4)
    assert tuning.silence(three) == listened
    assert not Node.objects.present().heard().exists()


# ── pods ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def hold(cluster, *raws, complete=False, deleted=()):
    return store.observe_pods(cluster, list(raws), complete=complete, at=AT, deleted=deleted)


def allocated(name="n1"):
    return Node.objects.get(name=name).gpu_allocated


def test_gpus_are_counted_per_node_as_pods_come_and_go(told):
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", gpus=8), raw_node("n2", gpus=8))
    told.clear()

    hold(cluster, raw_pod("a", gpus=2), raw_pod("b", gpus=4), raw_pod("web", gpus=0))
    assert (allocated(), GpuPod.objects.count()) == (6, 2)
    hold(cluster, raw_pod("a", gpus=2, phase="Succeeded"))
    assert (allocated(), GpuPod.objects.count()) == (4, 1)
    hold(cluster, deleted=[raw_pod("b", gpus=4)])

    assert (allocated(), allocated("n2"), GpuPod.objects.count()) == (0, 0, 0)
    assert told == [("nodes_changed", [Node.objects.get(name="n1").pk])] * 3


def test_a_pod_of_mig_instances_says_of_which_and_its_node_what_it_offers():
    cluster = ClusterFactory()
    node = raw_node("n1", gpus=4)
    for resources in (node["status"]["capacity"], node["status"]["allocatable"]):
        resources |= {"nvidia.com/mig-1g.10gb": "14", "nvidia.com/mig-3g.40gb": "0", "nvidia.com/mig-": "junk"}
    see(cluster, node)
    pod = raw_pod("a", gpus=1)
    pod["spec"]["containers"].append({"name": "b", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "2"}}})
    hold(cluster, pod)

    row = Node.objects.present().split().get()
    assert (row.gpu_count, row.gpu_allocated, row.instances) == (18, 3, {"1g.10gb": 14})
    assert row.gpu_words.endswith(", 14 × 1g.10gb")
    assert (GpuPod.objects.get().gpus, GpuPod.objects.get().mig) == (3, {"1g.10gb": 2})
    see(cluster, raw_node("n1", gpus=4))
    assert not Node.objects.present().split().exists()


def test_a_complete_list_of_pods_ends_what_it_lacks():
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", gpus=8))
    hold(cluster, raw_pod("a"), complete=True)

    hold(cluster, complete=True)

    assert (allocated(), GpuPod.objects.count()) == (0, 0)


def test_pods_seen_before_their_node_count_once_it_is_there():
    cluster = ClusterFactory()
    hold(cluster, raw_pod("a", gpus=8))

    see(cluster, raw_node("n1", gpus=8))

    assert allocated() == 8


def test_quiet_pods_write_nothing(django_assert_num_queries):
    cluster = ClusterFactory()
    raws = [raw_pod(f"p{i}") for i in range(5)]
    hold(cluster, *raws, complete=True)

    with django_assert_num_queries(1):
        hold(cluster, *raws, complete=True)


# ── the cluster ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_an_unreachable_cluster_says_since_when_and_why_and_keeps_since():
    cluster = ClusterFactory(reach="reachable")

    assert reachability.lost(cluster, "connection refused", since=AT)
    assert not reachability.lost(cluster, "timed out", since=LATER)

    cluster.refresh_from_db()
    assert (cluster.reach, cluster.reach_since, cluster.reach_reason) == ("unreachable", AT, "timed out")


def test_a_cluster_that_answers_again_is_news_once():
    cluster = ClusterFactory(reach="unreachable", reach_reason="timed out")

    assert reachability.reached(cluster, at=LATER)
    assert not reachability.reached(cluster, at=LATER + timedelta(seconds=1))

    cluster.refresh_from_db()
    assert (cluster.reach, cluster.reach_since, cluster.reach_reason) == ("reachable", LATER, "")


def test_observed_at_is_written_every_few_seconds_and_never_backwards():
    cluster = ClusterFactory()

    for seconds in (0, 1, 10, 3):
        reachability.seen_at(cluster, AT + timedelta(seconds=seconds))

    cluster.refresh_from_db()
    assert cluster.observed_at == AT + timedelta(seconds=10)


def test_resource_versions_compare_as_numbers_where_they_are():
    assert rows.is_older("99", "900")
    assert not rows.is_older("900", "99")
    assert not rows.is_older("abc", "900")
