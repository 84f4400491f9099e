"""Laws of approval: permitted approvers, exact content, number of approvers, and expiry."""

from __future__ import annotations

from datetime import timedelta

import pytest

from accounts.models import RoleBinding, User
from audit.models import Record
from clusters.models import Cluster
from common.errors import Invalid, NotAllowed, WrongState
from jobs import tasks
from jobs.approvals import reviews, verdicts
from jobs.models import Approval, Plan, PlanNode
from jobs.rollouts import rollout_actions
from tests import marks
from tests.jobs.conftest import given_again, person

REBOOT = {"cmdline.iommu": "pt"}


def approve(plan: Plan, by: User, **fields: str) -> Plan:
    return reviews.approve(plan, by=by, **{"digest": plan.digest} | fields)


def fresh(plan: Plan) -> Plan:
    return Plan.objects.get(pk=plan.pk)


def also(user: User, role: str, scope: str = "*") -> User:
    RoleBinding.objects.create(user=user, role=role, scope=scope)
    return User.objects.get(pk=user.pk)


# ── who ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_made_the_plan_does_not_approve_it(world, plan):
    with pytest.raises(NotAllowed, match="their own plans"):
        approve(plan, also(world.operator, "approver"))


def test_who_asked_for_approval_does_not_give_it(world):
    plan = world.plan()
    asker = also(person("asker", role="operator"), "approver")
    reviews.request(plan, by=asker)
    with pytest.raises(NotAllowed, match="their own plans"):
        approve(plan, asker)


def test_an_author_of_the_revision_does_not_approve_a_plan_for_it(world, plan):
    with pytest.raises(NotAllowed, match="Authors"):
        approve(plan, also(world.author, "approver"))


@pytest.mark.parametrize("part", ["maker", "author"])
def test_a_superuser_is_no_exception(world, plan, part):
    boss = User.objects.create_user("boss@example.com", is_superuser=True)
    if part == "maker":
        marks.put(Plan.objects.filter(pk=plan.pk), created_by=boss)
    else:
        plan.revision.authors.add(boss)
    with pytest.raises(NotAllowed):
        approve(fresh(plan), boss)


def test_a_superuser_who_has_no_part_in_it_may(world, plan):
    assert approve(plan, User.objects.create_user("boss@example.com", is_superuser=True)).status == "approved"


@pytest.mark.parametrize(
    "fields", [{"is_service": True}, {"is_service": True, "is_superuser": True}, {"is_active": False}]
)
def test_neither_a_service_account_nor_a_deactivated_person_approves(world, plan, fields):
    somebody = person("somebody", role="approver")
    marks.put(User.objects.filter(pk=somebody.pk), **fields)
    with pytest.raises(NotAllowed):
        approve(plan, User.objects.get(pk=somebody.pk))


@pytest.mark.parametrize(
    ("scope", "allowed"), [("*", True), ("env:staging", True), ("env:production", False), ("env:development", False)]
)
def test_an_approver_approves_in_their_own_environment_only(world, plan, scope, allowed):
    somebody = User.objects.create_user("s@example.com")
    RoleBinding.objects.create(user=somebody, role="approver", scope=scope)
    if allowed:
        assert approve(plan, somebody).status == "approved"
    else:
        with pytest.raises(NotAllowed, match="approver"):
            approve(plan, somebody)


def test_an_approver_of_one_cluster_approves_there(world, plan):
    somebody = User.objects.create_user("s@example.com")
    RoleBinding.objects.create(user=somebody, role="approver", scope=f"cluster:{world.cluster.pk}")
    assert approve(plan, somebody).status == "approved"


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_no_other_role_approves(world, plan, role):
    with pytest.raises(NotAllowed, match="approver"):
        approve(plan, person("somebody", role=role))
    assert not Approval.objects.exists()


def test_only_an_operator_asks(world):
    with pytest.raises(NotAllowed, match="operator"):
        reviews.request(world.plan(), by=world.approver)


# ── to what ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:" + "0" * 64])
def test_a_verdict_names_exactly_what_was_read(world, plan, digest):
    for verdict in (reviews.approve, reviews.reject):
        with pytest.raises(WrongState, match="not what you saw"):
            verdict(plan, by=world.approver, digest=digest, comment="x")
    assert not Approval.objects.exists()


def test_a_plan_whose_rows_were_changed_is_not_approved_under_its_old_digest(world, plan):
    PlanNode.objects.filter(plan=plan, name="n1").update(uid="another")
    with pytest.raises(WrongState, match="digest"):
        approve(plan, world.approver)


def test_a_verdict_on_another_digest_does_not_count(world, plan):
    approve(plan, world.approver)
    given_again(plan, digest="sha256:" + "0" * 64)
    assert verdicts.approval_state(fresh(plan)).missing == 1


def test_a_blocked_plan_is_not_put_to_review_and_says_why(world):
    world.sim.add_pod("lonely", node="n1")
    world.tick(1)
    with pytest.raises(WrongState, match="controller"):
        reviews.request(world.plan(world.revision(REBOOT)), by=world.operator)


# ── in which state ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_draft_is_asked_for_once(world, plan):
    """Asking again would take an approved plan back to review, in the name of another person."""
    for _ in range(2):
        with pytest.raises(WrongState, match=r"(?i)review|approved"):
            reviews.request(fresh(plan), by=world.author)
        plan = fresh(plan)
        assert plan.requested_by == world.operator
        if plan.status == "review":
            approve(plan, world.approver)
    assert fresh(plan).status == "approved"


@pytest.mark.parametrize("status", [s for s in Plan.Status.values if s not in ("review", "approved")])
def test_no_verdict_outside_of_review(world, plan, status):
    Plan.objects.filter(pk=plan.pk).update(status=status)
    for verdict in (reviews.approve, reviews.reject):
        with pytest.raises(WrongState):
            verdict(fresh(plan), by=world.approver, digest=plan.digest, comment="x")
    Approval.objects.create(plan=plan, digest=plan.digest, person=world.approver, verdict="approve")
    with pytest.raises(WrongState):
        reviews.retract(fresh(plan), by=world.approver)


@pytest.mark.parametrize("status", ["started", "rejected", "withdrawn", "expired"])
def test_what_is_over_is_not_withdrawn(world, plan, status):
    Plan.objects.filter(pk=plan.pk).update(status=status)
    with pytest.raises(WrongState):
        reviews.withdraw(fresh(plan), by=world.operator)


def test_withdrawing_is_for_the_maker_the_asker_and_the_admin(world, plan):
    with pytest.raises(NotAllowed, match="admin"):
        reviews.withdraw(plan, by=world.author)
    assert reviews.withdraw(plan, by=world.admin).status == "withdrawn"
    assert reviews.withdraw(world.plan(), by=world.operator, comment="Not now").status == "withdrawn"


@pytest.mark.parametrize("comment", ["", "  \n"])
def test_a_rejection_says_why(world, plan, comment):
    with pytest.raises(Invalid) as refusal:
        reviews.reject(plan, by=world.approver, digest=plan.digest, comment=comment)
    assert set(refusal.value.fields) == {"comment"}
    assert fresh(plan).status == "review"


@pytest.mark.parametrize(
    "act",
    [
        lambda w, p: reviews.approve(p, by=w.approver, digest=p.digest, comment="x" * 4001),
        lambda w, p: reviews.reject(p, by=w.approver, digest=p.digest, comment="x" * 4001),
        lambda w, p: reviews.withdraw(p, by=w.operator, comment="x" * 4001),
        lambda w, p: reviews.request(w.plan(), by=w.operator, message="x" * 501),
    ],
    ids=["approve", "reject", "withdraw", "request"],
)
def test_a_comment_has_a_length_that_every_database_holds(world, plan, act):
    with pytest.raises(Invalid) as refusal:
        act(world, plan)
    assert set(refusal.value.fields) == {"comment"}


# ── how many, and whose word is the last ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("environment", "settings", "needed"),
    [
        ("production", REBOOT, 2),
        ("production", {"hugepages-2Mi": "512"}, 1),
        ("production", {"vm.swappiness": "10"}, 1),
        ("staging", REBOOT, 1),
        ("development", REBOOT, 1),
    ],
)
def test_only_a_drain_in_production_needs_two_and_the_rule_has_a_name(make_world, environment, settings, needed):
    world = make_world(environment=environment)
    rule = verdicts.strictest_requirement(world.plan(world.revision(settings)))
    assert rule.approvers == needed
    assert rule.name == ("production, disruptive" if needed == 2 else "default")


def test_a_taint_that_evicts_counts_as_a_drain(make_world):
    world = make_world(environment="production")
    world.sim.pods.add("trains", node="n1", gpus=8, owner={"kind": "Job", "name": "trains"})
    world.look()
    plan = world.plan(world.revision({}, taints=[("gpu", "yes", "NoExecute")]))
    assert verdicts.strictest_requirement(plan).approvers == 2


def test_two_are_two_persons_and_the_first_alone_starts_nothing(make_world):
    world = make_world(environment="production")
    plan = reviews.request(world.plan(world.revision(REBOOT)), by=world.operator)

    for _ in range(2):
        plan = approve(plan, world.approver)
        assert (plan.status, verdicts.approval_state(plan).missing) == ("review", 1)
    with pytest.raises(WrongState, match="not approved"):
        rollout_actions.start(plan, by=world.operator)

    assert approve(plan, world.second).status == "approved"


def test_a_third_approval_is_kept_and_lets_one_be_taken_back(make_world):
    world = make_world(environment="production")
    plan = world.approved(world.plan(world.revision(REBOOT)))
    plan = approve(plan, person("third", role="approver"))

    assert reviews.retract(plan, by=world.approver).status == "approved"
    assert reviews.retract(fresh(plan), by=world.second).status == "review"


def test_the_newest_verdict_of_a_person_counts(world, plan):
    plan = approve(plan, world.approver)
    plan = reviews.retract(plan, by=world.approver)
    assert (plan.status, verdicts.approval_state(plan).missing) == ("review", 1)
    with pytest.raises(WrongState):
        rollout_actions.start(plan, by=world.operator)

    plan = approve(plan, world.approver)
    assert plan.status == "approved"
    assert list(plan.approvals.values_list("verdict", flat=True)) == ["approve", "retract", "approve"]


def test_only_who_has_approved_takes_it_back_and_once(world, plan):
    with pytest.raises(NotAllowed, match="approver"):
        reviews.retract(plan, by=world.second)
    plan = reviews.retract(approve(plan, world.approver), by=world.approver)
    with pytest.raises(NotAllowed, match="approver"):
        reviews.retract(plan, by=world.approver)
    assert Approval.objects.count() == 2


def test_one_rejection_ends_the_plan_whoever_approved_before(make_world):
    world = make_world(environment="production")
    plan = world.approved(world.plan(world.revision(REBOOT)))

    plan = reviews.reject(plan, by=person("third", role="approver"), digest=plan.digest, comment="Not this week")

    assert plan.status == "rejected"
    assert not verdicts.approval_state(plan).is_approved
    with pytest.raises(WrongState):
        approve(plan, world.approver)
    with pytest.raises(WrongState):
        rollout_actions.start(plan, by=world.operator)


def test_an_approval_ends_with_the_role_it_was_given_in(make_world):
    world = make_world(environment="production")
    plan = world.approved(world.plan(world.revision(REBOOT)))
    world.second.bindings.all().delete()

    assert verdicts.approval_state(fresh(plan)).missing == 1
    with pytest.raises(WrongState, match="needs 1 more"):
        rollout_actions.start(plan, by=world.operator)


def test_a_cluster_moved_to_production_after_the_approval_needs_the_second_one(world):
    plan = world.approved(world.plan(world.revision(REBOOT)))
    marks.put(Cluster.objects.all(), environment="production")
    with pytest.raises(WrongState, match="needs 1 more"):
        rollout_actions.start(fresh(plan), by=world.operator)


# ── how long ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", ["draft", "review", "approved"])
def test_what_nobody_decides_in_time_expires_and_that_means_no(world, status):
    plan = world.plan()
    Plan.objects.filter(pk=plan.pk).update(status=status)
    world.clock.forward(hours=72)
    plan = fresh(plan)

    for act in (
        lambda: reviews.request(plan, by=world.operator),
        lambda: approve(plan, world.approver),
        lambda: reviews.reject(plan, by=world.approver, digest=plan.digest, comment="x"),
        lambda: rollout_actions.start(plan, by=world.operator),
    ):
        with pytest.raises(WrongState):
            act()
    world.clock.forward(seconds=1)
    tasks.expire_plans()
    assert fresh(plan).status == "expired"
    assert Record.objects.get(action="plan.expire").actor == "system"


def test_what_is_decided_or_not_yet_due_does_not_expire(world):
    started = world.started().plan
    waits = world.plan(world.revision({"vm.swappiness": "11"}))
    Plan.objects.filter(pk=started.pk).update(expires_at=waits.expires_at - timedelta(days=30))

    assert reviews.expire() == 0
    assert fresh(started).status == "started"
    world.clock.forward(hours=73)
    assert reviews.expire() == 1
    assert reviews.expire() == 0
    assert fresh(waits).status == "expired"


# ── record ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_verdict_is_recorded_with_its_digest_and_its_words(world, plan):
    approve(plan, world.approver, comment=" Fine ")
    reviews.retract(fresh(plan), by=world.approver)
    reviews.reject(fresh(plan), by=world.second, digest=plan.digest, comment="No")

    rows = {r.action: r for r in Record.objects.filter(action__startswith="plan.")}
    assert rows.keys() == {"plan.make", "plan.request", "plan.approve", "plan.retract", "plan.reject"}
    assert {r.after["digest"] for r in rows.values()} == {plan.digest}
    assert Approval.objects.get(verdict="approve").comment == "Fine"
    assert rows["plan.reject"].message == "No"


def test_a_verdict_that_is_refused_leaves_no_record(world, plan):
    before = Record.objects.count()
    with pytest.raises(WrongState):
        reviews.approve(plan, by=world.approver, digest="sha256:x")
    assert Record.objects.count() == before
