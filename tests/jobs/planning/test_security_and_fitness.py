"""Settings that weaken security ask for another approver; values that leave a node unusable block a plan."""

from __future__ import annotations

import pytest

from common.errors import Invalid
from contract import keys
from contract.fitness import GIB, MachineSize
from jobs.approvals import reviews, rulebook, rules
from jobs.diffs.changes import Change, ChangeKind, Changes
from jobs.forecast import findings
from jobs.models import ApprovalRule
from profiles.catalog import weakening
from profiles.document import setting_check

WEAK = {"kernel.kptr_restrict": "0"}


def _codes(plan):
    return {(f["severity"], f["code"]) for f in plan.findings}


@pytest.fixture
def seen(make_world, monkeypatch):
    """A world whose agents report the keys of these tests, too."""
    world = make_world(nodes=2)
    for row in world.cluster.nodes.select_related("tuning"):
        row.tuning.observed |= {"kernel.kptr_restrict": "1", "kernel.threads-max": "500000"}
        row.tuning.save()
    return world


def test_a_setting_that_weakens_security_is_found_and_asks_for_another_approver(seen):
    plan = seen.plan(seen.revision(WEAK))
    assert ("warn", weakening.CODE) in _codes(plan)
    assert "settings that weaken security" in {rule.name for rule in rules.requirements_for(plan)}
    assert max(rule.approvers for rule in rules.requirements_for(plan)) == 2
    reviews.request(plan, by=seen.operator)
    reviews.approve(plan, by=seen.approver, digest=plan.digest)
    plan.refresh_from_db()
    assert plan.status == "review", "one approver is not enough"


@pytest.mark.parametrize(
    ("settings", "answers", "names"),
    [
        ({"cmdline.iommu": "pt"}, {"n1": "none", "n2": "grub"}, ["n1"]),
        ({"cmdline.iommu": "pt"}, {"n1": "grub", "n2": "grub"}, []),
        ({"cmdline.iommu": "pt"}, {}, []),
        ({"vm.swappiness": "10"}, {"n1": "none", "n2": "none"}, []),
    ],
    ids=["one cannot", "all can", "agents that do not say", "no boot"],
)
def test_nodes_that_cannot_fall_back_to_the_old_kernel_arguments_are_named(seen, settings, answers, names):
    for row in seen.cluster.nodes.select_related("tuning").filter(name__in=answers):
        row.tuning.observed |= {"boot.fallback": answers[row.name]}
        row.tuning.save()

    plan = seen.plan(seen.revision(settings))

    assert [name for f in plan.findings if f["code"] == "no-boot-fallback" for name in f["nodes"]] == names


def test_an_ordinary_setting_does_not(seen):
    plan = seen.plan()
    assert ("warn", weakening.CODE) not in _codes(plan)
    assert "settings that weaken security" not in {rule.name for rule in rules.requirements_for(plan)}


@pytest.mark.parametrize("key", sorted(weakening.KNOWN))
def test_every_weakness_is_of_a_key_and_has_a_value_that_is_none(key):
    keys.check_key(key)
    assert not weakening.reason(key, "=", None)


@pytest.mark.parametrize(
    ("key", "operator", "value", "is_weak"),
    [("kernel.kptr_restrict", "=", "0", True), ("kernel.kptr_restrict", ">=", "0", False),
     ("kernel.kptr_restrict", "=", "1", False), ("kernel.sysrq", "=", "1", True), ("kernel.sysrq", "=", "176", False),
     ("cmdline.iommu", "=", "pt,off", True), ("cmdline.intel_iommu", "=", "on,off", True),
     ("cmdline.iommu", "=", "pt", False), ("cmdline.intel_iommu", "=", "on,sm_on", False),
     ("kernel.perf_event_paranoid", "=", "-1", True),
     ("cmdline.iommu", "=", "off", True), ("cmdline.audit", "=", "0", True), ("vm.swappiness", "=", "0", False)],
)  # fmt: skip
def test_a_value_weakens_or_does_not(key, operator, value, is_weak):
    assert bool(weakening.reason(key, operator, value)) == is_weak
    cautions = {code for code, _ in setting_check.ask(key, value, operator).cautions}
    assert (weakening.CODE in cautions) == is_weak


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kernel.threads-max", "20"),
        ("kernel.pid_max", "301"),
        ("cmdline.hugepages", "99999999"),
        ("cmdline.crashkernel", "900P"),
        ("cmdline.crashkernel", "0xE100000000"),
        ("cmdline.crashkernel", "0x0-:900G"),
        ("cmdline.crashkernel", "0M"),
    ],
)
def test_what_no_node_could_use_is_not_published(key, value):
    with pytest.raises(setting_check.SettingRefused) as refusal:
        setting_check.ask(key, value)
    assert refusal.value.code == "out-of-range"


def test_what_one_node_could_not_use_blocks_its_plan_and_names_it(seen):
    plan = seen.plan(seen.revision({"cmdline.crashkernel": "900G"}))
    finding = next(f for f in plan.findings if f["code"] == "unusable")
    assert (finding["severity"], finding["nodes"]) == ("block", ["n1", "n2"])
    assert "memory" in finding["detail"]
    assert plan.is_blocked


@pytest.mark.parametrize(
    ("wanted", "observed", "is_blocked"),
    [
        ({"hugepages-1Gi": "30"}, {"hugepages-2Mi": "10000"}, False),
        ({"hugepages-1Gi": "40"}, {"hugepages-2Mi": "10000"}, True),
        ({"hugepages-2Mi": "100"}, {"hugepages-2Mi": "200", "hugepages-1Gi": "63"}, False),
        ({"hugepages-1Gi.node1": "30"}, {"hugepages-1Gi.node0": "30", "hugepages-1Gi": "30"}, True),
        ({"cmdline.hugepages": "100"}, {}, False),
        ({"cmdline.hugepages": "100"}, {"cmdline.hugepagesz": "1G"}, True),
        ({"cmdline.hugepages": "100", "cmdline.hugepagesz": "1G"}, {}, True),
    ],
)
def test_huge_pages_that_a_node_has_count_with_those_of_a_plan(wanted, observed, is_blocked):
    changes = Changes.of(Change(ChangeKind.SETTING, key, "=", value, None) for key, value in wanted.items())
    unusable = findings.unusable_value_findings({"n1": changes}, {"n1": MachineSize(64 * GIB)}, {"n1": observed})
    assert bool(unusable) == is_blocked


def _rule(world, **fields):
    return rulebook.create(by=world.admin, name="r", approvers=3, **fields)


@pytest.mark.parametrize(
    ("fields", "fits"),
    [({"gpus": 16}, True), ({"gpus": 17}, False), ({"gpu_jobs": 1}, True), ({"gpu_jobs": 2}, False),
     ({"namespace": "team-llm"}, True), ({"namespace": "team-x"}, False), ({"component": "cilium"}, False),
     ({"weakens_security": True}, False)],
)  # fmt: skip
def test_each_condition_holds_from_its_number_on(make_world, fields, fits):
    world = make_world(nodes=2)
    world.sim.pods.workload("Job", "llm", namespace="team-llm", replicas=1, gpus=8)
    world.tick(5)
    _rule(world, **fields)
    plan = world.plan(world.revision({}, labels={"nvidia.com/mig.config": "all-1g.10gb"}), canary=0)
    assert ("r" in {rule.name for rule in rules.requirements_for(plan)}) == fits
    plan.summary = {}
    assert ("r" in {rule.name for rule in rules.requirements_for(plan)}) == fits, "the rows tell it without the summary"


@pytest.mark.parametrize(
    ("field", "value"),
    [("gpus", 0), ("gpu_jobs", -1), ("gpus", True), ("namespace", "Team"), ("component", "no-such-thing")],
)
def test_a_condition_that_cannot_hold_names_its_field(world, field, value):
    with pytest.raises(Invalid) as refusal:
        _rule(world, **{field: value})
    assert set(refusal.value.fields) == {field}


def test_the_built_in_rules_are_what_an_installation_begins_with(db):
    rows = {row.name: row for row in ApprovalRule.objects.all()}
    for built_in in rulebook.BUILT_IN:
        row = rows[built_in["name"]]
        assert {name: getattr(row, name) for name in built_in} == built_in
