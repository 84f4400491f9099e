"""Isolated CPUs, from plan to revert: one reboot each way, and what a node's CPUs do not allow blocks the plan."""

from __future__ import annotations

import pytest

from clusters.models import Node
from contract.isolation import KEY, SIBLINGS
from contract.resource_managers import CPU_POLICY, CPUS, ONLINE
from jobs.diffs.changes import Change, ChangeKind, Changes, Disruption
from jobs.forecast.isolation_findings import isolation_findings
from jobs.rollouts import rollout_actions
from profiles.catalog import known_settings

NOHZ = "/sys/devices/system/cpu/nohz_full"


@pytest.fixture(autouse=True)
def _observed(make_world, monkeypatch):
    keys = ("vm.swappiness", "cmdline.nohz_full", KEY, SIBLINGS, ONLINE, CPUS, CPU_POLICY)
    monkeypatch.setattr(known_settings, "observable_keys", lambda: keys)


def codes(plan):
    return {finding["code"]: finding for finding in plan.findings}


def test_isolated_cpus_come_with_one_reboot_and_go_with_another(make_world):
    world = make_world(nodes=1)
    kernel = world.sim.nodes.machine("n1").kernel
    before, boot = kernel.read("/proc/cmdline"), kernel.boot_id
    plan = world.plan(world.revision({KEY: "domain,services,2-31,34-63"}), canary=0)
    assert plan.worst_class == Disruption.REBOOT
    assert not {"isolation-impossible", "cores-split"} & codes(plan).keys()

    rollout = world.run(world.started(plan), seconds=6000, step=40)

    assert rollout.status == "succeeded", rollout.steps.get().error or rollout.waiting_for
    assert kernel.read(NOHZ) == "2-31,34-63"
    assert "isolcpus=managed_irq,domain,2-31,34-63 " in kernel.read("/proc/cmdline")
    assert kernel.boot_id != boot
    assert Node.objects.get().tuning.observed[KEY] == "domain,services,2-31,34-63"

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=6000, step=40)

    assert rollout.status == "reverted", rollout.steps.get().error or rollout.waiting_for
    assert (kernel.read("/proc/cmdline"), kernel.read(NOHZ)) == (before, "(null)")


def test_each_node_is_judged_by_its_own_cpus(make_world):
    world = make_world(nodes=4)
    reports = {
        "n1": {ONLINE: "0-15"},
        "n2": {ONLINE: "0-127", SIBLINGS: "0-7+8;3+96"},
        "n3": {CPUS: "0-4"},
        "n4": {},
    }
    for row in Node.objects.select_related("tuning"):
        row.tuning.observed |= reports[row.name]
        row.tuning.save()

    findings = [f for f in world.plan(world.revision({KEY: "2-31"}), canary=0).findings if "isolation" in f["code"]]
    assert {(finding["severity"], *finding["nodes"]) for finding in findings} == {("block", "n1"), ("block", "n3")}
    assert "names 16-31" in str(findings)
    assert "reservedSystemCPUs (0-4)" in str(findings)

    split = codes(world.plan(world.revision({KEY: "5-7,13-15,99"}), canary=0))["cores-split"]
    assert (split["severity"], split["nodes"], "CPUs 3,99 " in split["detail"]) == ("warn", ["n2"], True)

    for row in Node.objects.select_related("tuning"):  # older agents, or kernels built without it
        row.tuning.observed.pop(KEY)
        row.tuning.save()
    plan = world.plan(world.revision({KEY: "2-31", "vm.swappiness": "10"}), canary=0)
    assert KEY in str(codes(plan))
    assert plan.worst_class == Disruption.LIVE


def change(key, value, kind=ChangeKind.SETTING):
    return Change(kind, key, "=", value, "none", "reboot")


@pytest.mark.parametrize(
    ("changes", "is_blocked"),
    [
        ([change(KEY, "2-7"), change("cmdline.nohz_full", None, ChangeKind.RESTORE)], True),
        ([change("cmdline.rcu_nocbs", "2-7"), change(KEY, "none", ChangeKind.RESTORE)], True),
        ([change(KEY, "2-7")], False),
        ([change(KEY, "none", ChangeKind.RESTORE), change(CPUS, "0-7")], False),
        ([change(CPUS, "0-2")], True),  # the node isolates 2-7 already
        ([change("vm.swappiness", "10")], False),
    ],
)
def test_what_a_plan_changes_is_judged_together_with_what_the_node_has(changes, is_blocked):
    node = {"n1": {KEY: "2-7", ONLINE: "0-7", CPUS: "none"}}
    findings = isolation_findings({"n1": Changes.of(changes)}, node, {"n1": "6.8.0-85-generic"})
    assert [finding.severity for finding in findings] == ["block"] * is_blocked


@pytest.mark.parametrize(
    ("value", "release", "warns"),
    [
        ("services,2-7", "6.1.0-50-cloud-amd64", True),  # Debian 12: each process had all CPUs again
        ("domain,services,2-7", "5.15.0-1090-azure", True),
        ("services,2-7", "6.2.0-39-generic", False),
        ("services,2-7", "5.14.0-427.el9.x86_64", False),  # its vendor brings parts of newer kernels
        ("services,2-7", "", False),
        ("domain,2-7", "6.1.0-50-cloud-amd64", False),
    ],
)
def test_a_kernel_that_gives_services_all_cpus_again_is_named_before_the_reboot(value, release, warns):
    seen = {"n1": {ONLINE: "0-7"}}
    findings = isolation_findings({"n1": Changes.of([change(KEY, value)])}, seen, {"n1": release})
    assert [(finding.severity, finding.nodes) for finding in findings] == [("warn", ["n1"])] * warns
