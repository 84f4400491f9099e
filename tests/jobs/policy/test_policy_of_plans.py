"""Laws of the approval policy over plans: it only adds, fails closed, and takes two administrators."""

from __future__ import annotations

import json
from datetime import UTC, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import PendingChange, User
from accounts.people import pending
from audit.models import Record
from common.clock import now
from common.errors import NotAllowed, WrongState
from jobs.approvals import policybook, reviews, rules, step_up, verdicts
from jobs.approvals.step_up import FreshLoginNeeded
from jobs.engine import reconcile
from jobs.models import Approval, Plan, PolicyVersion, Rollout
from jobs.policy import judgement, plan_facts, policy_text
from jobs.rollouts import glass_start, rollout_actions
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World
from tests.jobs.pages import browser

BROKEN = "1 / (plan.nodes - plan.nodes) > 0"


def text_of(*rules: dict[str, Any], zone: str = "UTC") -> str:
    return json.dumps({"facts": 1, "zone": zone, "rules": list(rules)})


def rule(when: str = "true", **effect: Any) -> dict[str, Any]:
    return {"name": "the rule", "when": when, **(effect or {"refuse": "Not like this."})}


def activate(world: World, *rules: dict[str, Any]) -> PolicyVersion:
    row, _ = policybook.propose(by=world.admin, text=text_of(*rules), message="Why not")
    return policybook.activate(row, by=UserFactory(roles=["admin"]))


@pytest.fixture
def plan(world: World) -> Plan:
    return reviews.request(world.plan(), by=world.operator)


def approve(world: World, plan: Plan, by: User | None = None) -> Plan:
    return reviews.approve(plan, by=by or world.approver, digest=plan.digest)


# ── break-glass ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_break_glass_passes_approvals_that_a_policy_requires_and_no_refusal(
    world: World, plan: Plan, settings: Any
) -> None:
    settings.SETPOINT_BREAK_GLASS_CLASS = "drain"
    by = UserFactory(roles=["operator", "break-glass"])

    def broken() -> Rollout:
        return glass_start.start(
            plan, by=by, digest=plan.digest, reason="It burns.", confirmation=str(plan), proved_at=now()
        )

    activate(
        world, rule(require={"approvers": 3}), rule("judged.hour >= 0", refuse="Not at any hour.") | {"name": "hours"}
    )
    with pytest.raises(WrongState, match=r"Not at any hour\."):
        broken()
    activate(world, rule(require={"approvers": 3}))
    assert broken().plan == plan


# ── it only adds ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "effect",
    [
        {"when": "false", "refuse": "Never."},
        {"when": "true", "require": {"approvers": 1}},
        {"when": "true", "require": {"approvers": 3, "of_count": 1, "of_role": "admin"}},
        {"when": BROKEN, "require": {"approvers": 1}},
    ],
)
def test_no_policy_makes_a_plan_need_less(world: World, plan: Plan, effect: dict[str, Any]) -> None:
    before = {need.name: need for need in rules.requirements_for(plan)}
    activate(world, {"name": "more", **effect})
    after = {need.name: need for need in rules.requirements_for(plan)}
    assert before.items() <= after.items()
    assert max(need.approvers for need in after.values()) >= max(need.approvers for need in before.values())
    with pytest.raises(WrongState):
        rollout_actions.start(plan, by=world.operator)  # still nothing without an approval


def test_what_it_requires_is_required_of_approvals_and_shown(world: World, plan: Plan) -> None:
    row = activate(world, rule("plan.nodes >= 1", require={"approvers": 2}))
    assert approve(world, plan).status == Plan.Status.REVIEW
    answer = TokenClient(world.operator).get(f"/api/v1/plans/{plan.pk}").json()
    assert (answer["approval"]["needed"], answer["approval"]["missing"]) == (2, 1)
    assert any(need["name"] == f"the rule (policy v{row.number})" for need in answer["approval"]["rules"])
    plan.refresh_from_db()
    assert approve(world, plan, world.second).status == Plan.Status.APPROVED
    assert set(Approval.objects.values_list("policy", flat=True)) == {row.number}
    rollout_actions.start(plan, by=world.operator)
    assert Record.objects.get(action="rollout.start").after["policy"] == row.number


def test_a_recent_log_in_is_required_where_a_rule_requires_it(world: World, plan: Plan, settings) -> None:
    settings.SETPOINT_STEP_UP = ""
    assert not step_up.is_too_old(plan, None)
    activate(world, rule("plan.nodes >= 1", require={"fresh_login": True}))
    with pytest.raises(FreshLoginNeeded):
        approve(world, plan)
    reviews.approve(plan, by=world.approver, digest=plan.digest, proved_at=world.clock())


# ── it refuses, and fails closed ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("when", ["plan.nodes >= 1", BROKEN, "plan.gpu_jobs > 10000 / plan.formatted_disks"])
def test_what_it_refuses_is_neither_approved_nor_started(world: World, plan: Plan, when: str) -> None:
    plan = approve(world, plan)
    row = activate(world, rule(when))
    for act in (lambda: approve(world, plan, world.second), lambda: rollout_actions.start(plan, by=world.operator)):
        with pytest.raises(WrongState, match=f"policy refuses it .v{row.number}, rule “the rule”"):
            act()
    answer = TokenClient(world.operator).get(f"/api/v1/plans/{plan.pk}").json()
    assert "the rule" in answer["why_not"]["start"]
    assert [refusal["rule"] for refusal in answer["policy"]["refusals"]] == ["the rule"]
    page = browser(world.operator).get(f"/plans/P-{plan.number}/").content.decode()
    assert f"policy v{row.number}" in page

    activate(world, {"name": "other", "when": "plan.nodes > 999", "refuse": "Too many."})
    assert rollout_actions.start(plan, by=world.operator)


def test_a_fact_that_a_stored_plan_lacks_refuses(world: World, plan: Plan) -> None:
    activate(world, rule("plan.gpu_jobs > 3"))
    assert not judgement.refusal_reason(plan, at_start=True)
    plan.summary.pop("gpu_jobs")
    assert "gpu_jobs" in judgement.refusal_reason(plan, at_start=True)
    plan.is_uncounted = True
    facts = plan_facts.facts_of_plans([plan])[plan.pk]
    assert "risk" not in facts


def test_an_author_whose_account_is_gone_is_unknown_and_not_absent(world: World, plan: Plan) -> None:
    activate(world, rule(f'!("{world.author.email}" in plan.authors)', refuse="Only the author's work."))
    assert not judgement.refusal_reason(plan, at_start=True)
    plan.authorship = {**plan.authorship, "999999": "they wrote it"}
    assert "unknown" in judgement.refusal_reason(plan, at_start=True)


@pytest.mark.parametrize(
    "changes",
    [{"text": text_of()}, {"is_active": False}, {"number": 999}, {"activated_by": None, "proposed_by_id": "other"}],
)
def test_a_version_that_was_changed_in_the_table_refuses_everything(world: World, plan: Plan, changes: Any) -> None:
    plan = approve(world, plan)
    row = activate(world, rule("false"))
    assert not judgement.refusal_reason(plan, at_start=True)
    if "proposed_by_id" in changes:
        changes = changes | {"proposed_by_id": world.second.pk}
    PolicyVersion.objects.filter(pk=row.pk).update(**changes)
    assert "changed outside Setpoint" in judgement.refusal_reason(plan, at_start=True)
    with pytest.raises(WrongState):
        rollout_actions.start(plan, by=world.operator)


def test_a_rule_about_the_hour_refuses_the_start_in_its_zone_and_not_the_approval(world: World, plan: Plan) -> None:
    hour = world.clock().astimezone(UTC).hour
    row, _ = policybook.propose(
        by=world.admin, text=text_of(rule(f"judged.hour == {(hour + 9) % 24}"), zone="Asia/Tokyo"), message="Tokyo"
    )
    policybook.activate(row, by=UserFactory(roles=["admin"]))
    plan = approve(world, plan)
    with pytest.raises(WrongState, match="the rule"):
        rollout_actions.start(plan, by=world.operator)
    world.clock.forward(3600)
    assert rollout_actions.start(plan, by=world.operator)


def test_a_scheduled_start_is_judged_again_when_its_time_comes(world: World, plan: Plan) -> None:
    plan = approve(world, plan)
    rollout = rollout_actions.start(plan, by=world.operator, at=world.clock() + timedelta(minutes=10))
    activate(world, rule("plan.nodes >= 1"))
    world.clock.forward(601)
    world.look()
    reconcile.advance(rollout.pk)
    rollout.refresh_from_db()
    assert rollout.status == Rollout.Status.QUEUED
    assert "the rule" in rollout.waiting_for


def test_text_that_an_attacker_chose_is_data_and_never_part_of_a_condition(world: World, plan: Plan) -> None:
    hostile = '"] || true || plan.pool in ["<script>alert(1)</script>'
    plan.pool.name = hostile
    plan.summary["namespaces"] = [{"namespace": hostile}]
    policy = policy_text.read(text_of(rule('plan.pool == "train" || "train" in plan.namespaces')))
    facts = plan_facts.facts_of_plans([plan])[plan.pk]
    assert facts["namespaces"] == [hostile]
    assert judgement.judge(policy, 1, facts, world.clock()).refusals == ()


# ── two administrators ────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_person_activates_and_never_the_proposer_a_service_or_a_former_administrator(world: World) -> None:
    row, change = policybook.propose(by=world.admin, text=text_of(rule()), message="Stop")
    other = UserFactory(roles=["admin"])
    path = f"/api/v1/policy-versions/{row.number}/actions/activate"
    assert TokenClient(world.admin).post(path).status_code == 403
    assert TokenClient(UserFactory(roles=["admin"], is_service=True)).post(path).status_code == 403
    for who in (world.operator, world.approver):
        assert TokenClient(who).post(path).status_code in (403, 404)
    with pytest.raises(NotAllowed):
        pending.consent(pk=change.pk, by=world.admin)
    world.admin.bindings.all().delete()
    with pytest.raises(WrongState):
        policybook.activate(row, by=other)
    assert not PolicyVersion.objects.active().exists()


def test_a_single_administrator_cannot_activate_what_they_proposed(world: World) -> None:
    User.objects.exclude(pk=world.admin.pk).update(is_active=False)
    row, _ = policybook.propose(by=world.admin, text=text_of(rule()), message="Alone")
    with pytest.raises(NotAllowed):
        policybook.activate(row, by=world.admin)


def test_a_proposal_is_against_the_version_that_was_active_and_the_later_of_two_loses(world: World) -> None:
    first, _ = policybook.propose(by=world.admin, text=text_of(rule("false")), message="One")
    second, _ = policybook.propose(by=world.admin, text=text_of(rule("plan.nodes > 3")), message="Two")
    other = UserFactory(roles=["admin"])
    policybook.activate(first, by=other)
    with pytest.raises(WrongState, match="activated after"):
        policybook.activate(second, by=other)
    assert [row.number for row in PolicyVersion.objects.active()] == [first.number]


@pytest.mark.parametrize("tampered", ["row", "digest"])
def test_what_is_activated_is_what_was_proposed(world: World, tampered: str) -> None:
    row, change = policybook.propose(by=world.admin, text=text_of(rule()), message="Stop")
    if tampered == "row":
        PolicyVersion.objects.filter(pk=row.pk).update(text=text_of())
    else:
        PendingChange.objects.filter(pk=change.pk).update(wanted=change.wanted | {"digest": "sha256:0"})
    with pytest.raises(WrongState):
        policybook.activate(row, by=UserFactory(roles=["admin"]))
    assert judgement.active_version() is None


def test_the_order_of_approval_and_activation_never_lets_a_refused_plan_start(world: World, plan: Plan) -> None:
    """Plans that were approved under another policy go back to review when the new one requires more."""
    plan = approve(world, plan)
    activate(world, rule(require={"approvers": 2}))
    plan.refresh_from_db()
    assert plan.status == Plan.Status.REVIEW
    assert not verdicts.approval_state(plan).is_approved


# ── pages and REST ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_trial_counts_what_the_text_would_have_stopped(world: World, plan: Plan) -> None:
    plan = approve(world, plan)
    rollout_actions.start(plan, by=world.operator)
    client, path = TokenClient(world.admin), "/api/v1/policy-versions/actions/test"
    tried = client.post(path, {"text": text_of(rule("plan.nodes >= 1"))}).json()
    assert (tried["plans"], tried["judged"], tried["stopped_count"], tried["active_count"]) == (1, 1, 1, 0)
    assert tried["stopped"][0] | {"plan": ""} == {
        "plan": "", "name": str(plan), "cluster_name": "atlas", "status": "started", "rule": "the rule",
        "why": "Not like this.", "is_refused": True, "by_active": False,
    }  # fmt: skip
    passes = client.post(path, {"text": text_of(rule(require={"approvers": 1}))}).json()
    held = client.post(path, {"text": text_of(rule(require={"approvers": 2}))}).json()
    assert (passes["stopped_count"], held["stopped_count"], held["stopped"][0]["is_refused"]) == (0, 1, False)
    wrong = client.post(path, {"text": text_of(rule("plan.nodez > 3"))})
    assert wrong.status_code == 422
    assert "nodez" in json.dumps(wrong.json())
    assert not PolicyVersion.objects.exists()


def test_the_trial_reads_any_number_of_plans_in_as_many_queries(world: World, plan: Plan) -> None:
    plans = [plan, world.plan(world.revision({"vm.swappiness": "20"}))]

    def queries(some: list[Plan]) -> int:
        related = Plan.objects.select_related("cluster", "pool", "revision__profile")
        rows = list(related.filter(pk__in=[row.pk for row in some]))
        with CaptureQueriesContext(connection) as seen:
            assert all(facts["nodes"] >= 1 for facts in plan_facts.facts_of_plans(rows).values())
        return len(seen)

    assert queries(plans) == queries(plans[:1])


def test_the_pages_try_propose_and_activate(world: World, plan: Plan) -> None:
    client, path = browser(world.admin), "/approvals/policy/"
    assert client.get(path).status_code == 200
    tried = client.post(path, {"verb": "try", "text": text_of(rule())})
    assert 'data-stopped="1" data-judged="1"' in tried.content.decode()
    wrong = client.post(path, {"verb": "propose", "text": text_of(rule("<b> > 3")), "message": "Now"})
    assert wrong.status_code == 422
    assert "<b>" not in wrong.content.decode().split("<textarea")[1].split("</textarea>")[0]
    assert client.post(path, {"verb": "propose", "text": text_of(rule())}).status_code == 422
    assert browser(world.operator).post(path, {"verb": "propose", "text": text_of()}).status_code == 403

    made = client.post(path, {"verb": "propose", "text": text_of(rule()), "message": "Stop <i>all</i>"})
    assert made.status_code == 302
    page = client.get(made["Location"]).content.decode()
    assert "another administrator must consent" in page
    assert "<i>" not in page
    client.post(f"{made['Location']}activate/")
    assert judgement.active_version() is None
    other = browser(UserFactory(roles=["admin"]))
    assert other.post(f"{made['Location']}activate/").status_code == 302
    active = TokenClient(world.operator).get("/api/v1/policy-versions/active").json()
    assert (active["state"], active["proposed_by"]) == ("active", world.admin.email)
    again = client.post(path, {"verb": "propose", "text": text_of(), "message": "None"})["Location"]
    client.post(f"{again}withdraw/")
    states = TokenClient(world.admin).get("/api/v1/policy-versions").json()["results"]
    assert [row["state"] for row in states] == ["closed", "active"]
