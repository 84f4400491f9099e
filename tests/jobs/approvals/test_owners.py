"""Laws of the owners of plans: those of each node that it touches are asked, and no change of owner lessens that."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import RoleBinding, User
from clusters.models import Node, Pool
from clusters.services import pools
from common.clock import now
from common.errors import NotAllowed, WrongState
from gpus.models import Team
from gpus.showback import teams
from jobs.approvals import owner_reviews, plan_actions, reviews, verdicts
from jobs.forecast import owners
from jobs.models import Plan, PlanComponent, PolicyVersion
from jobs.planning import digests
from jobs.policy import judgement, plan_facts, policy_text
from jobs.rollouts import glass_start, rollout_actions
from profiles.models import Profile
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World
from tests.jobs.pages import browser
from tests.jobs.policy.test_policy_of_plans import activate, rule, text_of

OWNERS = rule("size(plan.owners) > 0", require={"owners": True})


def own(row: Pool | Profile, team: Team | None) -> None:
    type(row)._base_manager.filter(pk=row.pk).update(owner_team=team.pk if team else None)
    row.refresh_from_db()


def of(team: Team, *roles: str) -> User:
    return UserFactory(roles=[f"viewer@team:{team.pk}", *roles])


def requested(world: World, plan: Plan | None = None) -> Plan:
    return reviews.request(plan or world.plan(), by=world.operator)


def approve(plan: Plan, by: User) -> Plan:
    return reviews.approve(Plan.objects.get(pk=plan.pk), by=by, digest=plan.digest)


def names(plan: Plan) -> list[str]:
    return [owner.name for owner in owners.owners_of([Plan.objects.get(pk=plan.pk)])[plan.pk]]


def startable(plan: Plan) -> bool:
    return not plan_actions.reasons_of_state(Plan.objects.get(pk=plan.pk))["start"]


# ── whose it is ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_owners_are_those_of_pool_profile_and_of_each_pool_that_shares_a_node(
    make_world: Any, speech: Team, vision: Team
) -> None:
    world = make_world(nodes=2)
    plan = world.plan()
    assert names(plan) == []
    assert plan.owners == {}
    own(Profile.objects.get(name="gpu"), speech)
    assert names(plan) == ["Speech"]
    own(Profile.objects.get(name="gpu"), None)
    beside = Pool.objects.create(cluster=world.cluster, name="beside", selector={"matchLabels": {"other": "x"}})
    own(beside, vision)
    assert names(plan) == [], "a pool of none of its nodes"
    node = Node.objects.get(name="n2")
    Node.objects.filter(pk=node.pk).update(labels=node.labels | {"other": "x"})
    assert names(plan) == ["Vision"], "one shared node is enough"
    own(world.pool, speech)
    assert names(plan) == ["Speech", "Vision"]


def test_a_node_that_the_plan_leaves_out_makes_nobody_an_owner(make_world: Any, vision: Team) -> None:
    world = make_world(nodes=2)
    plan = world.plan()
    own(Pool.objects.create(cluster=world.cluster, name="beside", selector={"matchLabels": {"other": "x"}}), vision)
    node = Node.objects.get(name="n2")
    Node.objects.filter(pk=node.pk).update(labels=node.labels | {"other": "x"})
    plan.nodes.filter(name="n2").update(left_out="Is not ready")
    assert names(plan) == []


def test_a_component_that_disturbs_nodes_of_another_pool_is_its_teams_too(world: World, vision: Team) -> None:
    """A GPU Operator restarts what runs on nodes that the plan's own pool does not select."""
    world.sim.add_node("far", gpus=8, labels={"pool": "infer"})
    world.tick(5)
    plan = world.plan()
    own(Pool.objects.create(cluster=world.cluster, name="infer", selector={"matchLabels": {"pool": "infer"}}), vision)
    assert names(plan) == []
    PlanComponent.objects.create(plan=plan, position=1, component="gpu-operator", hit=["far"], prepared={}, digest="-")
    assert names(plan) == ["Vision"]


def test_an_unowned_pool_over_an_owned_pools_nodes_is_no_way_around(world: World, speech: Team) -> None:
    """Every operator could make one of the same nodes, without an owner, and plan for that."""
    own(world.pool, speech)
    around = pools.create_pool(world.cluster, by=world.operator, name="around", selector="pool=train")
    world.pool = around
    assert names(world.plan()) == ["Speech"]


def test_moving_nodes_out_of_a_pool_is_for_its_team(world: World, speech: Team) -> None:
    own(world.pool, speech)
    with pytest.raises(NotAllowed):
        pools.update_pool(world.pool, by=world.operator, selector="pool=none")
    plan = world.plan()
    Node.objects.update(labels={"pool": "elsewhere"})  # in Kubernetes, outside Setpoint
    assert names(plan) == ["Speech"], "as it was made"


# ── over time ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_team_that_gives_a_pool_away_keeps_its_say_and_the_new_one_has_one(
    world: World, speech: Team, vision: Team
) -> None:
    own(world.pool, speech)
    plan = world.plan()
    assert Plan.objects.get(pk=plan.pk).owners == {str(speech.pk): "Speech"}
    own(world.pool, vision)
    assert names(plan) == ["Speech", "Vision"]
    Team.objects.filter(pk=speech.pk).update(name="Voice")
    assert names(plan) == ["Vision", "Voice"], "by their names of today"
    speech.delete()
    assert names(plan) == ["Speech", "Vision"], "gone: by its name of that day"


def test_owners_of_the_day_are_of_what_is_approved(world: World, speech: Team) -> None:
    own(world.pool, speech)
    plan = requested(world)
    assert digests.is_as_approved(plan)
    Plan.objects.filter(pk=plan.pk).update(owners={})
    plan = Plan.objects.get(pk=plan.pk)
    assert not digests.is_as_approved(plan)
    with pytest.raises(WrongState):
        approve(plan, world.approver)


def test_a_plan_without_owners_keeps_the_digest_that_it_had(world: World, speech: Team) -> None:
    plan = world.plan()
    for stored in (None, {}):
        Plan.objects.filter(pk=plan.pk).update(owners=stored)
        assert digests.is_as_approved(Plan.objects.get(pk=plan.pk)), stored


# ── the policy ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_rule_can_name_them(world: World, speech: Team) -> None:
    own(world.pool, speech)
    plan = requested(world)
    assert "owners" not in plan_facts.facts_of_plans([plan])[plan.pk], "counted only for policies that name it"
    activate(world, rule('"Vision" in plan.owners'))
    assert not judgement.judge_plan(plan).refusals
    activate(world, rule('plan.owners.exists(o, o == "Speech")'))
    assert judgement.judge_plan(plan).refusals


def test_older_policies_judge_every_plan_as_before(world: World, speech: Team) -> None:
    """A policy that does not name owners gives the same verdicts, regardless of them."""
    texts = [
        text_of(rule("plan.risk >= LIVE && plan.nodes > 0", require={"approvers": 2})),
        text_of(rule("plan.environments.exists(e, e == 'staging')"), rule("plan.most_gpus > 0") | {"name": "b"}),
        text_of(rule("plan.most_gpu_jobs >= 0", require={"fresh_login": True})),
    ]
    plans = [world.plan(), requested(world), world.approved()]

    def verdicts_of() -> list[judgement.PolicyJudgement]:
        rows = [Plan.objects.get(pk=plan.pk) for plan in plans]
        at = {plan.pk: plan.created_at for plan in rows}
        budget = judgement.Budget(1_000_000)
        return [
            judged
            for text in texts
            for judged in judgement.judge_plans(policy_text.read(text), 1, rows, at, budget).values()
        ]

    before = verdicts_of()
    own(world.pool, speech)
    own(Profile.objects.get(name="gpu"), speech)
    assert verdicts_of() == before
    assert [names(plan) for plan in plans] == [["Speech"]] * 3


@pytest.mark.parametrize("value", ["yes", 1, None, "Speech", ["Speech"]])
def test_owners_of_a_demand_is_true_or_false(value: Any) -> None:
    with pytest.raises(Exception, match="policy is not valid") as refused:
        policy_text.read(text_of(rule(require={"owners": value})))
    assert "`owners` is true or false" in str(refused.value.fields)  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="policy is not valid"):
        policy_text.read(text_of(rule(require={"owners": False})))


# ── approvals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def required(world: World, speech: Team) -> PolicyVersion:
    own(world.pool, speech)
    return activate(world, OWNERS)


def test_without_an_approver_of_the_team_it_is_not_approved_and_not_started(
    world: World, speech: Team, required: PolicyVersion
) -> None:
    plan = requested(world)
    for by in (world.approver, world.second, UserFactory(is_superuser=True), UserFactory(roles=["admin", "approver"])):
        plan = approve(plan, by)
    assert plan.status == Plan.Status.REVIEW
    assert not startable(plan)
    missing = verdicts.approval_state(plan).wanted
    assert [need.rule.demand for need in missing] == ["an approver with a role in the team Speech"]
    plan = approve(plan, of(speech, "approver"))
    assert plan.status == Plan.Status.APPROVED
    assert startable(plan)
    assert rollout_actions.start(plan, by=world.operator)


def test_each_owner_is_needed_and_one_person_may_be_of_both(
    make_world: Any, clock: Any, speech: Team, vision: Team
) -> None:
    world = make_world()
    own(world.pool, speech)
    plan = world.plan()
    own(Profile.objects.get(name="gpu"), vision)
    activate(world, OWNERS)
    first, both = of(speech, "approver"), of(speech, "approver", f"viewer@team:{vision.pk}")
    plan = approve(requested(world, plan), first)
    assert plan.status == Plan.Status.REVIEW
    assert not startable(plan)
    assert approve(plan, both).status == Plan.Status.APPROVED
    assert startable(plan)


def test_no_way_makes_an_author_their_own_owner(world: World, speech: Team, required: PolicyVersion) -> None:
    """Neither who made the plan, nor who asked for it, nor who wrote the revision or the selector, for any team."""
    for by in (world.operator, world.author):
        for role, scope in (("viewer", f"team:{speech.pk}"), ("approver", "*")):
            RoleBinding.objects.create(user=by, role=role, scope=scope)
    plan = requested(world)
    for by in (world.operator, world.author):
        with pytest.raises(NotAllowed):
            approve(plan, User.objects.get(pk=by.pk))


def test_a_role_in_the_team_makes_nobody_an_approver(world: World, speech: Team, required: PolicyVersion) -> None:
    plan = requested(world)
    for roles in ((), ("viewer",), ("operator",), ("approver@env:production",)):
        with pytest.raises(NotAllowed):
            approve(plan, of(speech, *roles))


def test_a_service_account_of_the_team_never_counts(world: World, speech: Team, required: PolicyVersion) -> None:
    robot = of(speech, "approver")
    User.objects.filter(pk=robot.pk).update(is_service=True)
    with pytest.raises(NotAllowed):
        approve(requested(world), User.objects.get(pk=robot.pk))


@pytest.mark.parametrize("how", ["given later", "taken back", "forged", "another team"])
def test_a_role_in_the_team_counts_as_other_roles_do(
    world: World, clock: Any, speech: Team, vision: Team, required: PolicyVersion, how: str
) -> None:
    person = of(vision if how == "another team" else speech, "approver")
    mine = RoleBinding.objects.filter(user=person, role="viewer")
    if how == "given later":
        mine.delete()
    plan = requested(world)
    clock.forward(60)
    if how == "given later":
        RoleBinding.objects.create(user=person, role="viewer", scope=f"team:{speech.pk}")
    elif how == "forged":
        mine.update(mac="x")
    plan = approve(plan, User.objects.get(pk=person.pk))
    if how == "taken back":
        assert plan.status == Plan.Status.APPROVED
        mine.delete()
    assert not startable(plan)
    with pytest.raises(WrongState):
        rollout_actions.start(Plan.objects.get(pk=plan.pk), by=world.operator)


def test_a_pool_that_is_given_to_a_team_after_the_approval_waits_for_it(world: World, speech: Team) -> None:
    activate(world, OWNERS)
    member = of(speech, "approver")
    plan = approve(requested(world), world.approver)
    assert plan.status == Plan.Status.APPROVED
    assert startable(plan)
    own(world.pool, speech)
    reason = plan_actions.reasons_of_state(Plan.objects.get(pk=plan.pk))["start"]
    assert "owners were changed" in reason
    approve(plan, member)
    assert startable(plan)


def test_an_administrator_who_frees_a_pool_frees_no_plan_of_it(
    world: World, speech: Team, required: PolicyVersion
) -> None:
    plan = requested(world)
    pools.update_pool(world.pool, by=world.admin, owner=None)
    plan = approve(plan, world.approver)
    assert plan.status == Plan.Status.REVIEW
    assert names(plan) == ["Speech"]
    teams.remove(speech, by=world.admin)
    member = UserFactory(roles=["approver", f"viewer@team:{speech.pk}"])
    plan = approve(plan, member)
    assert not startable(plan), "the team is gone, and nobody can approve for it"
    assert not names(world.plan()), "a new plan is nobody's"


def test_break_glass_passes_it_as_it_passes_other_approvals(
    world: World, speech: Team, required: PolicyVersion, settings: Any
) -> None:
    settings.SETPOINT_BREAK_GLASS_CLASS = "drain"
    by, plan = UserFactory(roles=["operator", "break-glass"]), requested(world)
    rollout = glass_start.start(
        plan, by=by, digest=plan.digest, reason="It burns.", confirmation=str(plan), proved_at=now()
    )
    assert rollout.plan == plan


# ── shown ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_page_and_rest_say_whose_it_is_and_who_of_them_approved(
    world: World, speech: Team, required: PolicyVersion
) -> None:
    plan, member = requested(world), of(speech, "approver")
    page = browser(world.approver).get(f"/plans/P-{plan.number}/").content.decode()
    assert "Owner: team Speech" in page
    assert "has approved it yet" in page
    here = f"/api/v1/plans/{plan.pk}"
    shown = TokenClient(world.approver).get(here).json()
    assert shown["owners"] == [{"name": "Speech", "is_gone": False, "is_required": True, "approved_by": []}]
    scopes = [need["of_scope"] for need in shown["approval"]["rules"]]
    assert f"team:{speech.pk}" in scopes
    approve(plan, world.approver)
    assert TokenClient(world.approver).get(here).json()["owners"][0]["approved_by"] == []
    approve(plan, member)
    assert TokenClient(world.approver).get(here).json()["owners"][0]["approved_by"] == [str(member)]


def test_who_of_the_team_approved_is_named(world: World, speech: Team) -> None:
    own(world.pool, speech)
    member = of(speech, "approver")
    plan = approve(requested(world), member)
    review = owner_reviews.reviews_of(plan, verdicts.approval_state(plan))[0]
    assert (review.is_required, review.approved_by) == (False, (member,))
    page = browser(world.approver).get(f"/plans/P-{plan.number}/").content.decode()
    assert f"Approved by {member} of the team" in page


def test_many_plans_are_asked_in_as_many_queries(
    world: World, speech: Team, vision: Team, django_assert_num_queries: Any
) -> None:
    own(world.pool, speech)
    own(Pool.objects.create(cluster=world.cluster, name="beside", selector={"matchLabels": {"pool": "train"}}), vision)
    plans = [world.plan() for _ in range(6)]

    def count(number: int) -> list[list[str]]:
        rows = list(
            Plan.objects.filter(pk__in=[plan.pk for plan in plans[:number]]).select_related("pool", "revision__profile")
        )
        with django_assert_num_queries(5):
            answers = owners.owners_of(rows)
        return [[owner.name for owner in rows] for rows in answers.values()]

    assert count(1) == [["Speech", "Vision"]]
    assert count(6) == [["Speech", "Vision"]] * 6
