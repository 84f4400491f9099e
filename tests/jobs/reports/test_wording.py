"""Sentences of plans and rollouts that pages show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from common.clock import now
from jobs.approvals import reviews
from jobs.approvals.rules import RuleNeed, RuleRequirement
from jobs.forecast.strategy import Strategy
from jobs.models import Approval, ApprovalRule, Plan, Step
from jobs.reports import wording
from tests.jobs.conftest import World

SUMMARY = {"nodes": 3, "pool_nodes": 8, "budget": 2, "seconds": 1500, "values": 3}


def planned(strategy: dict[str, Any] | None = None, **summary: Any) -> Any:
    cluster = SimpleNamespace(environment="production")
    return SimpleNamespace(summary=SUMMARY | summary, strategy=strategy or {}, cluster=cluster)


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        ({"reboots": 3, "drains": 5}, "Reboots 3 of 8 production nodes, 2 at a time. Takes about 25 min."),
        ({"drains": 3, "restarts": 5}, "Drains 3 of 8 production nodes, 2 at a time. Takes about 25 min."),
        ({"restarts": 1200}, "Restarts the kubelet on 1,200 of 8 production nodes, 2 at a time. Takes about 25 min."),
        (
            {"pool_nodes": 1},
            "Changes 3 of 1 production node while they work; no node leaves service. Takes about 25 min.",
        ),
        (
            {"components": 1, "policies": 2, "takes": 1, "nodes_hit": 4, "gpu_jobs": 1},
            (
                "Changes 3 of 8 production nodes while they work, and installs or changes 1 component, and makes or "
                "changes 2 policy objects, and takes 1 field back, reverting changes to it by others, which disturb "
                "4 nodes, and interrupts 1 GPU job. Takes about 25 min."
            ),
        ),
        (
            {"components": 3, "removals": 2, "nodes_hit": 1},
            (
                "Changes 3 of 8 production nodes while they work, and installs or changes 1 component, and removes 2 "
                "components, which disturb 1 node. Takes about 25 min."
            ),
        ),
        (
            {
                "components": 1,
                "component": {"name": "cilium", "action": "adopt", "version": "1.20.0", "from": "1.19.6"},
            },
            (
                "Changes 3 of 8 production nodes while they work; no node leaves service, and takes cilium from 1.19.6 "
                "to 1.20.0. Takes about 25 min."
            ),
        ),
        (
            {"components": 1, "removals": 1, "nodes_hit": 1},
            (
                "Changes 3 of 8 production nodes while they work, and removes 1 component, which disturbs 1 node. "
                "Takes about 25 min."
            ),
        ),
        (
            {"takes": 2},
            (
                "Changes 3 of 8 production nodes while they work; no node leaves service, and takes 2 fields back, "
                "reverting changes to them by others. Takes about 25 min."
            ),
        ),
    ],
)
def test_what_a_plan_does_is_one_sentence(summary: dict[str, Any], sentence: str) -> None:
    assert wording.in_one_sentence(planned(**summary)) == sentence


@pytest.mark.parametrize(
    ("action", "phrase"),
    [
        ("install", "installs kueue 1.0"),
        ("remove", "removes kueue 1.0"),
        ("upgrade", "changes kueue"),
        ("none", "waits until kueue is ready"),
    ],
)
def test_the_only_component_of_a_plan_is_named(action: str, phrase: str) -> None:
    component = {"name": "kueue", "action": action, "version": "1.0", "from": ""}
    assert f", and {phrase}. Takes" in wording.in_one_sentence(planned(components=1, component=component))


def test_a_control_group_and_nodes_that_follow_are_said_after_it() -> None:
    sentence = wording.in_one_sentence(planned({"measure_hours": 4, "include_joining": True}, control=2))
    assert sentence.endswith(
        "25 min. 2 of the nodes, chosen at random, wait until 4 h of the others' effect are measured. "
        "Nodes new to the cluster that join while it runs follow, live changes only."
    )


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        ({"values": 1}, "1 value"),
        ({"left_out": 1, "compliant": 3}, "3 values, 1 node left out, 3 already compliant"),
        ({"watched": 2}, "3 values, 2 already compliant, only drift repair changes"),
        ({"nodes_hit": 1200, "nodes_hit_at_once": 5}, "3 values; components disturb 1,200, 5 at once"),
    ],
)
def test_values_that_change_stand_beside_nodes_that_do_not(summary: dict[str, Any], sentence: str) -> None:
    assert wording.values_changed(SUMMARY | summary) == sentence


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        ({"restarts": 1, "drains": 2}, "1 kubelet restart besides"),
        ({"drains": 2, "operators_drain": 2}, "2 nodes drained"),
        ({"operators_drain": 1}, "1 drained by its operator"),
        ({"operators_drain": 2}, "2 drained by their operator"),
        ({}, "no node is drained"),
    ],
)
def test_beside_reboots_the_most_disruptive_is_named(summary: dict[str, Any], sentence: str) -> None:
    assert wording.beside_reboots(summary) == sentence


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("stop", "nothing new starts until an operator decides"),
        ("revert-node", "the failed node is reverted"),
        ("revert-all", "every node of this rollout is reverted"),
    ],
)
def test_what_follows_a_failure_is_the_strategys_choice(choice: str, sentence: str) -> None:
    assert wording.after_a_failure(Strategy(on_failure=choice)) == sentence


def test_a_plan_comes_from_who_asked_for_it_else_from_who_made_it(world: World) -> None:
    plan = world.plan()
    assert wording.origin(plan) == (f"made by {world.operator}", plan.created_at)

    plan.summary = plan.summary | {"drafted": True}
    assert wording.origin(plan).words == "drafted by Setpoint"

    plan = reviews.request(plan, by=world.author)
    assert wording.origin(plan) == (f"asked by {world.author}", plan.requested_at)


def test_a_verdict_on_another_plan_or_request_or_of_another_party_is_not_counted(world: World) -> None:
    plan = world.approved()
    verdict = Approval.objects.get()
    assert wording.why_not_counted(verdict, plan) == ""

    plan.digest = "sha256:0"
    assert wording.why_not_counted(verdict, plan) == "on an earlier plan"

    plan.refresh_from_db()
    plan.round += 1
    assert wording.why_not_counted(verdict, plan) == "for an earlier request"

    plan.round -= 1
    verdict.verdict = "reject"
    assert wording.why_not_counted(verdict, plan).startswith("not counted: given before an upgrade")


@pytest.mark.parametrize(
    ("scope", "phrase"),
    [("", "approver"), ("*", "approver for all clusters"), ("env:production", "approver in env:production")],
)
def test_a_rule_names_a_role_and_where_it_is_held(scope: str, phrase: str) -> None:
    need = RuleNeed(RuleRequirement("large", 3, of_count=1, of_role="approver", of_scope=scope), approved=1, held=0)
    assert wording.still_missing(need) == f"2 more, 1 of them {phrase}"


def test_a_rule_without_a_role_asks_for_a_number() -> None:
    assert wording.still_missing(RuleNeed(RuleRequirement("any", 2), approved=1, held=0)) == "1 more"


def test_a_missing_approval_is_for_whoever_may_give_it() -> None:
    need = RuleNeed(RuleRequirement("large", 2, of_count=1, of_role="admin", of_scope="*"), approved=0, held=0)
    draft, in_review = Plan(status=Plan.Status.DRAFT), Plan(status=Plan.Status.REVIEW)

    assert wording.from_whom(draft, True, ()) == "no reviewers requested"
    assert wording.from_whom(in_review, True, ()) == "you can give it"
    assert wording.from_whom(in_review, False, [need]) == "from another person; among them 1 admin for all clusters"


def test_an_approval_says_what_follows_from_it() -> None:
    in_review, approved = Plan(status=Plan.Status.REVIEW), Plan(status=Plan.Status.APPROVED)

    def consequence(plan: Plan, missing: int, has_approved: bool = False) -> str:
        return wording.approval_means(plan, SimpleNamespace(missing=missing), has_approved)  # type: ignore[arg-type]

    assert consequence(in_review, 2, True) == "Again, counted with the roles that you hold now."
    assert consequence(in_review, 2) == "One of 2 missing approvals."
    assert consequence(approved, 0) == "Already approved; yours is added."
    assert consequence(in_review, 1).startswith("Final approval.")


@pytest.mark.parametrize(
    ("failures", "allowed", "sentence"),
    [
        (0, 0, "The first stops new starts"),
        (2, 2, "One more stops new starts"),
        (3, 2, "No new node starts"),
        (1, 2, "New starts stop at 3"),
    ],
)
def test_a_rollout_says_how_near_it_is_to_its_stop(failures: int, allowed: int, sentence: str) -> None:
    assert wording.stops_at(failures, allowed) == sentence


def test_a_rule_says_what_follows_when_it_rests_and_when_it_holds_again() -> None:
    assert wording.resting(ApprovalRule(), "Only an admin may.") == "Only an admin may."
    assert wording.resting(ApprovalRule(), "").startswith("It keeps its name and its history")
    assert wording.resting(ApprovalRule(is_enabled=False), "").startswith("It is disabled")


def test_a_step_without_output_says_how_far_it_is(clock: Any) -> None:
    helm, objects = Step(kind=Step.Kind.COMPONENT), Step(kind=Step.Kind.POLICIES)
    assert wording.why_no_output(helm) == "helm has not started for this component."
    assert wording.why_no_output(objects) == "Nothing is applied yet."
    helm.granted_at = now()
    assert wording.why_no_output(helm) == "Nothing yet."
