"""Plans that format disks: each is named, each approver types how many, and no other disk is written to."""

from __future__ import annotations

from typing import Any

import pytest

from common.errors import Invalid, WrongState
from contract import disk_layouts, disks
from jobs.approvals import reviews
from jobs.models import ChangeSet, Plan, PlanNode
from jobs.planning import consents
from jobs.reports import plan_disks
from jobs.rollouts import rollout_actions
from profiles.catalog import known_settings

KEY = disk_layouts.KEY
VALUE = "layout=single,filesystem=ext4,mount=/mnt/fast-disks"
PHRASE = "format 3 disks in atlas"


@pytest.fixture
def world(make_world: Any, monkeypatch: Any, request: Any) -> Any:
    monkeypatch.setattr(known_settings, "observable_keys", lambda: ("vm.swappiness", KEY, *disks.KEYS[:4]))
    return make_world(nodes=getattr(request, "param", 1))


@pytest.fixture
def plan(world: Any) -> Plan:
    return world.plan(world.revision({KEY: VALUE}))


def machine(world, node):
    return world.sim.nodes.machine(node)


def serials(world, node):
    return [machine(world, node).drive_serial(f"nvme{number}n1") for number in (1, 2, 3)]


def approved(world, plan):
    reviews.request(plan, by=world.operator)
    return reviews.approve(plan, by=world.approver, digest=plan.digest, consent=PHRASE)


@pytest.mark.parametrize("world", [2], indirect=True)
def test_each_disk_is_named_and_the_plan_is_approved_only_by_the_words(world, plan):
    named = {"n1": tuple(serials(world, "n1")), "n2": tuple(serials(world, "n2"))}
    assert consents.disks_to_format(plan) == named
    assert plan.worst_class == "drain"
    assert plan.summary["consent"] == "format 6 disks in atlas"
    [finding] = [f for f in plan.findings if f["code"] == "formats-disks"]
    assert finding["nodes"] == ["n1", "n2"]
    rows = plan_disks.disks_of_plan(plan)["formats"]
    assert [(row["node"], row["serial"]) for row in rows] == [(n, s) for n, many in named.items() for s in many]
    assert all(row["disk"].is_empty and row["disk"].model.startswith("SAMSUNG") for row in rows)

    reviews.request(plan, by=world.operator)
    for typed in ("", "format 5 disks in atlas", "format disks"):
        with pytest.raises(Invalid) as refused:
            reviews.approve(plan, by=world.approver, digest=plan.digest, consent=typed)
        assert "format 6 disks in atlas" in refused.value.fields["consent"][0]


def test_it_is_carried_out_once_and_a_revert_unmounts_and_keeps_the_data(world, plan):
    rollout = world.run(rollout_actions.start(approved(world, plan), by=world.operator))
    assert rollout.status == "succeeded"
    node = machine(world, "n1")
    drives = dict(node.drives)
    assert sorted(drives) == ["nvme1n1", "nvme2n1", "nvme3n1"]
    assert len(node.mounts) == 3
    with pytest.raises(WrongState, match="nothing to plan"):
        world.plan(plan.revision)

    node.reboot()
    world.tick(400)
    assert len(node.mounts) == 3

    rollout_actions.revert(rollout, by=world.operator)
    assert world.run(rollout).status == "reverted"
    assert (node.mounts, dict(node.drives)) == ({}, drives)
    with pytest.raises(WrongState, match=f"n1 cannot take {KEY}"):
        world.plan(plan.revision)


def test_a_disk_that_changed_since_the_plan_keeps_its_node_as_it_is(world, plan):
    started = rollout_actions.start(approved(world, plan), by=world.operator)
    machine(world, "n1").drives["nvme2n1"] = {0: b"XFSB"}

    world.run(started, seconds=300)

    assert machine(world, "n1").drives == {"nvme2n1": {0: b"XFSB"}}
    assert machine(world, "n1").mounts == {}
    assert started.steps.get(node_name="n1").status in ("held", "failed")


def test_a_serial_that_was_altered_after_the_approval_formats_nothing(world, plan):
    ready = approved(world, plan)
    row = ChangeSet.objects.get(plan_nodes__name="n1")
    row.content["items"][0]["expect"] = row.content["items"][0]["expect"].replace(serials(world, "n1")[0], "S6OTHER")
    ChangeSet.objects.filter(pk=row.pk).update(content=row.content)

    try:
        rollout = rollout_actions.start(ready, by=world.operator)
    except WrongState:
        pass
    else:
        world.run(rollout, seconds=100)

    assert machine(world, "n1").drives == {}


def test_the_words_are_counted_again_from_what_was_planned(world, plan):
    reviews.request(plan, by=world.operator)
    Plan.objects.filter(pk=plan.pk).update(summary=plan.summary | {"consent": "", "formatted_disks": 0})
    plan.refresh_from_db()

    with pytest.raises(WrongState):
        reviews.approve(plan, by=world.approver, digest=plan.digest)
    assert PlanNode.objects.filter(plan=plan).count() == 1


def test_nodes_without_a_disk_that_fits_are_named(world):
    made = world.plan(world.revision({KEY: f"{VALUE},min=999999", "vm.swappiness": "10"}))

    assert made.summary["consent"] == ""
    [finding] = [f for f in made.findings if f["code"] == "disks-unfit"]
    assert finding["nodes"] == ["n1"]


def test_disks_of_an_array_are_named_joined_once_and_keep_their_data_over_boot_and_revert(world):
    made = world.plan(world.revision({KEY: VALUE.replace("single", "raid0")}))
    assert made.summary["consent"] == PHRASE
    [finding] = [f for f in made.findings if f["code"] == "formats-disks"]
    assert "RAID 0" in finding["detail"]

    rollout = world.run(rollout_actions.start(approved(world, made), by=world.operator))
    assert rollout.status == "succeeded"
    node = machine(world, "n1")
    assert [device for device, _ in node.mounts.values()] == ["md127"]
    drives = {name: dict(content) for name, content in node.drives.items()}
    node.reboot()
    world.tick(400)
    assert [device for device, _ in node.mounts.values()] == ["md127"]

    rollout_actions.revert(rollout, by=world.operator)
    assert world.run(rollout).status == "reverted"
    assert (node.mounts, node.drives) == ({}, drives)


@pytest.mark.parametrize(
    ("lost", "limit", "why"),
    [("mdadm", "", "mdadm is missing"), ("", ",min=999999", "none is empty"), ("", "", "two disks of one size")],
)
def test_why_a_node_can_have_no_array_is_named(world, monkeypatch, lost, limit, why):
    node = machine(world, "n1")
    if lost:
        had = type(node.hardware).programs.fget
        monkeypatch.setattr(type(node.hardware), "programs", property(lambda hardware: had(hardware) - {lost}))
    for name in ("nvme2n1", "nvme3n1"):
        if not lost and not limit:
            node.drives[name] = {0: b"XFSB"}
        node.kernel.set(f"/sys/block/{name}/stat", "0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0")
    world.tick(1200)

    made = world.plan(world.revision({KEY: f"{VALUE.replace('single', 'raid0')}{limit}", "vm.swappiness": "10"}))

    [finding] = [f for f in made.findings if f["code"] == "disks-unfit"]
    assert why in finding["title"]
    assert finding["nodes"] == ["n1"]
