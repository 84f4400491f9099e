"""Rows of the agents' objects."""

from __future__ import annotations

import json

import pytest

from clusters.models import Node, NodeTuning
from tests.clusters.factories import ClusterFactory, raw_node, raw_status, raw_tuning
from tests.clusters.inventory.observed import LATER, see, tune

pytestmark = pytest.mark.django_db


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


def test_tunings_that_say_nothing_new_are_not_written(django_assert_num_queries, notifications):
    cluster = ClusterFactory()
    see(cluster, *[raw_node(f"n{i}") for i in range(5)])
    raws = [raw_tuning(f"n{i}", status=raw_status(f"n{i}")) for i in range(5)]
    tune(cluster, *raws, complete=True)
    notifications.clear()

    with django_assert_num_queries(2) as seen:
        tune(cluster, *raws, complete=True, at=LATER)

    assert all(q["sql"].startswith("SELECT") for q in seen.captured_queries)
    assert notifications == []


def test_a_deleted_tuning_has_no_row(notifications):
    cluster = ClusterFactory()
    see(cluster, raw_node("n1"))
    raw = raw_tuning("n1")
    tune(cluster, raw)
    notifications.clear()

    tune(cluster, deleted=[raw])

    assert not NodeTuning.objects.exists()
    assert notifications == [("nodes_changed", [Node.objects.get().pk])]
