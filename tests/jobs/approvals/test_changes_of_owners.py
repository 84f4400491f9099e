"""Laws of changed owners: plans that wait are judged once more, at once; what many teams own costs no more queries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from audit.models import Record
from clusters.models import Pool
from clusters.services import pools
from common.clock import now
from gpus.models import Team
from jobs.models import Plan, PlanNode
from jobs.planning import digests, new_nodes
from jobs.reports import policy_trial
from jobs.rollouts import rollout_actions
from profiles.models import Profile
from profiles.services import editing
from tests.factories import TokenClient, UserFactory
from tests.jobs.approvals.test_owners import (
    OWNERS,
    approve,
    of,
    own,
    requested,
)
from tests.jobs.conftest import World
from tests.jobs.joining import running
from tests.jobs.pages import browser
from tests.jobs.policy.test_policy_of_plans import activate, rule, text_of

# ── judged once more ──────────────────────────────────────────────────────────────────────────────────────────────────


def _give(world: World, what: str) -> User:
    by = UserFactory(roles=["admin", "operator"])
    if what == "pool":
        pools.update_pool(world.pool, by=by, owner="Speech")
    elif what == "profile":
        profile = Profile.objects.get(name="gpu")
        editing.set_owner(profile, owner="Speech", by=by, version=profile.version)
    elif what == "new pool":
        pools.create_pool(world.cluster, by=by, name="beside", selector="pool=train", owner="Speech")
    else:
        pools.update_pool(Pool.objects.get(name="elsewhere"), by=by, selector="pool=train")
    return by


@pytest.mark.parametrize("what", ["pool", "profile", "new pool", "selector"])
def test_an_approved_plan_whose_owner_changes_is_for_review_again(world: World, speech: Team, what: str) -> None:
    own(Pool.objects.create(cluster=world.cluster, name="elsewhere", selector={"matchLabels": {"pool": "x"}}), speech)
    activate(world, OWNERS)
    plan = approve(requested(world), world.approver)
    assert plan.status == Plan.Status.APPROVED
    by = _give(world, what)
    assert Plan.objects.get(pk=plan.pk).status == Plan.Status.REVIEW
    kept = Record.objects.get(action="plan.rejudge")
    assert (kept.actor, kept.message) == (str(by), "The owners of what it touches were changed.")
    member = of(speech, "approver")
    assert f"P-{plan.number}" in browser(member).get("/plans/?status=review").content.decode()
    assert approve(plan, member).status == Plan.Status.APPROVED


def test_without_such_a_policy_it_stays_approved(world: World, speech: Team) -> None:
    plan = approve(requested(world), world.approver)
    _give(world, "pool")
    assert Plan.objects.get(pk=plan.pk).status == Plan.Status.APPROVED


# ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _costs(world: World, plan: Plan) -> dict[str, int]:
    """Return the queries of each answer, after a first that fills what is kept between requests."""
    token, pages = TokenClient(world.approver), browser(world.approver)
    answers: dict[str, Any] = {
        "plan": lambda: token.get(f"/api/v1/plans/{plan.pk}"),
        "list": lambda: token.get("/api/v1/plans"),
        "page": lambda: pages.get(f"/plans/P-{plan.number}/"),
    }
    costs = {}
    for name, answer in answers.items():
        answer()
        with CaptureQueriesContext(connection) as queries:
            assert answer().status_code == 200
        costs[name] = len(queries)
    return costs


def test_owned_pools_and_plans_cost_no_more_queries(world: World, speech: Team, vision: Team) -> None:
    own(world.pool, speech)
    member = of(speech, "approver")
    activate(world, rule("plan.nodes > 0", require={"approvers": 1}))
    plans = [approve(requested(world), member)]
    plain = _costs(world, plans[0])
    owned = activate(world, OWNERS)
    first = _costs(world, plans[0])
    for number in range(40):
        selector = {"matchLabels": {"pool": f"x{number}"}}
        own(Pool.objects.create(cluster=world.cluster, name=f"o{number}", selector=selector), vision)
    assert _costs(world, plans[0]) == first, "41 owned pools"
    plans += [approve(requested(world), member) for _ in range(3)]
    fourth = _costs(world, plans[0])
    assert (fourth["plan"], fourth["page"]) == (first["plan"], first["page"])
    assert max(first[name] - plain[name] for name in first) <= 8
    activate(world, rule("plan.nodes > 0", require={"approvers": 1}))
    assert fourth["list"] - _costs(world, plans[0])["list"] == first["list"] - plain["list"], "owners: once for a list"
    assert owned.number


# ── a plan that was started ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_scheduled_start_whose_pool_gets_an_owner_names_who_is_missing(world: World, speech: Team) -> None:
    activate(world, OWNERS)
    plan = approve(requested(world), world.approver)
    rollout = rollout_actions.start(plan, by=world.operator, at=now() + timedelta(minutes=10))
    own(world.pool, speech)
    world.tick(700)
    world.slice(rollout)
    rollout.refresh_from_db()
    assert rollout.status == "queued"
    assert "no approver of Speech has approved it" in rollout.waiting_for
    assert "Abort it and plan again" in rollout.waiting_for


@pytest.mark.parametrize("whose", ["another team", "the plan's team", "no team"])
def test_a_node_that_joins_from_a_pool_of_a_team_that_was_not_asked_stays_pending(
    world: World,
    speech: Team,
    vision: Team,
    whose: str,
) -> None:
    beside = Pool.objects.create(cluster=world.cluster, name="beside", selector={"matchLabels": {"other": "x"}})
    team = {"another team": vision, "the plan's team": speech, "no team": None}[whose]
    own(world.pool, speech)
    own(beside, team)
    rollout = running(world)
    world.sim.add_node("n5", gpus=8, labels={"pool": "train", "other": "x"})
    world.tick(5)
    world.observe()
    world.run(rollout)
    assert rollout.status == "succeeded"
    assert rollout.steps.filter(node_name="n5").exists() == (whose != "another team")
    if whose == "another team":
        left = PlanNode.objects.get(plan=rollout.plan, name="n5").left_out
        assert "is in a pool of Vision, which is not an owner of this plan" in left
        world.tick(60)
        (draft,) = new_nodes.draft()
        assert list(draft.nodes.values_list("name", flat=True)) == ["n5"]
        assert sorted(draft.owners.values()) == ["Speech", "Vision"]


# ── altered in the table ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("forged", [{"x": "Nothing"}, {"9" * 5000: "Nothing"}, ["Speech"], "Speech", 7, "name"])
def test_owners_that_were_altered_in_the_table_are_reported_and_break_nothing(
    world: World,
    speech: Team,
    forged: Any,
) -> None:
    own(world.pool, speech)
    plan = requested(world)
    forged = {str(speech.pk): "Nothing at all"} if forged == "name" else forged
    Plan.objects.filter(pk=plan.pk).update(owners=forged)
    assert not digests.is_as_approved(Plan.objects.get(pk=plan.pk))
    page = browser(world.approver).get(f"/plans/P-{plan.number}/")
    assert page.status_code == 200
    shown = TokenClient(world.approver).get(f"/api/v1/plans/{plan.pk}").json()
    assert "its digest differs" in shown["why_not"]["approve"]


def test_the_trial_of_a_policy_counts_owners_as_one_approver(world: World, speech: Team) -> None:
    own(world.pool, speech)
    plan = requested(world)
    (stopped,) = policy_trial.try_policy(text_of(OWNERS), world.admin).stopped
    assert (stopped.plan, stopped.why, stopped.is_refused) == (plan, "1 approver required, 0 approved", False)
    approve(plan, world.approver)
    assert not policy_trial.try_policy(text_of(OWNERS), world.admin).stopped, "of which team is not judged"
    own(world.pool, None)
