"""An attacker with the database and without the key: no row that they write starts what was not approved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusters.models import Cluster
from common.clock import now
from common.errors import NotAllowed, WrongState
from jobs import tasks
from jobs.approvals import reviews, rulebook, verdicts
from jobs.models import ApprovalRule, Plan, PlanNode, Rollout, Step
from jobs.planning import digests
from jobs.rollouts import rollout_actions
from tests.factories import UserFactory
from tests.jobs.conftest import World

RS = Rollout.Status
OTHER = {"vm.swappiness": "77"}


@pytest.fixture
def world(make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(tasks, "wake", lambda pk: None)
    return make_world(nodes=1)


def forged(plan: Plan, status: str) -> Rollout:
    """Insert a rollout with a step for each node, as SQL would."""
    rollout = Rollout(number=900, plan=plan, cluster=plan.cluster, digest=plan.digest, status=status, started_at=now())
    Rollout.objects.bulk_create([rollout])
    Rollout.objects.filter(pk=rollout.pk).update(mac="")
    rows = plan.nodes.filter(left_out="")
    Step.objects.bulk_create(
        Step(rollout=rollout, plan_node=row, node_id=row.node_id, node_uid=row.uid, node_name=row.name,
             batch=row.batch, position=row.position, worst_class=row.worst_class)
        for row in rows
    )  # fmt: skip
    assert rollout.steps.exists()
    return Rollout.objects.get(pk=rollout.pk)


def assert_untouched(world: World, value: str = "77") -> None:
    assert world.value("n1") != value
    assert value not in str(world.sim.tuning("n1")["spec"].get("settings"))


@pytest.mark.parametrize("status", [RS.QUEUED, RS.RUNNING])
@pytest.mark.parametrize("approved", ["a draft", "in review", "said to be started"])
def test_a_rollout_put_into_the_table_writes_nothing(world: World, status: str, approved: str) -> None:
    plan = world.plan(world.revision(OTHER), canary=0)
    if approved != "a draft":
        plan = reviews.request(plan, by=world.operator)
    if approved == "said to be started":
        Plan.objects.filter(pk=plan.pk).update(status=Plan.Status.STARTED)
    rollout = world.run(forged(plan, status), seconds=60, step=5)
    assert_untouched(world)
    assert not rollout.steps.filter(has_applied=True).exists()


def test_another_plan_put_under_a_rollout_writes_nothing(world: World) -> None:
    """The rollout was started as an approved plan, and waits for its time."""
    other = world.plan(world.revision(OTHER), canary=0)
    rollout = world.started(canary=0)
    Rollout.objects.filter(pk=rollout.pk).update(plan=other, digest=other.digest, status=RS.RUNNING, started_at=now())
    rollout.steps.update(plan_node=other.nodes.get())
    world.run(Rollout.objects.get(pk=rollout.pk), seconds=60, step=5)
    assert_untouched(world)


def test_a_plan_exchanged_together_with_its_digest_writes_nothing(world: World) -> None:
    """All that the digest is over, and the digest, of a rollout that runs."""
    other = world.plan(world.revision(OTHER), canary=0)
    rollout = world.started(canary=0)
    plan = rollout.plan
    Rollout.objects.filter(pk=rollout.pk).update(status=RS.RUNNING, started_at=now())
    PlanNode.objects.filter(plan=plan).update(change_set=other.nodes.get().change_set)
    Plan.objects.filter(pk=plan.pk).update(revision=other.revision)
    changed = Plan.objects.get(pk=plan.pk)
    digest = digests.plan_digest(changed)
    Plan.objects.filter(pk=plan.pk).update(digest=digest)
    Rollout.objects.filter(pk=rollout.pk).update(digest=digest)
    assert digests.is_as_approved(Plan.objects.get(pk=plan.pk)), "the digest alone is no help here"
    world.run(Rollout.objects.get(pk=rollout.pk), seconds=60, step=5)
    assert_untouched(world)


def both(world: World) -> World:
    """The operator who makes the plans may approve others'."""
    from accounts.models import RoleBinding

    RoleBinding.objects.create(user=world.operator, role="approver", scope="*")
    world.operator.forget_grants()
    world.clock.forward(60)
    return world


@pytest.mark.parametrize("moment", ["before the request", "in review", "approved by another"])
def test_whose_plan_it_is_cannot_be_changed_in_the_table(world: World, moment: str) -> None:
    me = both(world).operator
    plan = world.plan(world.revision(OTHER), canary=0)
    others = {"created_by": world.admin}
    if moment == "before the request":
        Plan.objects.filter(pk=plan.pk).update(**others)
        plan = Plan.objects.get(pk=plan.pk)
    plan = reviews.request(
        plan, by=world.operator if moment != "before the request" else UserFactory(roles=["operator"])
    )
    Plan.objects.filter(pk=plan.pk).update(**others, requested_by=world.admin)
    plan = Plan.objects.get(pk=plan.pk)
    by = world.approver if moment == "approved by another" else me
    with pytest.raises(WrongState, match="outside Setpoint"):
        reviews.approve(plan, by=by, digest=plan.digest)


def test_a_role_given_too_late_is_not_made_early_by_the_plan(world: World) -> None:
    plan = reviews.request(world.plan(canary=0), by=world.operator)
    world.clock.forward(60)
    late = UserFactory(roles=["approver"])
    Plan.objects.filter(pk=plan.pk).update(requested_at=now())
    plan = Plan.objects.get(pk=plan.pk)
    with pytest.raises(WrongState, match="outside Setpoint"):
        reviews.approve(plan, by=late, digest=plan.digest)


def rule(world: World, **fields: object) -> ApprovalRule:
    made = rulebook.create(by=world.admin, name="two", approvers=2, **fields)
    assert made.is_genuine
    return made


@pytest.mark.parametrize(
    "change",
    [{"approvers": 1}, {"is_enabled": False}, {"environment": "production"}, {"gpu_percent": 100},
     {"namespace": "nowhere"}, {"worst_class": "reboot"}],
)  # fmt: skip
def test_a_rule_made_weaker_in_the_table_lets_nothing_start(world: World, change: dict[str, object]) -> None:
    made = rule(world)
    plan = reviews.request(world.plan(canary=0), by=world.operator)
    ApprovalRule.objects.filter(pk=made.pk).update(**change)
    reviews.approve(plan, by=world.approver, digest=plan.digest)
    assert not verdicts.approval_state(plan).is_approved
    Plan.objects.filter(pk=plan.pk).update(status=Plan.Status.APPROVED)
    with pytest.raises(WrongState, match="more approval"):
        rollout_actions.start(Plan.objects.get(pk=plan.pk), by=world.operator)


def test_a_cluster_moved_in_the_table_keeps_the_rules_and_loses_the_roles_of_environments(world: World) -> None:
    rule(world, environment="staging")
    local = UserFactory(roles=["approver@env:development"])
    world.clock.forward(60)
    plan = reviews.request(world.plan(canary=0), by=world.operator)
    Cluster.objects.filter(pk=world.cluster.pk).update(environment="development")
    plan = Plan.objects.get(pk=plan.pk)
    assert verdicts.strictest_requirement(plan).approvers == 2
    with pytest.raises(NotAllowed, match="role approver"):
        reviews.approve(plan, by=local, digest=plan.digest)
