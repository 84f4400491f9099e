"""Nodes: readiness, cordons and their taints, replacement, loss; and the record of which were unavailable when."""

from __future__ import annotations

import pytest

from clusters import objects
from clusters.fleet import FleetUnavailable, NotFound, Throttled
from simfleet import SimClock, SimCluster, SimFleet
from simfleet.apiserver.store import ApiError


def taint_keys(bench, node):
    return [t["key"] for t in bench.fleet.node(node)["spec"].get("taints") or ()]


def test_a_cordon_becomes_a_taint_and_leaves_with_it(bench):
    bench.sim.nodes.cordon("n1")
    bench.sim.tick(1)
    assert taint_keys(bench, "n1") == ["node.kubernetes.io/unschedulable"]
    bench.sim.nodes.cordon("n1", is_cordoned=False)
    bench.sim.tick(1)
    assert taint_keys(bench, "n1") == []


def test_condition_taints_leave_the_taints_of_others_alone(bench):
    bench.sim.add_node("n3", taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}])
    bench.sim.nodes.set_ready("n3", is_ready=False)
    bench.sim.tick(1)
    unreachable = "node.kubernetes.io/unreachable"
    assert taint_keys(bench, "n3") == ["nvidia.com/gpu", unreachable, unreachable]
    bench.sim.nodes.set_ready("n3", is_ready=True)
    bench.sim.tick(1)
    assert taint_keys(bench, "n3") == ["nvidia.com/gpu"]


def test_a_reboot_takes_its_time_and_ends_in_another_boot(bench):
    before = objects.boot_id(bench.fleet.node("n1"))
    bench.sim.nodes.reboot("n1")
    assert not objects.is_ready(bench.fleet.node("n1"))
    seconds = bench.sim.nodes.machine("n1").hardware.boot_seconds
    bench.sim.tick(seconds)
    assert not objects.is_ready(bench.fleet.node("n1"))
    assert objects.boot_id(bench.fleet.node("n1")) == before
    bench.sim.tick(15)
    assert objects.is_ready(bench.fleet.node("n1"))
    assert objects.boot_id(bench.fleet.node("n1")) not in ("", before)


def test_a_machine_that_dies_at_reboot_never_returns(bench):
    bench.sim.nodes.machine("n1").dies_at_reboot = True
    bench.sim.nodes.reboot("n1")
    bench.sim.tick(7200)
    assert not objects.is_ready(bench.fleet.node("n1"))


def test_a_machine_that_loses_power_while_it_boots_stays_off(bench):
    bench.sim.nodes.reboot("n1")
    bench.sim.tick(10)
    bench.sim.nodes.machine("n1").power_off()
    bench.sim.nodes.reboot("n1")
    bench.sim.tick(600)
    assert not objects.is_ready(bench.fleet.node("n1"))
    bench.sim.nodes.machine("n1").power_on()
    bench.sim.tick(20)
    assert objects.is_ready(bench.fleet.node("n1"))


def test_a_replaced_node_shares_only_the_name(bench):
    old = bench.fleet.node("n1")
    bench.sim.drift("n1", "vm.swappiness", "1")
    bench.observe("n1")
    bench.sim.nodes.replace("n1")
    bench.sim.tick(5)
    new = bench.fleet.node("n1")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert objects.boot_id(new) != objects.boot_id(old)
    assert new["metadata"]["labels"] == old["metadata"]["labels"]
    assert bench.sim.kernel("n1").sysctl("vm.swappiness") == "60"
    with pytest.raises(NotFound):  # collected with the Node that owned it
        bench.fleet.tuning("n1")


def test_the_kubelet_counts_huge_pages_only_when_it_starts(bench):
    def allocatable():
        return bench.fleet.node("n1")["status"]["allocatable"]

    before = allocatable()
    bench.sim.kernel("n1").write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512")
    bench.sim.tick(60)
    assert allocatable() == before
    bench.sim.nodes.machine("n1").restart_kubelet()
    bench.sim.tick(10)
    assert allocatable()["hugepages-2Mi"] == "1024Mi"
    assert int(allocatable()["memory"][:-2]) == int(before["memory"][:-2]) - 1024 * 1024
    assert objects.is_ready(bench.fleet.node("n1"))


def test_a_kubelet_that_does_not_come_back_leaves_the_node_not_ready(bench):
    machine = bench.sim.nodes.machine("n1")
    machine.kubelet_breaks = True
    machine.restart_kubelet()
    bench.sim.tick(30)
    assert objects.is_ready(bench.fleet.node("n1"))
    bench.sim.tick(30)
    assert not objects.is_ready(bench.fleet.node("n1"))


def test_the_witness_counts_nodes_that_are_out_at_once(bench):
    bench.sim.nodes.cordon("n1")
    bench.sim.nodes.cordon("n1", is_cordoned=False)
    bench.sim.nodes.cordon("n2")
    assert bench.sim.nodes.peak_unavailable() == 1
    bench.sim.nodes.set_ready("n1", is_ready=False)
    assert bench.sim.nodes.peak_unavailable() == 2
    bench.sim.nodes.delete("n1")
    assert [sorted(w.nodes) for w in bench.sim.nodes.witness] == [["n1"], [], ["n2"], ["n1", "n2"], ["n2"]]


def test_the_audit_log_tells_who_wrote_what_and_what_came_of_it(bench):
    uid = bench.uid("n1")
    bench.fleet.cordon("n1", uid, "i/s")
    bench.sim.nodes.cordon("n2", by="alice")
    with pytest.raises(ApiError):
        bench.sim.api.patch(bench.fleet._caller, "nodes", "n1", {"metadata": {"uid": "x"}})
    entries = [e for e in bench.sim.audit if e.resource == "nodes"]
    assert [(e.verb, e.name, e.code) for e in entries] == [
        ("patch", "n1", 200),
        ("patch", "n2", 200),
        ("patch", "n1", 422),
    ]
    assert entries[0].request["metadata"]["uid"] == uid
    line = entries[1].to_json()
    assert (line["user"]["username"], line["objectRef"]["name"]) == ("alice", "n2")
    assert bench.fleet.calls["patch", "nodes"] == 2  # a person's are not Setpoint's


def test_each_fault_is_the_error_it_stands_for_and_ends_when_told(bench):
    uid = bench.uid("n1")
    bench.sim.faults.add("throttle", verb="patch", resource="nodes", times=1, retry_after=7)
    with pytest.raises(Throttled) as throttled:
        bench.fleet.cordon("n1", uid, "i/s")
    assert throttled.value.retry_after == 7
    assert not objects.is_cordoned(bench.fleet.node("n1"))
    bench.sim.faults.add("error", verb="get", times=1)
    with pytest.raises(FleetUnavailable):
        bench.fleet.node("n1")
    bench.sim.faults.outage = True
    with pytest.raises(FleetUnavailable):
        bench.fleet.list("nodes")
    bench.sim.faults.clear()
    bench.sim.faults.latency = 60
    with pytest.raises(FleetUnavailable):
        bench.fleet.list("nodes")
    bench.sim.faults.clear()
    assert len(bench.fleet.list("nodes").items) == 2


def test_a_lost_answer_leaves_the_write(bench):
    bench.sim.faults.add("lose", verb="patch", times=1)
    with pytest.raises(FleetUnavailable):
        bench.fleet.cordon("n1", bench.uid("n1"), "i/s")
    assert objects.is_cordoned(bench.fleet.node("n1"))
    assert [e.code for e in bench.sim.audit if e.verb == "patch"] == [200]


def test_a_cut_watch_goes_on_from_where_it_was_cut(bench):
    rv = bench.fleet.list("nodes").resource_version
    for node in ("n1", "n2", "n1"):
        bench.sim.nodes.cordon(node, is_cordoned=node == "n1")
        bench.sim.nodes.cordon(node, is_cordoned=node == "n2")
    bench.sim.faults.watch_drop_rate = 1.0
    seen = []
    while events := [e for e in bench.fleet.watch("nodes", rv) if e.type != "BOOKMARK"]:
        assert len(events) == 1
        seen.append(events[0].object["metadata"]["name"])
        rv = events[0].resource_version
    assert seen == ["n1", "n1", "n2", "n1", "n1"]


def story(seed):
    sim = SimCluster(seed=seed, clock=SimClock())
    fleet = SimFleet(sim)
    for number in range(4):
        sim.add_node(f"n{number}", gpus=8)
    sim.pods.workload("Job", "llm", replicas=3, gpus=8)
    sim.faults.add("error", verb="patch", rate=0.5)
    sim.tick(10)
    for number in range(4):
        try:
            fleet.cordon(f"n{number}", fleet.node(f"n{number}")["metadata"]["uid"], "i/s")
        except FleetUnavailable:
            sim.nodes.reboot(f"n{number}")
    sim.tick(600)
    return [s.raw for plural in ("nodes", "pods", "leases") for s in sim.store.all(plural)]


def test_the_same_seed_gives_the_same_history_and_another_seed_another():
    assert story(1) == story(1)
    assert story(1) != story(2)
