"""The simulated API server keeps the real one's rules about versions, generations, preconditions and watches."""

from __future__ import annotations

import pytest

from clusters.fleet import Gone
from contract.nodetuning import Spec, Status
from simfleet.apiserver.callers import CONTROLLERS, SETPOINT, agent, person
from simfleet.apiserver.store import ApiError, merge


def test_null_in_a_merge_patch_removes_and_objects_merge():
    assert merge({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None}, "d": [2], "e": {"f": None}}) == {
        "a": {"c": 2},
        "d": [2],
        "e": {},
    }


def test_a_patch_that_changes_nothing_writes_nothing(bench):
    before = bench.sim.store.get("nodes", "n1")
    after = bench.sim.api.patch(SETPOINT, "nodes", "n1", {"metadata": {"labels": {"kubernetes.io/os": "linux"}}})
    assert after.rv == before.rv


def test_a_change_of_spec_is_a_generation_and_a_change_of_status_is_not(bench):
    bench.observe("n1", "vm.swappiness")
    assert bench.fleet.tuning("n1")["metadata"]["generation"] == 1
    status = {"status": Status(observed_generation=1).to_json()}
    bench.sim.api.patch(agent("n1"), "nodetunings", "n1", status, subresource="status")
    assert bench.fleet.tuning("n1")["metadata"]["generation"] == 1
    bench.sim.api.patch(SETPOINT, "nodetunings", "n1", {"metadata": {"labels": {"a": "b"}}})
    assert bench.fleet.tuning("n1")["metadata"]["generation"] == 1
    bench.fleet.tune("n1", Spec(bench.uid("n1"), mode="apply"))
    assert bench.fleet.tuning("n1")["metadata"]["generation"] == 2


def test_the_status_subresource_leaves_the_spec_and_the_object_leaves_the_status(bench):
    bench.observe("n1")
    both = {"spec": {"mode": "enforce"}, "status": {"step": "x"}}
    through_status = bench.sim.api.patch(agent("n1"), "nodetunings", "n1", both, subresource="status").raw
    assert (through_status["spec"]["mode"], through_status["status"]["step"]) == ("observe", "x")
    through_object = bench.sim.api.patch(SETPOINT, "nodetunings", "n1", both | {"status": {"step": "y"}}).raw
    assert (through_object["spec"]["mode"], through_object["status"]["step"]) == ("enforce", "x")


@pytest.mark.parametrize(("wrong", "code"), [({"uid": "another"}, 422), ({"resourceVersion": "1"}, 409)])
def test_a_precondition_that_does_not_hold_changes_nothing(bench, wrong, code):
    before = bench.sim.node("n1")
    with pytest.raises(ApiError) as refused:
        bench.sim.api.patch(SETPOINT, "nodes", "n1", {"metadata": wrong, "spec": {"unschedulable": True}})
    assert refused.value.code == code
    assert bench.sim.node("n1") == before


def test_a_watch_tells_every_change_after_its_version_in_order(bench):
    page = bench.fleet.list("nodes")
    bench.sim.nodes.cordon("n1")
    bench.sim.add_node("n3")
    bench.sim.nodes.delete("n2")
    events = list(bench.fleet.watch("nodes", page.resource_version))
    assert [(e.type, e.object["metadata"].get("name")) for e in events] == [
        ("MODIFIED", "n1"),
        ("ADDED", "n3"),
        ("DELETED", "n2"),
        ("BOOKMARK", None),
    ]
    versions = [int(e.resource_version) for e in events]
    assert versions == sorted(versions)
    assert events[0].object["kind"] == "Node"
    assert [e.type for e in bench.fleet.watch("nodes", events[-1].resource_version)] == ["BOOKMARK"]


def test_a_watch_from_before_the_compaction_is_gone(bench):
    page = bench.fleet.list("nodes")
    bench.sim.nodes.cordon("n1")
    bench.sim.store.compact("nodes")
    with pytest.raises(Gone):
        list(bench.fleet.watch("nodes", page.resource_version))
    assert [e.type for e in bench.fleet.watch("nodes", bench.fleet.list("nodes").resource_version)] == ["BOOKMARK"]


def test_the_log_forgets_its_older_half_and_nothing_newer(make_bench):
    bench = make_bench()
    store = bench.sim.store
    store._keep = 5
    for number in range(30):
        store.create("configmaps", {"metadata": {"name": f"c{number}", "namespace": "default"}})
    kept = [c.rv for c in store.since("configmaps", store.rv - 5)]
    assert kept == list(range(store.rv - 4, store.rv + 1))
    with pytest.raises(ApiError) as gone:
        store.since("configmaps", store.rv - 20)
    assert gone.value.code == 410


def test_later_pages_show_the_moment_of_the_first(bench):
    for number in range(10, 20):
        bench.sim.add_node(f"n{number}")
    first = bench.sim.api.list(CONTROLLERS, "nodes", limit=5)
    bench.sim.nodes.delete("n19")
    bench.sim.nodes.cordon("n18")
    second = bench.sim.api.list(CONTROLLERS, "nodes", limit=5, token=first.next)
    third = bench.sim.api.list(CONTROLLERS, "nodes", limit=5, token=second.next)
    names = [s.key[1] for page in (first, second, third) for s in page.items]
    assert names == sorted(["n1", "n2", *(f"n{n}" for n in range(10, 20))])
    assert {p.rv for p in (first, second, third)} == {first.rv}
    bench.sim.api.forget_snapshots()
    with pytest.raises(ApiError) as expired:
        bench.sim.api.list(CONTROLLERS, "nodes", limit=5, token=first.next)
    assert expired.value.code == 410


def test_selectors_choose_by_field_and_by_label(bench):
    bench.sim.add_pod("a", node="n1", labels={"app": "x"})
    bench.sim.add_pod("b", node="n2", labels={"app": "y"})

    def listed(**query):
        return [s.key[1] for s in bench.sim.api.list(CONTROLLERS, "pods", "default", **query).items]

    assert listed(fields="spec.nodeName=n1") == ["a"]
    assert listed(fields="spec.nodeName!=n1") == ["b"]
    assert listed(fields="metadata.name=b") == ["b"]
    assert listed(labels="app in (x, z)") == ["a"]
    assert listed(labels="app!=x") == ["b"]
    assert listed(labels="app,!other") == ["a", "b"]


def test_an_object_that_leaves_a_watched_selection_is_deleted_from_it(bench):
    rv = bench.sim.store.rv
    bench.sim.api.patch(person("p"), "nodes", "n1", {"metadata": {"labels": {"pool": "a"}}})
    bench.sim.api.patch(person("p"), "nodes", "n1", {"metadata": {"labels": {"pool": "b"}}})
    seen = bench.sim.api.watch(SETPOINT, "nodes", rv, timeout=0, labels="pool=a")
    assert [c if isinstance(c, int) else c.type for c in seen][:2] == ["ADDED", "DELETED"]


def test_only_its_own_agent_writes_a_status_and_only_setpoint_writes_a_spec(bench):
    bench.observe("n1")
    with pytest.raises(ApiError, match="own node"):
        bench.sim.api.patch(agent("n2"), "nodetunings", "n1", {"status": {"step": "x"}}, subresource="status")
    with pytest.raises(ApiError, match="only Setpoint"):
        bench.sim.api.patch(person("mallory"), "nodetunings", "n1", {"spec": {"mode": "enforce"}})
    with pytest.raises(ApiError, match="only Setpoint"):
        bench.sim.api.create(person("mallory"), "nodetunings", {"metadata": {"name": "n2"}, "spec": {}})
