"""Laws of the approval rules: all that fit apply, the strictest wins, and no rule makes another one weaker."""

from __future__ import annotations

import re
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import PendingChange, RoleBinding, User
from accounts.people import pending
from accounts.people.pending import Proposed
from audit.models import Record
from clusters.models import Cluster
from common.errors import Invalid, NotAllowed, Stale, WrongState
from jobs.approvals import reviews, rulebook, rules, verdicts, weaker_rules
from jobs.diffs.changes import Disruption
from jobs.models import ApprovalRule, Plan
from jobs.reports import overview
from jobs.rollouts import rollout_actions
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World, person
from tests.jobs.pages import browser
from tests.jobs.rows import more_nodes

REBOOT = {"cmdline.iommu": "pt"}
HERE, THERE = uuid.uuid4(), uuid.uuid4()
PEOPLE = tuple(range(6))


def consented(done: object) -> None:
    """Let another administrator consent."""
    change = done.change if isinstance(done, Proposed) else done
    assert isinstance(change, PendingChange)
    pending.consent(pk=change.pk, by=UserFactory(roles=["admin"]))


percents = st.none() | st.integers(1, 100)
rows = st.builds(
    lambda **fields: ApprovalRule(**fields | {"of_count": min(fields["of_count"], fields["approvers"])}),
    name=st.text("abc", min_size=1, max_size=4),
    environment=st.sampled_from(["", *Cluster.Environment.values]),
    cluster_id=st.sampled_from([None, HERE, THERE]),
    worst_class=st.sampled_from(["", *Disruption]),
    gpu_percent=percents,
    node_percent=percents,
    approvers=st.integers(1, 5),
    of_count=st.integers(0, 5),
    of_role=st.sampled_from(["", "approver", "admin"]),
    of_scope=st.sampled_from(["", "*", "env:production"]),
    is_enabled=st.booleans(),
)
facts = st.builds(
    rules.PlanFacts,
    environment=st.sampled_from(Cluster.Environment.values),
    cluster_id=st.sampled_from([HERE, THERE]),
    worst=st.sampled_from(list(Disruption)),
    gpu_share=st.floats(0, 1),
    node_share=st.floats(0, 1),
)
approved = st.sets(st.sampled_from(PEOPLE)).map(lambda pks: [SimpleNamespace(pk=pk) for pk in sorted(pks)])
grants = st.sets(st.tuples(st.sampled_from(PEOPLE), st.sampled_from(["approver", "admin"]), st.sampled_from(["", "*"])))


def missing(approval_rules: list[ApprovalRule], about: rules.PlanFacts, by: list[Any], held: set[Any]) -> int:
    def holds(who: Any, role: str, scope: str) -> bool:
        return (who.pk, role, scope) in held

    return max(need.missing for need in rules.needs(rules.fitting_requirements(approval_rules, about), by, holds))


# ── of rules alone ────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(rows, max_size=6), rows, facts, approved, grants)
def test_a_new_rule_never_makes_approval_easier(approval_rules, added, about, by, held):
    assert missing([*approval_rules, added], about, by, held) >= missing(approval_rules, about, by, held)


@given(st.lists(rows, max_size=6), facts, approved, grants)
def test_the_strictest_of_those_that_fit_wins(approval_rules, about, by, held):
    alone = [missing([row], about, by, held) for row in approval_rules if rules.rule_fits(row, about)]
    assert missing(approval_rules, about, by, held) == max(alone, default=missing([], about, by, held))


@given(st.lists(rows, max_size=6), facts, st.permutations(PEOPLE), grants)
def test_one_more_approval_never_takes_a_plan_farther_away(approval_rules, about, people, held):
    left = [
        missing(approval_rules, about, [SimpleNamespace(pk=pk) for pk in people[:n]], held)
        for n in range(len(people) + 1)
    ]
    assert left == sorted(left, reverse=True)
    assert left[0] >= 1, "nobody is never enough"


@given(st.lists(rows, max_size=6), facts, facts)
def test_a_more_disruptive_or_larger_plan_is_never_approved_more_easily(approval_rules, plan_facts, other):
    larger = rules.PlanFacts(
        plan_facts.environment, plan_facts.cluster_id, max(plan_facts.worst, other.worst, key=lambda c: c.rank),
        max(plan_facts.gpu_share, other.gpu_share), max(plan_facts.node_share, other.node_share),
    )  # fmt: skip
    assert missing(approval_rules, larger, [], set()) >= missing(approval_rules, plan_facts, [], set())


@given(st.lists(rows, max_size=6), facts, approved, grants)
def test_a_disabled_rule_asks_for_nothing(approval_rules, about, by, held):
    enabled = [row for row in approval_rules if row.is_enabled]
    assert missing(approval_rules, about, by, held) == missing(enabled, about, by, held)


def test_every_condition_of_a_rule_must_hold():
    about = rules.PlanFacts("production", HERE, Disruption.DRAIN, gpu_share=0.5, node_share=0.2)
    fitting = {"environment": "production", "cluster_id": HERE, "worst_class": "drain", "gpu_percent": 50}
    assert rules.rule_fits(ApprovalRule(**fitting), about)
    for wrong in (
        {"environment": "staging"}, {"cluster_id": THERE}, {"worst_class": "reboot"},
        {"gpu_percent": 51}, {"node_percent": 21},
    ):  # fmt: skip
        assert not rules.rule_fits(ApprovalRule(**fitting | wrong), about), wrong


# ── of rules and plans ────────────────────────────────────────────────────────────────────────────────────────────────


def write(world: World, **fields: Any) -> ApprovalRule:
    return rulebook.create(by=world.admin, **{"name": "extra", "approvers": 2} | fields)


def approve(plan: Plan, by: User) -> Plan:
    return reviews.approve(plan, by=by, digest=plan.digest)


def review(world: World, **strategy: Any) -> Plan:
    return reviews.request(world.plan(**strategy), by=world.operator)


def fresh(plan: Plan) -> Plan:
    return Plan.objects.get(pk=plan.pk)


def test_what_was_built_in_is_seeded_as_rows(world):
    assert list(ApprovalRule.objects.values_list("name", "approvers", "environment", "worst_class")) == [
        ("production, disruptive", 2, "production", "network"),
        ("settings that weaken security", 2, "", ""),
        ("default", 1, "", ""),
    ]


def test_without_any_rule_one_approver_is_needed_all_the_same(world):
    ApprovalRule.objects.all().delete()
    plan = review(world)
    assert verdicts.approval_state(plan).missing == 1
    with pytest.raises(WrongState, match="not approved"):
        rollout_actions.start(plan, by=world.operator)
    assert approve(plan, world.approver).status == "approved"


def test_the_share_of_gpus_is_of_the_whole_cluster(world):
    """Three nodes of three are changed; of six, half."""
    write(world, gpu_percent=60)
    plan = world.plan()
    assert verdicts.strictest_requirement(plan).name == "extra"
    more_nodes(world, 3)
    assert verdicts.strictest_requirement(plan).name == "default"
    rulebook.change(ApprovalRule.objects.get(name="extra"), by=world.admin, version=1, gpu_percent=50)
    assert verdicts.strictest_requirement(plan).name == "extra"


def test_a_rule_of_one_cluster_is_about_that_one(world):
    other = Cluster.objects.create(uid="other", name="other", credential=b"-", credential_key="-", server="x")
    write(world, cluster=other)
    assert verdicts.strictest_requirement(world.plan()).name == "default"
    write(world, name="here", cluster=world.cluster)
    assert verdicts.strictest_requirement(world.plan(world.revision({"vm.swappiness": "7"}))).name == "here"


def test_of_those_who_approve_some_hold_the_role_that_the_rule_names(world):
    write(world, approvers=1, of_count=1, of_role="admin", of_scope="*")
    plan = approve(review(world), world.approver)
    there = verdicts.approval_state(plan)
    assert (plan.status, there.missing, [n.rule.name for n in there.wanted]) == ("review", 1, ["extra"])

    lead = person("lead", role="approver")
    RoleBinding.objects.create(user=lead, role="admin", scope="env:staging")
    assert approve(fresh(plan), lead).status == "review", "admin of staging is not admin for all"
    RoleBinding.objects.create(user=lead, role="admin", scope="*")
    assert approve(fresh(plan), User.objects.get(pk=lead.pk)).status == "approved"


def test_no_rule_lets_anybody_approve_their_own(world):
    RoleBinding.objects.create(user=world.operator, role="approver", scope="*")
    RoleBinding.objects.create(user=world.operator, role="admin", scope="*")
    RoleBinding.objects.create(user=world.author, role="approver", scope="*")
    write(world, approvers=1, of_count=1, of_role="admin", of_scope="*")
    plan = review(world)
    for somebody in (world.operator, world.author):
        with pytest.raises(NotAllowed):
            approve(plan, User.objects.get(pk=somebody.pk))
    assert not verdicts.approval_state(plan).approved_by


def test_a_new_rule_holds_for_what_is_approved_and_has_not_started(world):
    plan = world.approved()
    write(world)
    assert fresh(plan).status == "review"
    assert Record.objects.filter(action="plan.rejudge", actor=str(world.admin)).count() == 1
    with pytest.raises(WrongState):
        rollout_actions.start(fresh(plan), by=world.operator)
    assert approve(fresh(plan), world.second).status == "approved"


def test_a_rule_taken_away_approves_what_it_alone_held_back_and_the_record_says_who(world):
    row = write(world)
    plan, none = approve(review(world), world.approver), world.plan(world.revision({"vm.swappiness": "7"}))
    reviews.request(none, by=world.operator)
    consented(rulebook.delete(row, by=world.admin, version=row.version))
    assert (fresh(plan).status, fresh(none).status) == ("approved", "review")
    assert Record.objects.get(action="plan.rejudge").actor == str(Record.objects.get(action="change.consent").actor)


def test_a_rule_is_disabled_and_enabled_again_on_the_page_and_the_record_says_so(world):
    row = write(world)
    plan = approve(review(world), world.approver)
    client = browser(world.admin)
    path = f"/approvals/rules/{row.pk}/rest/"
    assert client.post(path, {"version": "1", "enabled": "0"}).status_code == 302
    assert ApprovalRule.objects.get(pk=row.pk).is_enabled, "it waits for consent"
    consented(PendingChange.objects.get())
    assert not ApprovalRule.objects.get(pk=row.pk).is_enabled
    assert fresh(plan).status == "approved", "it alone held the plan back"
    assert "disabled" in client.get("/approvals/rules/").content.decode()
    assert client.post(path, {"version": "1", "enabled": "1"}).status_code == 302, "stale: nothing happens"
    assert not ApprovalRule.objects.get(pk=row.pk).is_enabled
    world.tick(1)  # records of one moment have no order
    client.post(path, {"version": "2", "enabled": "1"})
    assert fresh(plan).status == "review"
    changes = [
        (r.before["is_enabled"], r.after["is_enabled"])
        for r in Record.objects.filter(action="rule.change").order_by("at", "pk")
    ]
    assert changes == [(True, False), (False, True)]
    browser(world.approver).post(path, {"version": "3", "enabled": "0"})
    assert ApprovalRule.objects.get(pk=row.pk).is_enabled, "only admins write rules"


def test_a_plan_says_which_rules_fit_it_why_and_what_is_missing(world):
    write(world, name="Half the nodes", node_percent=50, approvers=2, of_count=1, of_role="admin", of_scope="*")
    write(world, name="Elsewhere", environment="production", approvers=5)
    plan = approve(review(world), world.approver)
    text = " ".join(re.sub(r"<[^>]*>", " ", browser(world.operator).get(f"/plans/{plan}/").content.decode()).split())
    assert "2 rules match this plan" in text
    assert "Matches: every environment, at least 50 % of the cluster's nodes" in text.replace("&#x27;", "'")
    assert (
        "Requires 2 approvers, 1 of them admin for all clusters. Missing: 1 more, 1 of them admin for all clusters"
        in text
    )
    assert "Met default" in text
    assert "Elsewhere" not in text
    rest = TokenClient(world.operator).get(f"/api/v1/plans/{plan.pk}").json()["approval"]["rules"]
    assert [(r["name"], r["demand"], r["missing"]) for r in rest] == [
        ("Half the nodes", "2 approvers, 1 of them admin for all clusters", 1),
        ("default", "1 approver", 0),
    ]
    assert rest[0]["about"] == "every environment, at least 50 % of the cluster's nodes"


def test_requested_changes_and_reminders_stand_on_the_overview_of_those_they_concern(world, settings):
    plan = review(world)
    world.clock.forward(hours=settings.SETPOINT_REMIND_HOURS + 1)
    assert reviews.remind() == 1
    matters = {m.what: m.why for m in overview.overview(world.approver)["matters"]}
    assert "Reminded 2026-11-22 13:00 UTC" in matters[f"{plan} waits for your approval"]
    matters = {m.what: m.why for m in overview.overview(world.operator)["matters"]}
    assert "Ask an approver" in matters[f"No review of {plan} yet"]
    assert Record.objects.filter(action="plan.remind", target=f"plan:{plan.pk}").count() == 1

    reviews.request_changes(fresh(plan), by=world.approver, digest=plan.digest, comment="Fewer at once.")
    (matter,) = overview.overview(world.operator)["matters"]
    assert (matter.what, matter.act) == (f"Changes to {plan} were requested", "Answer")
    assert "Fewer at once." in matter.why
    assert overview.overview(world.author)["matters"] == [], "it is not theirs"


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "admin@env:staging"])
def test_only_the_admin_of_all_writes_rules(world, role):
    somebody = UserFactory(roles=[role])
    row = write(world)
    for act in (
        lambda: rulebook.create(by=somebody, name="x", approvers=1),
        lambda: rulebook.change(row, by=somebody, version=1, approvers=1),
        lambda: rulebook.delete(row, by=somebody, version=1),
    ):
        with pytest.raises(NotAllowed):
            act()
    assert ApprovalRule.objects.get(name="extra").approvers == 2


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"name": " "}, {"name"}),
        ({"name": "x" * 81}, {"name"}),
        ({"name": "default"}, {"name"}),
        ({"environment": "moon"}, {"environment"}),
        ({"worst_class": "flood"}, {"worst_class"}),
        ({"gpu_percent": 0}, {"gpu_percent"}),
        ({"node_percent": 101}, {"node_percent"}),
        ({"gpu_percent": True}, {"gpu_percent"}),
        ({"approvers": 0}, {"approvers"}),
        ({"approvers": 11}, {"approvers"}),
        ({"approvers": None}, {"approvers"}),
        ({"of_count": 1}, {"of_role"}),
        ({"of_role": "admin"}, {"of_count"}),
        ({"of_role": "viewer", "of_count": 1}, {"of_role"}),
        ({"of_role": "admin", "of_count": 3}, {"of_count"}),
        ({"of_role": "admin", "of_count": 1, "of_scope": "env:moon"}, {"of_scope"}),
        ({"gpu_percent": -1, "approvers": "2"}, {"gpu_percent", "approvers"}),
    ],
)
def test_a_rule_that_cannot_be_is_refused_field_by_field(world, fields, wrong):
    with pytest.raises(Invalid) as refusal:
        write(world, **fields)
    assert set(refusal.value.fields) == wrong
    assert ApprovalRule.objects.count() == len(rulebook.BUILT_IN)


def test_a_rule_for_a_cluster_of_another_environment_would_never_fit(world):
    with pytest.raises(Invalid, match="not valid"):
        write(world, environment="production", cluster=world.cluster)


def test_who_writes_over_a_newer_rule_is_refused(world):
    row = write(world)
    rulebook.change(row, by=world.admin, version=1, approvers=3)
    for act in (
        lambda: rulebook.change(row, by=world.admin, version=1, approvers=1),
        lambda: rulebook.delete(row, by=world.admin, version=1),
    ):
        with pytest.raises(Stale):
            act()
    assert ApprovalRule.objects.get(pk=row.pk).approvers == 3


def test_what_a_rule_said_before_and_says_now_is_recorded(world):
    row = write(world)
    rulebook.change(row, by=world.admin, version=1, approvers=3)
    consented(rulebook.delete(row, by=world.admin, version=2))
    made, changed, gone = (Record.objects.get(action=f"rule.{verb}") for verb in ("create", "change", "delete"))
    assert (made.before, made.after["approvers"]) == (None, 2)
    assert (changed.before["approvers"], changed.after["approvers"]) == (2, 3)
    assert (gone.before["approvers"], gone.after) == (3, None)
    assert {r.target for r in (made, changed, gone)} == {made.target}


@given(rows, rows, facts)
def test_what_is_not_weaker_asks_for_as_much_of_every_plan(before, after, plan):
    if weaker_rules.is_weaker(before, {name: getattr(after, name) for name in weaker_rules.APART} | _conditions(after)):
        return
    for approved in range(6):
        for held in range(approved + 1):
            person_holds = lambda p, _role, _scope: p < held  # noqa: B023, E731
            was = rules.needs(rules.fitting_requirements([before], plan), range(approved), person_holds)
            now_ = rules.needs(rules.fitting_requirements([after], plan), range(approved), person_holds)
            assert max(n.missing for n in now_) >= max(n.missing for n in was)


def _conditions(row):
    names = ("environment", "worst_class", "gpu_percent", "node_percent")
    return {name: getattr(row, name) for name in names} | {"cluster_id": row.cluster_id}


def test_every_condition_of_a_rule_is_known_or_counts_as_weaker():
    """A condition that is added to rules later is held for weaker until it is known to be wider."""
    row = ApprovalRule(name="x", approvers=2)
    same = {name: getattr(row, name) for name in rulebook.FIELDS if name != "cluster"}
    assert not weaker_rules.is_weaker(row, same)
    row.__dict__["added_later"] = ""
    assert weaker_rules.is_weaker(row, same | {"added_later": "narrower"})
