"""Law 10 for plans: what the page offers, what its POST does, what REST lists and what REST does are one answer.

Each situation is looked at by each account: for every verb the four of them agree on every answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.http import HttpResponse
from django.test import Client

from accounts.models import RoleBinding, User
from clusters.models import Cluster, Node, Pool
from common.clock import now
from compliance.models import Assignment
from jobs import tasks
from jobs.approvals import plan_actions, reviews
from jobs.models import ApprovalRule, ComponentOwner, Plan, PlanComponent, PlanNode
from jobs.rollouts import freezes
from jobs.web import views
from profiles.content.cluster import WantedComponent
from tests import marks
from tests.factories import TokenClient
from tests.jobs.conftest import World, person
from tests.jobs.releases import Releases

VERBS = ("request", "approve", "request-changes", "reject", "retract", "withdraw", "start")
FORM = r'<form[^>]*action="/plans/P-\d+/([a-z-]+)/"[^>]*>(.*?)</form>'
Situation = Callable[[World], Plan]


@pytest.fixture(autouse=True)
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "wake", lambda pk: None)
    # A page refused is the page once more, which is looked at by itself; here only its status counts.
    monkeypatch.setattr(
        views, "plan_refused", lambda request, number, verb, refusal: HttpResponse(status=refusal.status)
    )


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> Releases:
    return Releases().install(monkeypatch)


# ── situations ────────────────────────────────────────────────────────────────────────────────────────────────────────


def changed(plan: Plan, **columns: Any) -> Plan:
    Plan.objects.filter(pk=plan.pk).update(**columns)
    plan.refresh_from_db()
    return plan


def late(plan: Plan) -> Plan:
    return changed(plan, expires_at=now() - timedelta(hours=1))


def in_review(world: World) -> Plan:
    return reviews.request(world.plan(), by=world.operator)


def half_approved(world: World) -> Plan:
    ApprovalRule.objects.create(name="two", approvers=2)
    return reviews.approve(plan := in_review(world), by=world.approver, digest=plan.digest)


def sent_back(world: World) -> Plan:
    plan = in_review(world)
    return reviews.request_changes(plan, by=world.second, digest=plan.digest, comment="One at a time.")


def rejected(world: World) -> Plan:
    plan = in_review(world)
    return reviews.reject(plan, by=world.second, digest=plan.digest, comment="No.")


def blocked(world: World) -> Plan:
    finding = {"severity": "block", "code": "x", "title": "It cannot be", "detail": "", "nodes": [], "count": 0}
    return changed(world.plan(), findings=[finding])


def blocked_after_changes(world: World) -> Plan:
    finding = {"severity": "block", "code": "x", "title": "It cannot be", "detail": "", "nodes": [], "count": 0}
    return changed(sent_back(world), findings=[finding])


def approver_lost_the_role(world: World) -> Plan:
    plan = world.approved()
    marks.put(RoleBinding.objects.filter(user=world.approver), role="viewer")
    return plan


def approver_became_author(world: World) -> Plan:
    plan = world.approved()
    plan.revision.authors.add(world.approver)
    return plan


def rule_became_stricter(world: World) -> Plan:
    plan = world.approved()
    ApprovalRule.objects.create(name="two", approvers=2)
    return plan


def frozen(world: World) -> Plan:
    plan = world.approved()
    freezes.freeze(by=world.operator, cluster=world.cluster, reason="Black Friday", until=None)
    return plan


def another_rollout_is_live(world: World) -> Plan:
    waiting = world.approved(world.plan(world.revision({"vm.swappiness": "11"})))
    world.started(world.plan(world.revision({"vm.swappiness": "12"})))
    return waiting


def cluster_is_anothers(world: World) -> Plan:
    plan = world.approved()
    Cluster.objects.update(ownership=Cluster.Ownership.FOREIGN, ownership_mark="another")
    return plan


def credential_refused(world: World) -> Plan:
    plan = world.approved()
    Cluster.objects.update(reach=Cluster.Reach.UNREACHABLE)
    return plan


def altered(plan: Plan) -> Plan:
    PlanNode.objects.filter(plan=plan).update(batch=1)
    return changed(plan, strategy=plan.strategy | {"soak_seconds": 7})


def consent_altered(world: World) -> Plan:
    return changed(world.approved(), summary=world.approved().summary | {"consent": "destroy nothing"})


def of_components(world: World) -> Plan:
    return world.approved(world.plan(world.revision(components=[WantedComponent("volcano", "1.0.0")])))


def component_became_anothers(world: World) -> Plan:
    """Its other pool wants it by now, and owns it."""
    plan = of_components(world)
    other = Pool.objects.create(cluster=world.cluster, name="infer", selector={"matchLabels": {"pool": "infer"}})
    Assignment.objects.create(pool=other, revision=plan.revision, set_at=now())
    ComponentOwner.objects.create(cluster=world.cluster, component="volcano", pool=other)
    return plan


def release_is_taken(world: World) -> Plan:
    waiting = of_components(world)
    world.started(
        world.plan(world.revision({"vm.dirty_ratio": "20"}, components=[WantedComponent("volcano", "2.0.0")]))
    )
    return waiting


def component_altered(world: World) -> Plan:
    plan = of_components(world)
    PlanComponent.objects.filter(plan=plan).update(places=3)
    return plan


def node_is_gone(world: World) -> Plan:
    plan = world.approved()
    Node.objects.filter(name="n1").update(gone_at=now())
    return plan


def started(world: World) -> Plan:
    return world.started().plan


SITUATIONS: dict[str, Situation] = {
    "draft": lambda world: world.plan(),
    "draft, blocked": blocked,
    "draft, out of time": lambda world: late(world.plan()),
    "draft, judged by another version": lambda world: changed(world.plan(), judgement=0),
    "in review": in_review,
    "in review, altered": lambda world: altered(in_review(world)),
    "in review, out of time": lambda world: late(in_review(world)),
    "in review, one approval missing": half_approved,
    "changes requested": sent_back,
    "changes requested, blocked": blocked_after_changes,
    "changes requested, out of time": lambda world: late(sent_back(world)),
    "approved": lambda world: world.approved(),
    "approved, altered": lambda world: altered(world.approved()),
    "approved, consent altered": consent_altered,
    "approved, out of time": lambda world: late(world.approved()),
    "approved, the approver lost the role": approver_lost_the_role,
    "approved, the approver became an author": approver_became_author,
    "approved, a rule became stricter": rule_became_stricter,
    "approved, frozen": frozen,
    "approved, another rollout works on its nodes": another_rollout_is_live,
    "approved, the cluster is another installation's": cluster_is_anothers,
    "approved, the credential is refused": credential_refused,
    "approved, a node is gone": node_is_gone,
    "approved, with a component": of_components,
    "approved, its component became another pool's": component_became_anothers,
    "approved, another rollout works on its release": release_is_taken,
    "approved, its component was altered": component_altered,
    "started": started,
    "rejected": rejected,
    "withdrawn": lambda world: reviews.withdraw(world.plan(), by=world.operator),
    "expired": lambda world: changed(late(world.approved()), status="expired"),
}


STARTS = {
    "approved", "approved, frozen", "approved, the credential is refused", "approved, a node is gone",
    "approved, with a component",
}  # fmt: skip
"""In which an operator starts it: so that nothing agrees only because everything is refused."""


def accounts(world: World) -> dict[str, User]:
    late_approver, both = person("late", "viewer"), person("both", "operator")
    RoleBinding.objects.create(user=both, role="approver", scope="*")
    return {
        "asked for it": world.operator,
        "approved it, or may": world.approver,
        "another approver": world.second,
        "operator and approver": both,
        "admin": world.admin,
        "approver since today": late_approver,
    }


# ── four answers ──────────────────────────────────────────────────────────────────────────────────────────────────────


def offered(client: Client, plan: Plan) -> set[str]:
    """Verbs that have a button, or a choice of a form, that is not disabled."""
    answer = client.get(f"/plans/P-{plan.number}/")
    assert answer.status_code == 200
    out: set[str] = set()
    for verb, form in re.findall(FORM, answer.content.decode(), re.DOTALL):
        if any("aria-disabled" not in button for button in re.findall(r"<button[^>]*>", form)):
            out |= set(re.findall(r'name="verdict" value="([a-z-]+)"', form)) if verb == "verdict" else {verb}
    return out


def body(plan: Plan, verb: str) -> dict[str, str]:
    """Return what the verb asks for, so that nothing but the answer can refuse it."""
    consent = {"consent": plan.summary["consent"]} if plan.summary.get("consent") and verb == "approve" else {}
    judged = {"digest": plan.digest, "comment": "As discussed."} | consent
    return {"approve": judged, "reject": judged, "request-changes": judged,
            "request": {"comment": "As discussed."}}.get(verb, {})  # fmt: skip


def is_done(client: Client, path: str, fields: dict[str, str]) -> bool:
    """Return whether it is accepted; undone afterwards."""
    with transaction.atomic():
        answer = client.post(path, fields)
        transaction.set_rollback(True)
    assert answer.status_code in (202, 302, 403, 409), (path, answer.status_code, answer.content[:300])
    return answer.status_code in (202, 302)


def differences(plan: Plan, people: dict[str, User], verbs: tuple[str, ...]) -> list[str]:
    out = []
    for name, user in people.items():
        browser, rest = Client(), TokenClient(User.objects.get(pk=user.pk))
        browser.force_login(user)
        there = rest.get(f"/api/v1/plans/{plan.pk}").json()
        shown = offered(browser, plan)
        for verb in verbs:
            path = f"/api/v1/plans/{plan.pk}/actions/{verb}"
            answers = {
                "page offers": verb in shown,
                "page does": is_done(browser, f"/plans/P-{plan.number}/{verb}/", body(plan, verb)),
                "REST lists": there["actions"][verb] and there["permissions"][verb],
                "REST does": is_done(rest, path, body(plan, verb)),
            }
            if len(set(answers.values())) > 1:
                out.append(f"{verb} by {name}: {answers}")
            assert (verb in there["why_not"]) is not answers["REST lists"], verb
    return out


@pytest.mark.parametrize("situation", SITUATIONS)
def test_page_and_rest_give_one_answer(world: World, releases: Releases, situation: str) -> None:
    people = accounts(world)
    plan = SITUATIONS[situation](world)
    world.clock.forward(60)
    marks.put(RoleBinding.objects.filter(user__email="late@example.com"), role="approver", created_at=now())
    assert (not plan_actions.check_actions(Plan.objects.get(pk=plan.pk), world.operator)["start"].reason) is (
        situation in STARTS
    )
    verbs = VERBS
    if situation.startswith("approved, "):  # about its start and its verdicts, and nothing else
        people = {name: people[name] for name in ("asked for it", "approved it, or may", "another approver")}
        verbs = ("approve", "retract", "withdraw", "start")

    assert not (differing := differences(plan, people, verbs)), "\n".join(differing)


def test_a_list_says_what_the_plan_itself_says(world: World, releases: Releases) -> None:
    """All but that it was altered, which takes reading it whole."""
    plans = [another_rollout_is_live(world), in_review(world), cluster_is_anothers(world), late(in_review(world))]
    rest = TokenClient(world.operator)
    rows = {row["id"]: row for row in rest.get("/api/v1/plans").json()["results"]}
    for plan in plans:
        row = rest.get(f"/api/v1/plans/{plan.pk}").json()
        listed = rows[str(plan.pk)]
        assert (listed["actions"], listed["permissions"]) == (row["actions"], row["permissions"])
