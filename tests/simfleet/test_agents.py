"""The real agent on virtual machines: every kind of setting, restarts by grant, and agents that fail or lie."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from clusters import objects
from contract import clock
from contract.disks import KEYS, of_node
from contract.names import PROTOCOL
from contract.nodetuning import Malformed, RestartGrant, Restore, Spec, Status, Wanted
from simfleet import Hardware


def status(bench, node="n1"):
    return Status.from_json(bench.fleet.tuning(node)["status"])


def grant(bench, action, id_="g1", node="n1"):
    expires = clock.stamp(bench.fleet.clock().timestamp() + 3600)
    return RestartGrant(id_, action, objects.boot_id(bench.fleet.node(node)), expires)


def lease_age(bench, node):
    now = bench.sim.clock.now()
    leases = {x["metadata"]["name"]: x["spec"]["renewTime"] for x in bench.fleet.list("leases").items}
    return (now - datetime.fromisoformat(leases[node])).total_seconds() if node in leases else None


@pytest.mark.parametrize(
    ("key", "value", "expect"),
    [
        ("vm.swappiness", "10", "60"),
        ("net.ipv4.tcp_rmem", "4096 87380 268435456", "4096 131072 6291456"),
        ("transparent_hugepage.enabled", "never", "madvise"),
        ("cpu.scaling_governor", "performance", "schedutil"),
        ("block.nvme.read_ahead_kb", "4096", "128"),
        ("module.ib_umad", "loaded", None),
        ("module_parameter.nvme_core.io_timeout", "60", "30"),
    ],
)
def test_every_live_kind_becomes_effective_and_goes_back(bench, key, value, expect):
    assert bench.tune("n1", key, value, expect) == ("Effective", value)
    bench.fleet.tune("n1", Spec(bench.uid("n1"), mode="apply", step="s2", restore=(Restore(key, expect, value),)))
    bench.sim.tick(5)
    state, effective = bench.report("n1", key)
    assert (state, effective) == ("Restored", expect)


def test_huge_pages_wait_for_the_kubelet_and_are_allocatable_after_it(bench):
    settings = (Wanted("hugepages-2Mi", "=", "1024", "0"),)
    bench.observe("n1")
    bench.fleet.tune("n1", Spec(bench.uid("n1"), mode="apply", step="s", settings=settings))
    bench.sim.tick(5)
    assert status(bench).condition("RestartRequired").status == "True"
    restart = grant(bench, "kubelet")
    bench.fleet.tune("n1", Spec(bench.uid("n1"), mode="apply", step="s", settings=settings, restart=restart))
    bench.sim.tick(15)
    assert status(bench).restart.state == "Done"
    assert status(bench).condition("RestartRequired").status == "False"
    assert bench.fleet.node("n1")["status"]["allocatable"]["hugepages-2Mi"] == "2048Mi"


def test_a_kernel_argument_is_effective_after_the_granted_reboot_and_only_one(bench):
    settings = (Wanted("cmdline.iommu", "=", "pt", None),)
    assert bench.tune("n1", "cmdline.iommu", "pt", None)[0] == "PendingRestart"
    first = grant(bench, "reboot")
    bench.fleet.tune("n1", Spec(bench.uid("n1"), mode="apply", step="s1", settings=settings, restart=first))
    bench.sim.tick(2)
    assert not objects.is_ready(bench.fleet.node("n1"))
    bench.sim.tick(400)
    assert bench.report("n1", "cmdline.iommu") == ("Effective", "pt")
    assert status(bench).restart.state == "Done"
    after = objects.boot_id(bench.fleet.node("n1"))
    assert after != first.boot_id
    bench.sim.agents.restart("n1")
    bench.sim.tick(600)
    assert objects.boot_id(bench.fleet.node("n1")) == after  # a spent grant is spent for good


def test_what_was_tuned_survives_a_reboot(bench):
    bench.tune("n1", "vm.swappiness", "10", "60")
    bench.tune("n1", "transparent_hugepage.enabled", "never", "madvise")
    bench.sim.nodes.reboot("n1")
    bench.sim.tick(400)
    assert bench.sim.kernel("n1").read("/sys/kernel/mm/transparent_hugepage/enabled") == "always madvise [never]"
    assert bench.sim.kernel("n1").sysctl("vm.swappiness") == "10"


def test_a_value_that_the_plan_did_not_see_is_moved_and_not_written(bench):
    bench.sim.drift("n1", "vm.swappiness", "33")
    assert bench.tune("n1", "vm.swappiness", "10", "60") == ("Moved", "33")
    assert bench.sim.kernel("n1").sysctl("vm.swappiness") == "33"


def test_drift_is_reported_without_polling_and_repaired_when_enforced(bench):
    bench.tune("n1", "vm.swappiness", "10", "60")
    bench.tune("n2", "vm.swappiness", "10", "60", mode="enforce")
    for node in ("n1", "n2"):
        bench.sim.drop_file(node, "/etc/sysctl.d/99-zzzz.conf", "vm.swappiness = 100\n")
    bench.sim.tick(5)
    assert bench.report("n1", "vm.swappiness") == ("Drifted", "100")
    assert bench.report("n2", "vm.swappiness") == ("Effective", "10")
    for _ in range(4):
        bench.sim.drift("n2", "vm.swappiness", "100")
        bench.sim.tick(5)
    assert bench.report("n2", "vm.swappiness") == ("Contended", "100")


def test_a_fragmented_memory_gives_fewer_huge_pages_and_the_agent_says_so(bench):
    bench.sim.kernel("n1").fragmentation = 0.9999
    state, effective = bench.tune("n1", "hugepages-2Mi", "1024", "0")
    assert state == "NotEffective"
    assert 0 <= int(effective) < 1024


def test_a_kernel_that_lacks_the_key_is_unsupported(bench):
    bench.sim.add_node("old", hardware=Hardware(gpus=8, lacks=frozenset({"net.ipv4.tcp_autocorking"})))
    bench.sim.add_node("talos", hardware=Hardware(gpus=8, boot_loader="none"))
    assert bench.tune("old", "net.ipv4.tcp_autocorking", "0", None)[0] == "Unsupported"
    assert bench.tune("talos", "cmdline.iommu", "pt", None)[0] == "Unsupported"


def test_a_spec_for_another_uid_is_not_obeyed(bench):
    bench.observe("n1")
    bench.fleet.tune("n1", Spec("not-mine", mode="apply", settings=(Wanted("vm.swappiness", "=", "10", "60"),)))
    bench.sim.tick(5)
    assert bench.sim.kernel("n1").sysctl("vm.swappiness") == "60"
    assert status(bench).condition("Degraded").reason == "WrongNode"


def test_a_deleted_object_changes_nothing_on_the_machine(bench):
    bench.tune("n1", "vm.swappiness", "10", "60")
    bench.sim.api.delete(bench.fleet._caller, "nodetunings", "n1")
    bench.sim.tick(60)
    assert bench.sim.kernel("n1").sysctl("vm.swappiness") == "10"


@pytest.mark.parametrize("mode", ["missing", "dead", "hanging"])
def test_an_agent_that_does_nothing_reports_nothing(bench, mode):
    bench.sim.agents.restart("n1", mode)
    bench.observe("n1", "vm.swappiness")
    bench.sim.tick(600)
    assert "status" not in bench.fleet.tuning("n1")
    assert (lease_age(bench, "n1") < 70) == (mode == "hanging")
    assert lease_age(bench, "n2") < 70
    bench.sim.agents.restart("n1", "normal")
    bench.sim.tick(5)
    assert status(bench).observed == {"vm.swappiness": "60"}


def test_a_lying_agent_reports_success_and_writes_nothing(bench):
    bench.sim.agents.restart("n1", "lying")
    assert bench.tune("n1", "vm.swappiness", "10", "60") == ("Effective", "10")
    assert bench.sim.kernel("n1").sysctl("vm.swappiness") == "60"


def test_garbage_of_an_agent_is_malformed_and_oversized_is_beyond_all_bounds(bench):
    for node, mode in (("n1", "garbage"), ("n2", "oversized")):
        bench.sim.agents.restart(node, mode)
        bench.observe(node, "vm.swappiness")
        bench.sim.tick(5)
        with pytest.raises(Malformed):
            status(bench, node)
    assert len(json.dumps(bench.fleet.tuning("n2")["status"])) > 1_000_000


def test_an_old_agent_says_which_protocol_it_speaks(bench):
    bench.sim.agents.restart("n1", "old")
    bench.observe("n1")
    bench.sim.tick(5)
    assert status(bench).protocol != PROTOCOL


def test_a_slow_agent_is_late_and_right(bench):
    bench.sim.agents.restart("n1", "slow")
    bench.observe("n1")
    bench.sim.tick(200)
    wanted = (Wanted("vm.swappiness", "=", "10", "60"),)
    bench.fleet.tune("n1", Spec(bench.uid("n1"), mode="apply", settings=wanted))
    bench.sim.tick(30)
    assert bench.sim.kernel("n1").sysctl("vm.swappiness") == "60"
    bench.sim.tick(60)
    assert bench.report("n1", "vm.swappiness") == ("Effective", "10")


def test_an_agent_whose_status_is_refused_tries_again(bench):
    bench.sim.faults.hit_agents = True
    bench.sim.faults.add("error", verb="patch", subresource="status", times=3)
    bench.observe("n1", "vm.swappiness")
    bench.sim.tick(10)
    assert "status" not in bench.fleet.tuning("n1")
    bench.sim.tick(30)
    assert status(bench).observed == {"vm.swappiness": "60"}


def test_an_agent_that_has_nothing_new_to_say_says_nothing(bench):
    bench.tune("n1", "vm.swappiness", "10", "60")
    writes = len(bench.sim.audit.entries)
    bench.sim.drift("n1", "vm.swappiness", "99")
    bench.sim.drift("n1", "vm.swappiness", "10")
    bench.sim.agents["n1"].wake(0)
    bench.sim.tick(10)
    assert len(bench.sim.audit.entries) == writes


def test_a_quiet_fleet_writes_nothing_but_leases(bench):
    bench.tune("n1", "vm.swappiness", "10", "60")
    before, writes = bench.sim.store.rv, len(bench.sim.audit.entries)
    bench.sim.tick(300)
    assert len(bench.sim.audit.entries) == writes
    assert bench.sim.store.rv - before == len(list(bench.sim.store.since("leases", before))) == 10


def test_local_disks_have_serial_numbers_of_their_own_that_outlive_a_boot(bench):
    def disks():
        bench.observe("n1", *KEYS)
        bench.sim.tick(60)
        return {disk.name: disk for disk in of_node(status(bench).observed)}

    first = disks()
    assert first["nvme0n1"].state == "has 1 partition", "it is where the node's own system is"
    assert {disk.state for name, disk in first.items() if name != "nvme0n1"} == {"empty"}
    assert len({disk.serial for disk in first.values()}) == len(first)

    machine = bench.sim.nodes.machine("n1")
    machine.drives["nvme1n1"] = {0: b"XFSB"}
    machine.reboot()
    bench.sim.tick(400)

    again = disks()
    assert {name: disk.serial for name, disk in again.items()} == {name: disk.serial for name, disk in first.items()}
    assert again["nvme1n1"].state == "has a signature: XFS"
