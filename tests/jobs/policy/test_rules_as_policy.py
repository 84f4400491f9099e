"""Laws of the migration: a policy made of the approval rules requires the same approvers and roles, of every plan."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from django.conf import settings as configured

from accounts.models import User
from clusters.models import Cluster
from clusters.services import lifecycle
from common.errors import WrongState
from jobs.approvals import policybook, rulebook, rules, rules_as_policy, verdicts
from jobs.diffs.changes import Disruption
from jobs.hooks import blockers
from jobs.models import ApprovalRule, Plan
from jobs.policy import policy_text
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World
from tests.jobs.pages import browser

SECURITY = {"cmdline.mitigations": "off"}
SPACES = ("train-a", "train-b", "eval")
RULE_SETS = 60
"""Each is compared on three plans."""


@pytest.fixture
def plans(make_world: Any) -> list[Plan]:
    """Plans of the cluster `atlas`, of settings and of reboots."""
    world: World = make_world(environment="production", nodes=2)
    made = [world.plan(), world.plan(world.revision({"cmdline.iommu": "pt"})), world.plan(world.revision(SECURITY))]
    return list(Plan.objects.filter(pk__in=[p.pk for p in made]).select_related("cluster", "pool", "revision__profile"))


def maybe(dice: random.Random, value: Any, otherwise: Any) -> Any:
    return value if dice.random() < 0.2 else otherwise


def any_rule(dice: random.Random, number: int, clusters: list[Cluster]) -> ApprovalRule:
    approvers = dice.randint(1, 4)
    count = maybe(dice, dice.randint(1, approvers), 0)
    row = ApprovalRule(
        name=f'rule {number} "quoted" \\ # {dice.choice("äß:{}")}',
        environment=maybe(dice, dice.choice(Cluster.Environment.values), ""),
        cluster=maybe(dice, dice.choice(clusters), None),
        worst_class=maybe(dice, dice.choice(list(Disruption)).value, ""),
        gpu_percent=maybe(dice, dice.choice((1, 33, 34, 50, 100)), None),
        node_percent=maybe(dice, dice.choice((1, 50, 51, 100)), None),
        gpus=maybe(dice, dice.choice((1, 8, 16, 17)), None),
        gpu_jobs=maybe(dice, dice.randint(1, 4), None),
        namespace=maybe(dice, dice.choice(SPACES), ""),
        component=maybe(dice, dice.choice(("gpu-operator", "cilium")), ""),
        weakens_security=dice.random() < 0.15,
        approvers=approvers,
        of_count=count,
        of_role=dice.choice(rulebook.OF_ROLES) if count else "",
        of_scope=dice.choice(("", "*", "env:production")) if count else "",
        is_enabled=dice.random() < 0.9,
    )
    row.save()
    return row


def any_plan(dice: random.Random, stored: list[Plan], clusters: list[Cluster]) -> Plan:
    """A stored plan as it might have been stored: other class, other forecast, another cluster, an altered row."""
    plan = copy.copy(dice.choice(stored))
    plan.worst_class = dice.choice(list(Disruption)).value
    plan.is_uncounted = dice.random() < 0.3
    spaces = [{"namespace": space} for space in SPACES if dice.random() < 0.3]
    plan.summary = plan.summary | {"gpu_jobs": dice.randint(0, 4), "namespaces": spaces}
    plan.summary["gpus_out_at_once"] = dice.choice((0, 7, 8, 16, 17))
    if dice.random() < 0.3:
        for name in ("gpu_jobs", "namespaces", "gpus_out_at_once"):
            plan.summary.pop(name)
    if dice.random() < 0.5:
        plan.cluster = dice.choice(clusters)
    return plan


def test_a_policy_made_of_any_rules_requires_what_they_require_of_any_plan(plans: list[Plan]) -> None:
    dice = random.Random(1)
    Cluster.objects.create(name="cirrus", uid="c", environment="development", server="https://127.0.0.1:1")
    altered = Cluster.objects.create(name="dune", uid="d", environment="development", server="https://127.0.0.1:1")
    Cluster.objects.filter(pk=altered.pk).update(environment="staging")  # its environment is not known
    clusters = list(Cluster.objects.all())
    outcomes = set()
    for _ in range(RULE_SETS):
        ApprovalRule.objects.all().delete()
        rows = [any_rule(dice, number, clusters) for number in range(dice.randint(0, 5))]
        policy = policy_text.read(rules_as_policy.text_of_rules(rows))
        for _ in range(3):
            plan = any_plan(dice, plans, clusters)
            assert rules_as_policy.differing_plans(policy, rows, [plan]) == [], rules_as_policy.text_of_rules(rows)
            facts = rules.facts_of([plan], rows)[plan.pk]
            outcomes.add(rules_as_policy.demand_of(rules.fitting_requirements(rows, facts)))
    assert len(outcomes) > 9, "the cases tell rules apart"


@pytest.mark.parametrize("field", [name for name in rulebook.FIELDS if name not in ("name", "cluster", "of_scope")])
def test_each_field_of_a_rule_has_a_place_in_the_text(field: str) -> None:
    """A field that is added to rules, and not here, would be lost: the text must differ once it is set."""
    values = {
        "environment": "production", "worst_class": "drain", "namespace": "train", "component": "cilium",
        "weakens_security": True, "is_enabled": False, "of_role": "admin",
    }  # fmt: skip
    plain = {"name": "r", "approvers": 3} | ({"of_count": 1, "of_role": "operator"} if field.startswith("of_") else {})
    before, after = ApprovalRule(**plain), ApprovalRule(**plain | {field: values.get(field, 2)})
    for row in (before, after):
        row.mac = row.mark_with()
    assert rules_as_policy.text_of_rules([before]) != rules_as_policy.text_of_rules([after])


def test_the_migrated_policy_alone_decides_as_the_rules_did_and_authors_never_approve(world: World) -> None:
    """The rows are gone: what is left is the policy, and what no policy says."""
    plan = world.plan(world.revision({"cmdline.iommu": "pt"}))
    ApprovalRule.objects.create(name="atlas", cluster=world.cluster, approvers=3, of_count=1, of_role="admin")
    client = TokenClient(world.admin)
    answer = client.get("/api/v1/policy-versions/from-rules").json()
    assert (answer["rules"], answer["compared"], answer["differing"]) == (4, Plan.objects.count(), [])
    before = rules_as_policy.demand_of(rules.requirements_for(plan))
    assert before == (3, frozenset({(1, "admin", "")}))

    page = browser(world.admin)
    text = page.get("/approvals/policy/?start=rules").context["text"]
    assert text == answer["text"]
    made = page.post("/approvals/policy/", {"verb": "propose", "text": text, "message": "As code"})["Location"]
    assert browser(UserFactory(roles=["admin"])).post(f"{made}activate/").status_code == 302
    ApprovalRule.objects.all().delete()
    assert rules_as_policy.demand_of(rules.requirements_for(plan)) == before
    lifecycle.update(world.cluster, by=world.admin, name="atlas-two")
    renamed = Plan.objects.get(pk=plan.pk)
    assert rules_as_policy.demand_of(rules.requirements_for(renamed)) == before, "a cluster's administrator renames it"
    assert any("approval policy" in reason for reason in blockers.of_cluster(renamed.cluster))
    standing = verdicts.approval_state(plan)
    assert (standing.missing, standing.rule.approvers, standing.policy.refusals) == (3, 3, ())
    for person in (world.author, world.operator):
        person.bindings.create(role="approver", scope="*")
        assert "Authors cannot approve" in verdicts.reason_not_to_judge(plan, User.objects.get(pk=person.pk))
    assert "start=rules" not in page.get("/approvals/policy/").content.decode(), "it would take the active one's place"


@pytest.mark.django_db
def test_a_rule_that_was_changed_in_the_table_is_not_migrated() -> None:
    row = ApprovalRule.objects.create(name="weak", approvers=2)
    ApprovalRule.objects.filter(pk=row.pk).update(approvers=1)
    with pytest.raises(WrongState, match="weak"):
        rules_as_policy.policy_from_rules()
    admin = UserFactory(roles=["admin"])
    assert TokenClient(admin).get("/api/v1/policy-versions/from-rules").status_code == 409
    page = browser(admin).get("/approvals/policy/?start=rules")
    assert (page.status_code, "weak" in page.content.decode()) == (422, True)


@pytest.mark.django_db
def test_more_rules_than_a_policy_holds_are_refused_in_words() -> None:
    for number in range(policy_text.MOST_RULES + 1):
        ApprovalRule.objects.create(name=f"rule {number}", approvers=1)
    with pytest.raises(WrongState, match=str(policy_text.MOST_RULES)):
        rules_as_policy.policy_from_rules()


@pytest.mark.django_db
def test_only_administrators_of_everything_read_rules_as_a_policy() -> None:
    for role in ("operator", "approver", "admin@env:staging"):
        client = TokenClient(UserFactory(roles=[role]))
        assert client.get("/api/v1/policy-versions/from-rules").status_code == 403, role


@pytest.mark.django_db
def test_the_built_in_rules_are_the_text_of_the_documentation() -> None:
    """Compare docs/policy.md with what the product makes of the rules that an installation begins with."""
    text = rules_as_policy.text_of_rules(list(ApprovalRule.objects.all()))
    documented = (configured.BASE_DIR / "docs" / "policy.md").read_text()
    assert text in documented
    assert policybook.reason_not_to_propose(UserFactory(roles=["admin"])) == ""
