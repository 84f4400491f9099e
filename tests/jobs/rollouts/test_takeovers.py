"""Law 12: what is newer than this database is taken over by two people, and nothing of it is written blindly."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from django.urls import reverse

from audit.models import Record
from clusters.models import Cluster, Node, NodeTuning
from common.errors import Invalid, NotAllowed, WrongState
from compliance.models import NodeExpectation, NodeStanding, SettingState
from contract.nodetuning import Spec
from jobs.diffs import restore_check
from jobs.hooks import blockers
from jobs.models import Plan, Takeover
from jobs.rollouts import rollout_actions, takeovers
from tests.jobs.pages import browser
from tests.jobs.rest import api

REBOOT = {"vm.swappiness": "10", "cmdline.iommu": "pt"}


@pytest.fixture
def moved(make_world):
    """n1 runs what an earlier installation wrote; n2 is in the middle of it, cordoned; n3 waits for its turn."""
    world = make_world(nodes=3)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, batch="3", order="name"))
    # How it got there is not what is tried: reboots need no look every 5 s.
    world.until(rollout, "succeeded", node="n1", seconds=3000, longest=30)
    world.until(rollout, "restarting", node="n2", seconds=3000, longest=30)
    world.tick(1)
    blockers.forget(world.cluster.pk)
    for model in (SettingState, NodeExpectation, NodeStanding):
        model.objects.all().delete()
    assert world.sim.node("n2")["spec"].get("unschedulable"), "or this tries too little"
    return world


def _requested(world, **fields):
    return takeovers.request(world.cluster, by=world.admin, message="Moved from the old installation.", **fields)


def _taken(world, **fields):
    row = takeovers.approve(requested := _requested(world, **fields), by=world.approver, digest=requested.digest)
    while takeovers.carry_out(row.pk):
        pass
    row.refresh_from_db()
    return row


def is_offered_in(cluster):
    """Return what the cluster's page decides by, in jobs/hooks/panels.py."""
    return takeovers.newer_tunings(cluster).exists() or takeovers.newer_cordons(cluster).exists()


def test_what_is_newer_blocks_plans_until_it_is_taken_over(moved):
    world = moved
    assert is_offered_in(world.cluster)
    blocked = world.plan(world.revision({"vm.swappiness": "5"}))
    assert set(blocked.nodes.exclude(left_out="").values_list("name", flat=True)) == {"n1", "n2"}

    row = _taken(world, release_cordons=True)
    world.tick(30)
    assert row.status == "done"
    assert not row.nodes.exclude(result="").exists(), list(row.nodes.values_list("name", "result"))
    assert not is_offered_in(world.cluster)
    assert not world.sim.node("n2")["spec"].get("unschedulable")

    plan = world.plan(world.revision({"vm.swappiness": "5"}))
    assert set(plan.nodes.filter(left_out="").values_list("name", flat=True)) == {"n1", "n2", "n3"}


def test_taking_over_writes_no_value_and_keeps_the_originals(moved):
    world = moved
    before = world.value("n1")
    assert before == "10"
    _taken(world)
    world.tick(60)
    assert world.value("n1") == before
    assert world.sim.node("n2")["spec"].get("unschedulable"), "a cordon is released only where that was approved"

    first = world.run(world.started(world.plan(world.revision({"vm.swappiness": "5"}), include_unavailable=True)))
    assert world.value("n1") == "5"
    rollout_actions.revert(first, by=world.operator, step=first.steps.get(node_name="n1"))
    world.run(first)
    assert world.value("n1") == "60", "the journal's original, from before the earlier installation"


def test_a_restart_that_the_old_object_still_allowed_is_withdrawn(moved):
    world = moved
    _taken(world)
    for name in ("n1", "n2"):
        spec = Spec.from_json(world.fleet.tuning(name)["spec"])
        assert (spec.mode, spec.step, spec.settings, spec.restart) == ("observe", "", (), None)


def test_it_takes_an_admin_and_a_second_person(moved):
    world = moved
    with pytest.raises(NotAllowed):
        takeovers.request(world.cluster, by=world.operator, message="x")
    with pytest.raises(Invalid):
        takeovers.request(world.cluster, by=world.admin, message=" ")
    row = _requested(world)
    for person in (world.admin, world.operator):
        with pytest.raises(NotAllowed):
            takeovers.approve(row, by=person, digest=row.digest)
    with pytest.raises(WrongState, match="open already"):
        _requested(world)
    with pytest.raises(Invalid):
        takeovers.approve(row, by=world.approver, digest="sha256:another")
    assert takeovers.carry_out(row.pk) == 0, "nothing is done before another party approved"
    takeovers.approve(row, by=world.approver, digest=row.digest)
    actions = set(Record.objects.filter(action__startswith="takeover").values_list("action", flat=True))
    assert actions == {"takeover.request", "takeover.approve"}


def test_what_was_altered_after_it_was_shown_is_not_approved(moved):
    world = moved
    row = _requested(world)
    row.nodes.filter(name="n1").update(settings=[])
    with pytest.raises(WrongState, match="altered"):
        takeovers.approve(row, by=world.approver, digest=row.digest)


def test_an_object_that_asks_something_else_by_then_is_left_as_it_is(moved):
    """The other installation still lives, and wrote once more."""
    world = moved
    row = takeovers.approve(requested := _requested(world), by=world.approver, digest=requested.digest)
    raw = world.fleet.tuning("n1")
    other = Spec.from_json(raw["spec"] | {"attempt": 7})
    world.fleet.tune("n1", other)
    while takeovers.carry_out(row.pk):
        pass
    results = dict(row.nodes.values_list("name", "result"))
    assert "other values" in results["n1"]
    assert results["n2"] == ""
    assert Spec.from_json(world.fleet.tuning("n1")["spec"]).attempt == 7


def test_a_cluster_that_is_away_is_tried_again(moved):
    world = moved
    row = takeovers.approve(requested := _requested(world), by=world.approver, digest=requested.digest)
    world.sim.faults.outage = True
    try:
        assert takeovers.carry_out(row.pk) == 0
    finally:
        world.sim.faults.outage = False
    row.refresh_from_db()
    assert row.status == "approved"
    while takeovers.carry_out(row.pk):
        pass
    row.refresh_from_db()
    assert row.status == "done"


def test_a_worker_that_died_after_the_write_does_nothing_twice(moved, monkeypatch):
    world = moved
    row = takeovers.approve(requested := _requested(world), by=world.approver, digest=requested.digest)

    def die(taken):
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(takeovers.expectations, "adopt", die)
        with pytest.raises(RuntimeError):
            takeovers.carry_out(row.pk)
    generation = world.fleet.tuning("n1")["metadata"]["generation"]
    while takeovers.carry_out(row.pk):
        pass
    assert world.fleet.tuning("n1")["metadata"]["generation"] == generation
    assert SettingState.objects.get(node__name="n1", key="vm.swappiness").original == "60"
    assert not row.nodes.exclude(result="").exists()


def test_nothing_is_taken_over_in_a_cluster_of_another_installation(moved):
    world = moved
    Cluster.objects.update(ownership=Cluster.Ownership.FOREIGN)
    world.cluster.refresh_from_db()
    with pytest.raises(WrongState, match="another installation"):
        _requested(world)


def test_there_is_nothing_to_take_over_where_everything_is_known(world):
    world.run(world.started())
    assert not is_offered_in(world.cluster)
    with pytest.raises(WrongState, match="Nothing"):
        _requested(world)
    assert not Takeover.objects.exists()
    assert Plan.objects.exists()


# ── page and REST ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_pages_lead_through_it_without_a_script(moved):
    world = moved
    where = reverse("jobs:takeover", args=[world.cluster.pk])
    assert where in browser(world.admin).get(f"/clusters/{world.cluster.pk}/").content.decode()

    page = browser(world.admin).get(where).content.decode()
    assert re.search(r'data-newer="(\d+)"', page)[1] == "2"
    assert "vm.swappiness" in page
    assert browser(world.admin).post(where, {"verb": "request", "message": ""}).status_code == 422
    response = browser(world.admin).post(where, {"verb": "request", "message": "Moved.", "release_cordons": "on"})
    assert response.status_code == 302

    row = Takeover.objects.get()
    assert row.release_cordons
    own = browser(world.admin).post(where, {"verb": "approve", "digest": row.digest})
    assert own.status_code == 403
    assert Takeover.objects.get().status == "requested"
    assert browser(world.approver).post(where, {"verb": "approve", "digest": row.digest}).status_code == 302
    assert Takeover.objects.get().status in ("approved", "done")


def test_rest_does_the_same(moved):
    world = moved
    where = f"/api/v1/clusters/{world.cluster.pk}/takeover"
    newer = api(world.admin).get(where).json()
    assert [row["name"] for row in newer["newer"]] == ["n1", "n2"]
    assert newer["takeover"] is None

    refused = api(world.admin).post(where, {"message": ""}, content_type="application/json")
    assert refused.status_code == 422
    body = {"message": "Moved.", "release_cordons": True}
    made = api(world.admin).post(where, body, content_type="application/json")
    assert made.status_code == 201, made.content
    digest = made.json()["digest"]
    act = f"{where}/actions"
    assert api(world.admin).post(f"{act}/approve", {"digest": digest}).status_code == 403
    assert api(world.approver).post(f"{act}/approve", {"digest": "sha256:0"}).status_code == 422
    assert api(world.approver).post(f"{act}/approve", {"digest": digest}).status_code == 202
    assert api(world.admin).post(f"{act}/withdraw").status_code == 409


def test_what_was_asked_for_can_be_withdrawn(moved):
    world = moved
    row = _requested(world)
    takeovers.withdraw(world.cluster, by=world.admin)
    assert Takeover.objects.get(pk=row.pk).status == "withdrawn"
    assert _requested(world).status == "requested"


def test_a_page_counts_those_objects_that_name_a_step_which_this_database_does_not_know(moved):
    """The condition that a page counts by is what plans and steps judge by; an odd spelling is nothing of ours."""
    step = moved.started().steps.first()
    Node.objects.update(is_cordoned=False, cordoned_by="")
    usual = ["", str(step.pk), str(step.pk).upper(), str(uuid4()), "nonsense", "é" * 36, f"{step.pk} "]
    for text in usual:
        NodeTuning.objects.update(spec_step="")
        NodeTuning.objects.filter(node__name="n1").update(spec_step=text)
        assert is_offered_in(moved.cluster) == bool(restore_check.unknown_steps([text])), text
    for text in (step.pk.hex, f"urn:uuid:{step.pk}"):
        NodeTuning.objects.filter(node__name="n1").update(spec_step=text)
        assert is_offered_in(moved.cluster), text
    for text, is_offered in ((str(uuid4()), True), (str(step.pk), False)):
        NodeTuning.objects.filter(node__name="n1").update(spec_step=text)
        page = browser(moved.operator).get(f"/clusters/{moved.cluster.pk}/").content.decode()
        assert ("Take over" in page) == is_offered


def test_a_cordon_alone_is_offered_too(moved):
    """A step that wrote no object yet cordoned the node: nothing else says that a person has to look."""
    world = moved
    step, known = str(uuid4()), world.started().steps.first()
    NodeTuning.objects.update(spec_step="")
    Node.objects.update(is_cordoned=False, cordoned_by="")
    assert not is_offered_in(world.cluster)
    where = reverse("jobs:takeover", args=[world.cluster.pk])
    for mark, is_offered in (
        (f"an-installation/{step}", True),
        (f"an-installation/{known.pk}", False),
        (f"an-installation/{step[:-1]}", True),
        ("", False),
    ):
        Node.objects.filter(name="n2").update(is_cordoned=True, cordoned_by=mark)
        assert is_offered_in(world.cluster) == is_offered, mark
        page = browser(world.admin).get(f"/clusters/{world.cluster.pk}/").content.decode()
        assert (where in page) == is_offered, mark
