"""Nodes that join a pool: a plan is drafted for them, or a rollout in progress takes them where approved to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accounts.models import RoleBinding
from clusters.models import Cluster, Node
from common.errors import NotAllowed, WrongState
from compliance.models import NodeStanding
from jobs.approvals import reviews, verdicts
from jobs.diffs.changes import Change, ChangeKind, Changes
from jobs.models import ChangeSet, Plan, PlanNode, Rollout, Step
from jobs.planning import digests, new_nodes
from jobs.rollouts import rollout_actions
from tests import marks
from tests.jobs.conftest import World
from tests.jobs.joining import join, running

REBOOT = {"vm.swappiness": "10", "cmdline.iommu": "pt"}


# ── drafts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_is_drafted_over_just_the_node_that_joined(assigned: World, draft: Plan):
    assert (draft.status, draft.created_by, draft.revision.name) == ("draft", None, Plan.objects.first().revision.name)
    assert list(draft.nodes.values_list("name", "left_out")) == [("n4", "")]
    assert (draft.summary["nodes"], draft.summary["pool_nodes"]) == (1, 4)
    assert draft.message == "1 node joined train: this brings it to gpu r1."


def test_no_second_draft_is_made_while_the_same_nodes_wait(assigned: World, draft: Plan):
    for _ in range(3):
        assigned.tick(60)
        assert new_nodes.draft() == []
    assert Plan.objects.filter(created_by=None).count() == 1


def test_another_set_of_nodes_makes_a_draft_that_takes_the_place_of_the_first(assigned: World, draft: Plan):
    join(assigned, "n5")
    assigned.tick(60)
    (second,) = new_nodes.draft()
    draft.refresh_from_db()
    assert (draft.status, draft.superseded_by) == ("withdrawn", second)
    assert set(second.nodes.values_list("name", flat=True)) == {"n4", "n5"}


def test_a_draft_waits_until_no_more_nodes_come(assigned: World):
    join(assigned, "n4")
    assert new_nodes.draft() == []
    assigned.tick(60)
    assert len(new_nodes.draft()) == 1


def test_a_node_that_is_not_ready_or_silent_is_not_drafted_for(assigned: World):
    join(assigned, "n5")
    assigned.sim.nodes.cordon("n5")
    assigned.sim.add_node("n4", gpus=8, labels={"pool": "train"})  # its agent was not asked for anything yet
    assigned.tick(60)
    assert new_nodes.draft() == []


def test_nothing_is_drafted_while_a_rollout_of_the_pool_runs(assigned: World):
    rollout = assigned.started(assigned.plan(assigned.revision({"vm.swappiness": "20"}), canary=1))
    rollout_actions.pause(rollout, by=assigned.operator)
    join(assigned, "n4")
    assigned.tick(60)
    assert new_nodes.draft() == []
    rollout_actions.resume(rollout, by=assigned.operator)
    assigned.run(rollout)
    assert [set(p.nodes.values_list("name", flat=True)) for p in new_nodes.draft()] == [{"n4"}]


def test_a_node_that_came_between_plan_and_start_is_drafted_for_too(world: World):
    plan = world.approved(world.plan(canary=0))
    join(world, "n4")
    assert world.run(rollout_actions.start(plan, by=world.operator)).status == "succeeded"
    assert NodeStanding.objects.get(node__name="n4").is_joining
    world.tick(60)
    assert [set(p.nodes.values_list("name", flat=True)) for p in new_nodes.draft()] == [{"n4"}]


def test_a_plan_of_a_person_over_the_same_nodes_takes_the_drafts_place(assigned: World, draft: Plan):
    assigned.plan(draft.revision)
    assert new_nodes.draft() == []
    draft.refresh_from_db()
    assert draft.status == "withdrawn"


def test_a_draft_that_a_person_took_up_is_theirs_and_stays(assigned: World, draft: Plan):
    reviews.request(draft, by=assigned.operator)
    join(assigned, "n5")
    assigned.tick(60)
    (second,) = new_nodes.draft()
    draft.refresh_from_db()
    assert draft.status == "review"
    assert set(second.nodes.values_list("name", flat=True)) == {"n5"}


def test_nobody_approves_the_draft_that_they_asked_approval_for_nor_one_of_their_own_revision(
    assigned: World, draft: Plan
):
    RoleBinding.objects.create(user=assigned.operator, role="approver", scope="*")
    RoleBinding.objects.create(user=assigned.author, role="approver", scope="*")
    reviews.request(draft, by=assigned.operator)
    assert "their own plans" in verdicts.reason_not_to_judge(draft, assigned.operator)
    assert "Authors" in verdicts.reason_not_to_judge(draft, assigned.author)
    with pytest.raises(NotAllowed):
        reviews.approve(draft, by=assigned.operator, digest=draft.digest)
    approved = reviews.approve(draft, by=assigned.approver, digest=draft.digest)
    rollout = assigned.run(rollout_actions.start(approved, by=assigned.operator))
    assert (rollout.status, assigned.value("n4")) == ("succeeded", "10")
    assert NodeStanding.objects.get(node__name="n4").state == "compliant"


def test_a_node_that_joins_with_every_value_already_is_taken_up_and_watched(assigned: World):
    join(assigned, "n4")
    assigned.sim.drift("n4", "vm.swappiness", "10")
    assigned.tick(60)
    (plan,) = new_nodes.draft()
    assigned.run(assigned.started(plan))
    assert NodeStanding.objects.get(node__name="n4").state == "compliant"
    assigned.sim.drift("n4", "vm.swappiness", "44")
    assigned.tick(120)
    assert assigned.state("n4").state == "drifted"


def test_nodes_that_have_every_value_already_are_compliant_after_the_rollout_of_their_pool(world: World):
    world.sim.drift("n2", "vm.swappiness", "10")
    world.tick(60)
    assert world.run(world.started()).status == "succeeded"
    assert set(NodeStanding.objects.values_list("state", flat=True)) == {"compliant"}


def test_a_draft_for_an_unreachable_cluster_waits(assigned: World):
    join(assigned, "n4")
    assigned.tick(60)
    Cluster.objects.update(reach=Cluster.Reach.UNREACHABLE)
    assert new_nodes.draft() == []


def test_a_new_target_of_the_pool_takes_the_place_of_the_draft_for_the_old_one(assigned: World, draft: Plan):
    newer = assigned.plan(assigned.revision({"vm.swappiness": "20"}), canary=0)
    PlanNode.objects.filter(plan=newer, name="n4").update(
        left_out="Not Ready.", change_set=None, worst_class="", batch=0
    )
    marks.put(Plan.objects.filter(pk=newer.pk), digest=digests.plan_digest(newer))
    newer.refresh_from_db()
    assigned.run(assigned.started(newer))
    assigned.tick(60)
    (second,) = new_nodes.draft()
    draft.refresh_from_db()
    assert (draft.status, second.revision) == ("withdrawn", newer.revision)


# ── tampering ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def forged(rollout: Rollout, node: Node, changes: Changes | None = None, **fields: Any) -> Step:
    """Write what the engine would write for a node that joined, as with a database shell."""
    like = rollout.plan.nodes.exclude(change_set=None).first()
    change_set = like.change_set
    if changes is not None:
        change_set, _ = ChangeSet.objects.get_or_create(
            pk=changes.digest, defaults={"content": changes.to_json(), "worst_class": changes.worst_class}
        )
    row = PlanNode(plan=rollout.plan, node=node, uid=node.uid, name=node.name, change_set=change_set, batch=0)
    row.worst_class = fields.pop("worst_class", change_set.worst_class)
    for name, value in fields.items():
        setattr(row, name, value)
    row.save()
    return Step.objects.create(
        rollout=rollout, plan_node=row, node=node, node_uid=node.uid, node_name=node.name, batch=4, position=9,
        worst_class=row.worst_class,
    )  # fmt: skip


def test_a_row_forged_for_a_node_that_was_known_when_planning_stops_the_rollout(world: World):
    join(world, "old", pool="other")
    rollout = running(world)
    forged(rollout, world.node("old"))
    world.run(rollout, seconds=300, step=5)
    assert (rollout.steps.get(node_name="n2").status, world.value("old")) == ("queued", world.value("n3"))
    assert "digest differs" in rollout.waiting_for
    assert world.value("n2") != "10"


def test_a_row_for_a_new_node_stops_the_rollout_where_the_option_was_not_approved(world: World):
    rollout = running(world, include_joining=False)
    join(world, "n4")
    forged(rollout, world.node("n4"))
    world.run(rollout, seconds=300, step=5)
    assert "digest differs" in rollout.waiting_for
    assert world.value("n4") != "10"


@pytest.mark.parametrize("alter", ["option", "newest", "is_unavailable", "batch"])
def test_what_lets_nodes_in_is_part_of_what_was_approved(world: World, alter: str):
    rollout = running(world, include_joining=alter != "option")
    join(world, "n4")
    plan = Plan.objects.get(pk=rollout.plan_id)
    if alter == "option":
        Plan.objects.filter(pk=plan.pk).update(strategy=plan.strategy | {"include_joining": True})
    elif alter == "newest":
        Plan.objects.filter(pk=plan.pk).update(summary=plan.summary | {"newest_node": 0})
    else:
        forged(rollout, world.node("n4"), **{alter: True if alter == "is_unavailable" else 2})
    world.run(rollout, seconds=300, step=5)
    assert "digest differs" in rollout.waiting_for
    assert (world.value("n2"), world.value("n4")) == (world.value("n3"), world.value("n3"))


OTHER_VALUE = Changes.of([Change(ChangeKind.SETTING, "vm.swappiness", "=", "99", "60", "live")])
OTHER_TAINT = Changes.of([Change(ChangeKind.TAINT, "evil:NoSchedule", "=", "x", None, "live")])
HIDDEN_KEY = Changes.of([Change(ChangeKind.MODE, "drift", "=", "reported", "unwatched", "live")], ["vm.swappiness"])
DISGUISED = Changes.of([Change(ChangeKind.SETTING, "cmdline.iommu", "=", "pt", None, "live")])


@pytest.mark.parametrize("changes", [OTHER_VALUE, OTHER_TAINT, HIDDEN_KEY, DISGUISED])
def test_changes_that_the_revision_does_not_want_are_not_written_to_a_node_that_joined(world: World, changes: Changes):
    rollout = running(world)
    join(world, "n4")
    step = forged(rollout, world.node("n4"), changes)
    world.run(rollout, seconds=300, step=5)
    step.refresh_from_db()
    assert (step.status, "not what was approved" in step.error) == ("held", True), step.error
    assert "swappiness" not in str(world.sim.tuning("n4")["spec"].get("settings"))
    assert not [t for t in world.node("n4").taints if t["key"] == "evil"]


def test_a_new_node_of_another_pool_is_not_written_to_by_a_forged_row(world: World):
    rollout = running(world)
    join(world, "stranger", pool="other")
    step = forged(rollout, world.node("stranger"))
    world.run(rollout, seconds=300, step=5)
    step.refresh_from_db()
    assert (step.status, world.value("stranger") == "10") == ("held", False)


def test_a_disruptive_step_is_not_taken_for_one_of_a_node_that_joined(make_world: Callable[..., World]):
    world = make_world(nodes=2)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, batch="1", order="name", include_joining=True))
    world.until(rollout, "restarting")
    join(world, "n4")
    step = forged(rollout, world.node("n4"))
    world.run(rollout, seconds=3000, step=10)
    step.refresh_from_db()
    assert (step.status, world.node("n4").is_cordoned) == ("held", False)
    assert not world.sim.node("n4")["spec"].get("unschedulable")


def test_a_plan_with_rows_of_nodes_that_joined_before_its_start_does_not_start(world: World):
    plan = world.approved(world.plan(include_joining=True))
    join(world, "n4")
    like = plan.nodes.first()
    node = world.node("n4")
    PlanNode.objects.create(
        plan=plan, node=node, uid=node.uid, name=node.name, change_set=like.change_set, worst_class="live"
    )
    with pytest.raises(WrongState, match="not what was approved"):
        rollout_actions.start(plan, by=world.operator)


# ── what people see ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_option_is_told_on_the_plan_its_approval_and_in_the_api(world: World, client: Any):
    plan = reviews.request(world.plan(include_joining=True), by=world.operator)
    client.force_login(world.approver)
    page = client.get(f"/plans/P-{plan.number}/").content.decode()
    assert "Nodes that join while it runs are included" in page
    assert "Nodes new to the cluster that join while it runs follow, live changes only." in page
    assert "relabeled into the pool" in page, "what it does not cover is said as well"
    assert any(f["code"] == "joining" for f in plan.findings)


def test_the_pages_name_the_draft_and_who_made_it(assigned: World, draft: Plan, client: Any):
    client.force_login(assigned.operator)
    page = client.get(f"/plans/P-{draft.number}/").content.decode()
    assert "drafted by Setpoint" in page
    assert f"/plans/P-{draft.number}/" in client.get("/compliance/").content.decode()
    rows = client.get("/plans/").content.decode()
    assert ">Setpoint</td>" in rows
    assert "removed account" not in rows


def test_the_pages_show_which_nodes_joined(world: World, client: Any):
    rollout = running(world)
    join(world, "n4")
    world.run(rollout)
    client.force_login(world.operator)
    plan = client.get(f"/plans/P-{rollout.plan.number}/").content.decode()
    assert "Joined since" in plan
    assert "Changes 3 of 3" in plan
    page = client.get(f"/rollouts/R-{rollout.number}/").content.decode()
    assert "nodes that joined" in page
