"""Verbs over REST: each needs its token scope, and works exactly when it is offered (law 10)."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from jobs.approvals import reviews
from jobs.models import Plan, Rollout, Step
from jobs.rollouts import possible_actions, rollout_actions
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World, person
from tests.jobs.rest import API, act, api, plan_at, problem

# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def everybody(world: World) -> User:
    """One person with every role and no part in the plans of others."""
    return UserFactory(roles=["operator", "approver", "admin"])


@pytest.mark.parametrize(
    ("verb", "body", "scope"),
    [
        ("request", {}, "plan"),
        ("withdraw", {}, "plan"),
        ("approve", {"digest": "x"}, "approve"),
        ("reject", {"digest": "x", "comment": "no"}, "approve"),
        ("retract", {}, "approve"),
        ("start", {}, "apply"),
    ],
)
def test_each_verb_of_a_plan_needs_its_token_scope(world, everybody, verb, body, scope):
    where = f"{API}/plans/{world.plan().pk}"
    others = [s for s in ("read", "plan", "apply", "approve", "admin") if s != scope]
    refused = act(api(everybody, *others), where, verb, **body)
    assert scope in problem(refused, 403)["detail"]
    assert act(api(everybody, scope), where, verb, **body).status_code in (202, 403, 409)
    assert f"no scope {scope}" not in act(api(everybody, scope), where, verb, **body).content.decode()


@pytest.mark.parametrize("verb", list(possible_actions.POSSIBLE))
def test_every_verb_of_a_rollout_needs_apply(world, everybody, verb):
    where = f"{API}/rollouts/{world.started().pk}"
    for scopes in (["read"], ["plan"], ["approve"], ["admin"]):
        assert "apply" in problem(act(api(everybody, *scopes), where, verb), 403)["detail"]


def test_a_token_without_approve_says_in_the_object_that_it_may_not(world, everybody):
    plan = reviews.request(world.plan(), by=world.operator)
    where = f"{API}/plans/{plan.pk}"
    seen = {
        scope: {verb for verb, may in api(everybody, scope).get(where).json()["permissions"].items() if may}
        for scope in ("read", "plan", "apply", "approve")
    }
    assert seen["read"] == set()
    assert seen["plan"] == {"request"}, "withdrawing another party's needs the scope admin as well"
    assert seen["apply"] == {"start"}
    assert seen["approve"] >= {"approve", "reject"}
    assert "start" not in seen["approve"]


def test_a_service_token_plans_and_starts_and_never_approves(world):
    machine = UserFactory(is_service=True, roles=["operator", "approver"])
    client = api(machine, "read", "plan", "apply")
    where = plan_at(client, world)["Location"]
    digest = client.get(where).json()["digest"]
    assert act(client, where, "request").status_code == 202
    problem(act(client, where, "approve", digest=digest), 403)
    assert act(api(world.approver), where, "approve", digest=digest).status_code == 202
    assert act(client, where, "start").status_code == 202


# ── what is offered is what works (law 10) ────────────────────────────────────────────────────────────────────────────


def _plan_in(world: World, status: str) -> Plan:
    plan = world.plan(world.revision({"vm.swappiness": "11"}))
    if status in ("review", "approved", "started"):
        reviews.request(plan, by=world.operator)
    if status in ("approved", "started"):
        plan = reviews.approve(plan, by=world.approver, digest=plan.digest)
    if status == "started":
        rollout_actions.start(plan, by=world.operator)
    if status in ("rejected", "withdrawn", "expired"):
        Plan.objects.filter(pk=plan.pk).update(status=status)
    if status == "late":
        world.clock.forward(hours=73)
        world.look()
    return plan


@pytest.mark.parametrize(
    "status", ["draft", "review", "approved", "started", "rejected", "withdrawn", "expired", "late"]
)
def test_a_verb_of_a_plan_works_exactly_when_it_is_offered_and_permitted(world, status):
    plan = _plan_in(world, status)
    refusal = {"digest": plan.digest, "comment": "no"}
    bodies = {"approve": {"digest": plan.digest}, "reject": refusal, "request-changes": refusal}
    for who in ("operator", "approver", "second", "admin", "author"):
        client, where = api(getattr(world, who)), f"{API}/plans/{plan.pk}"
        seen = client.get(where).json()
        for verb, is_offered in seen["actions"].items():
            answer = _try(client, where, verb, bodies.get(verb, {}))
            is_meant_to_work = is_offered and seen["permissions"][verb]
            assert (answer == 202) is is_meant_to_work, (who, verb, answer)
            if not is_meant_to_work:
                assert answer == (409 if seen["permissions"][verb] else 403), (who, verb)


def _try(client: TokenClient, where: str, verb: str, body: dict[str, Any]) -> int:
    """Return what the verb would answer; nothing stays of it."""
    from django.db import transaction

    with transaction.atomic():
        status = act(client, where, verb, **body).status_code
        transaction.set_rollback(True)
    return int(status)


@pytest.mark.parametrize("status", Rollout.Status.values)
def test_a_verb_of_a_rollout_works_exactly_when_it_is_offered(world, status):
    rollout = world.started()
    Rollout.objects.filter(pk=rollout.pk).update(
        status=status, started_at=None if status == "queued" else world.clock()
    )
    step = rollout.steps.first()
    where = f"{API}/rollouts/{rollout.pk}"
    operator, viewer = api(world.operator), api(person("viewer"))
    for steps in ("queued", "held", "failed", "succeeded", "verifying"):
        has_applied = steps in ("failed", "succeeded")
        Step.objects.update(status=steps, has_applied=has_applied, is_live=steps not in Step.RESTING)
        seen = operator.get(where).json()

        assert set(seen["actions"]) == set(seen["reasons"]) == set(possible_actions.POSSIBLE)
        assert not any(viewer.get(where).json()["permissions"].values())
        for verb, is_offered in seen["actions"].items():
            answer = _try(operator, where, verb, {"step": str(step.pk)} if verb == "skip" else {})
            assert answer == (202 if is_offered else 409), (steps, verb, answer, seen["reasons"][verb])
        assert _try(viewer, where, "pause", {}) == 403
