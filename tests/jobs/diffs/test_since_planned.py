"""Changes on a plan's nodes since it was made, and the values after its reboot: shown before the decision."""

from __future__ import annotations

import re

import pytest

from agent import persisted
from clusters.models import Node
from compliance.models import SettingState
from jobs.approvals import reviews
from jobs.diffs import staleness
from jobs.forecast import findings
from jobs.rollouts import rollout_actions
from tests.jobs.pages import browser
from tests.jobs.rest import api

TWO = {"vm.swappiness": "10", "vm.dirty_ratio": "12"}


def _changed(client, plan):
    match = re.search(
        r'data-changed="(\d+)" data-gone="(\d+)"', client.get(f"/plans/P-{plan.number}/").content.decode()
    )
    return (int(match[1]), int(match[2])) if match else None


@pytest.fixture
def planned(make_world):
    world = make_world(nodes=3)
    plan = world.plan(world.revision(TWO), canary=0, batch="3")
    reviews.request(plan, by=world.operator)
    world.tick(5)
    return world, plan


def test_values_that_changed_since_are_counted_on_the_page_and_over_rest(planned):
    world, plan = planned
    client = browser(world.approver)
    assert _changed(client, plan) is None, "nothing changed"

    world.sim.drift("n2", "vm.swappiness", "33")
    world.sim.drift("n3", "vm.swappiness", "10")  # what it wants: nothing is in the way
    world.tick(120)
    assert staleness.changes_since_planned(plan).of == 6
    assert _changed(client, plan) == (1, 0)
    changed_since = api(world.approver).get(f"/api/v1/plans/{plan.pk}").json()["changed_since"]
    assert changed_since == {"values": 1, "of": 6, "nodes": 1, "gone": 0, "is_partial": False}


def test_such_a_plan_starts_and_the_node_is_held_as_the_page_says(planned):
    world, plan = planned
    world.sim.drift("n2", "vm.swappiness", "33")
    world.tick(120)
    reviews.approve(plan, by=world.approver, digest=plan.digest)
    rollout = world.run(rollout_actions.start(plan, by=world.operator), seconds=120)
    assert {s.node_name: s.status for s in rollout.steps.all()} == {"n1": "succeeded", "n2": "held", "n3": "succeeded"}
    assert world.value("n2") == "33"


def test_nodes_that_left_are_counted(planned):
    world, plan = planned
    Node.objects.filter(name="n1").update(gone_at=world.clock())
    assert _changed(browser(world.approver), plan) == (0, 1)


def test_a_file_that_wins_after_the_reboot_is_a_finding_before(make_world):
    world = make_world(nodes=2)
    world.run(world.started(world.plan(canary=0, batch="2")))
    world.sim.drop_file("n2", "/etc/sysctl.d/99-zzz-vendor.conf", "vm.swappiness = 60")
    world.sim.drift("n2", "vm.swappiness", "60")
    world.tick(120)
    assert SettingState.objects.exclude(won_by="").exists(), "or this tries nothing"

    plan = world.plan(world.revision({"vm.swappiness": "10", "cmdline.iommu": "pt"}), canary=0, batch="2")
    (finding,) = [f for f in plan.findings if f["code"] == "fought"]
    assert (finding["severity"], finding["nodes"]) == ("warn", ["n2"])
    assert "/etc/sysctl.d/99-zzz-vendor.conf:1" in finding["title"]
    assert "reboot" in finding["detail"]


@pytest.mark.parametrize(
    ("path", "severity"),
    [
        ("/etc/sysctl.d/10-early.conf", "note"),
        ("/etc/sysctl.d/99-zzz-late.conf", "warn"),
        ("/etc/sysctl.conf", "warn"),
    ],
)
def test_only_what_is_read_after_setpoints_file_has_the_last_word(path, severity):
    (finding,) = findings.competing_file_findings({("vm.swappiness", f"{path}:3"): ["n1"]}, frozenset())
    assert finding.severity == severity


def test_the_agents_file_has_the_name_that_the_finding_knows():
    assert persisted.SYSCTL.rpartition("/")[2] == findings.OWN_FILE
