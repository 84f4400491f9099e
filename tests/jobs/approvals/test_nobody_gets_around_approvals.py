"""Chains of calls with which one stolen administrator's token or session would approve and start a plan."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from accounts.models import ApiToken, RoleBinding, User
from common.errors import WrongState
from jobs import tasks
from jobs.approvals import reviews, verdicts
from jobs.models import Approval, Plan, Rollout
from jobs.rollouts import rollout_actions
from tests.factories import PASSWORD, TokenClient, UserFactory
from tests.jobs.conftest import World

NEW = "mallory@example.com"


@pytest.fixture
def plan(world: World, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr(tasks, "wake", lambda pk: None)
    return reviews.request(world.plan(), by=world.operator)


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def links(data: Any) -> list[str]:
    """Every link that an answer shows, as paths."""
    text = data.content.decode() if hasattr(data, "content") else str(data)
    return [
        f"/link/{part.split('<')[0].split('&')[0].split(chr(34))[0].rstrip('/')}/" for part in text.split("/link/")[1:]
    ]


def follow(paths: list[str], code: str = "") -> None:
    for path in paths:
        Client().post(path, {"password": PASSWORD, "again": PASSWORD, "code": code})


def is_logged_in(email: str) -> Client | None:
    client = Client()
    answer = client.post("/login/", {"email": email, "password": PASSWORD})
    return client if answer.status_code == 302 else None


def approve_and_start(plan: Plan, client: Client) -> None:
    """Approve and start like an intruder, over the pages and REST alike."""
    path = f"/api/v1/plans/{plan.pk}/actions"
    for verb, body in (("approve", {"digest": plan.digest}), ("start", {})):
        client.post(f"{path}/{verb}", body, "application/json")


def assert_refused(plan: Plan) -> None:
    plan.refresh_from_db()
    assert plan.status == Plan.Status.REVIEW
    assert not Rollout.objects.filter(plan=plan).exists()


@pytest.mark.parametrize("password", [PASSWORD, None])
def test_a_stolen_service_token_makes_no_approver_and_starts_nothing(world, plan, password):
    api = TokenClient(UserFactory(is_service=True, roles=["admin", "operator"]))
    body = {"email": NEW} | ({"password": password} if password else {})
    made = api.post("/api/v1/users", body)
    follow(links(made))
    for role in ("approver", "operator", "admin"):
        api.post("/api/v1/role-bindings", {"user": NEW, "role": role, "scope": "*"})
    if client := is_logged_in(NEW):
        approve_and_start(plan, client)
    approve_and_start(plan, api)
    assert not User.objects.filter(email=NEW).exists()
    assert_refused(plan)


@pytest.mark.parametrize("way", ["token", "session"])
@pytest.mark.parametrize("role", ["approver", "admin"])
def test_one_administrator_alone_makes_no_approver(world, plan, way, role):
    admin = UserFactory(roles=["admin", "operator"])
    api: Client = TokenClient(admin) if way == "token" else browser(admin)
    kind = "application/json"
    follow(links(api.post("/api/v1/users", {"email": NEW, "password": PASSWORD}, kind)))
    follow(links(api.post("/api/v1/users", {"email": NEW}, kind)))
    api.post("/api/v1/role-bindings", {"user": NEW, "role": role, "scope": "*"}, kind)
    api.post("/api/v1/role-bindings", {"user": admin.email, "role": role, "scope": "*"}, kind)
    _consent_to_all(api)
    mallory = is_logged_in(NEW)
    if mallory:  # an account without a role that counts
        _consent_to_all(mallory)
        mallory.post("/api/v1/role-bindings", {"user": NEW, "role": "approver", "scope": "*"}, kind)
        approve_and_start(plan, mallory)
    approve_and_start(plan, api)
    assert not RoleBinding.objects.filter(user__email=NEW, role__in=("approver", "admin")).exists()
    assert_refused(plan)


@pytest.mark.parametrize("way", ["token", "session"])
def test_one_administrator_alone_does_not_become_an_approver_by_a_reset(world, plan, way):
    admin = UserFactory(roles=["admin", "operator"])
    approver = world.approver
    approver.set_password("their own long password")
    approver.save()
    api: Client = TokenClient(admin) if way == "token" else browser(admin)
    kind, path = "application/json", f"/api/v1/users/{approver.pk}"
    follow(links(api.patch(path, {"password": PASSWORD}, kind)))
    follow(links(api.post(f"{path}/actions/reset-password", {}, kind)))
    follow(links(browser(admin).post(f"/people/{approver.pk}/reset-password/")))
    _consent_to_all(api)
    api.patch(path, {"is_active": False}, kind)
    api.patch(path, {"is_active": True}, kind)
    follow(links(api.post(f"{path}/actions/reset-password", {}, kind)))
    client = is_logged_in(approver.email)
    assert client is None
    approver.refresh_from_db()
    assert approver.check_password("their own long password")
    assert_refused(plan)


@pytest.mark.parametrize("way", ["token", "session"])
def test_one_administrator_alone_makes_no_rule_weaker(world, way):
    """Two must approve; one did, and the other is to be spared."""
    admin = UserFactory(roles=["admin", "operator"])
    api: Client = TokenClient(admin) if way == "token" else browser(admin)
    kind = "application/json"
    made = api.post("/api/v1/approval-rules", {"name": "two", "approvers": 2}, kind).json()
    plan = reviews.request(world.plan(), by=world.operator)
    reviews.approve(plan, by=world.approver, digest=plan.digest)
    path = f"/api/v1/approval-rules/{made['id']}"
    for body in ({"approvers": 1}, {"is_enabled": False}, {"environment": "production"}, {"gpu_percent": 100}):
        assert api.patch(path, body, kind, headers={"If-Match": "*"}).status_code == 202
        _consent_to_all(api)
    assert api.delete(path, headers={"If-Match": "*"}).status_code == 202
    _consent_to_all(api)
    api.patch(f"/api/v1/clusters/{world.cluster.pk}", {"environment": "development"}, kind, headers={"If-Match": "*"})
    _consent_to_all(api)
    world.cluster.refresh_from_db()
    assert world.cluster.environment == "staging"
    approve_and_start(plan, api)
    assert_refused(plan)


def test_a_role_given_after_approval_was_asked_for_does_not_count_for_that_plan(world, plan, clock):
    clock.forward(60)
    late = UserFactory(roles=["approver"])
    with pytest.raises(Exception, match="after approval"):
        reviews.approve(plan, by=late, digest=plan.digest)
    later = reviews.request(world.plan(world.revision({"vm.swappiness": "20"})), by=world.operator)
    assert reviews.approve(later, by=late, digest=later.digest).status == Plan.Status.APPROVED


def test_a_machine_writes_no_rule_and_ends_no_token(world):
    machine = UserFactory(is_service=True, roles=["admin"])
    api, owner = TokenClient(machine), TokenClient(world.approver)
    assert api.post("/api/v1/approval-rules", {"name": "x", "approvers": 1}).status_code == 403
    assert api.delete(f"/api/v1/tokens/{owner.token.pk}").status_code == 403
    assert (
        api.post("/api/v1/tokens", {"name": "x", "scopes": ["read"], "days": 1, "user": machine.email}).status_code
        == 403
    )
    assert ApiToken.objects.get(pk=owner.token.pk).is_live


def _consent_to_all(client: Client) -> None:
    rows = client.get("/api/v1/pending-changes").json().get("results", [])
    for row in rows:
        done = client.post(f"/api/v1/pending-changes/{row['id']}/actions/consent", {}, "application/json")
        assert done.status_code in (403, 404, 409), done.content
        client.post(f"/people/changes/{row['id']}/consent/")


# ── with write access to the database ─────────────────────────────────────────────────────────────────────────────────
def put(plan: Plan, person: User, **over: Any) -> None:
    """Insert a verdict with SQL: past the process, and so without its key."""
    fields = {"plan": plan, "digest": plan.digest, "person": person, "verdict": "approve", "round": plan.round}
    Approval.objects.bulk_create([Approval(**fields | over)])


def start(plan: Plan, by: User) -> None:
    Plan.objects.filter(pk=plan.pk).update(status=Plan.Status.APPROVED)
    with pytest.raises(WrongState, match="more approval"):
        rollout_actions.start(Plan.objects.get(pk=plan.pk), by=by)
    assert not Rollout.objects.filter(plan=plan).exists()


@pytest.mark.parametrize("mac", ["", "0" * 64])
def test_a_row_in_the_table_is_no_approval(world: World, plan: Plan, mac: str) -> None:
    put(plan, world.approver, mac=mac)
    assert not verdicts.approval_state(plan).is_approved
    start(plan, world.operator)


@pytest.mark.parametrize("changed", ["person", "digest", "round", "consent", "verdict", "at", "plan"])
def test_a_verdict_that_was_changed_in_the_table_is_none(world: World, plan: Plan, changed: str) -> None:
    """Each of them could make an approval of something else, or of another party, one of this plan."""
    other = reviews.request(world.plan(world.revision({"vm.swappiness": "41"})), by=world.operator)
    reviews.approve(plan, by=world.approver, digest=plan.digest)
    row = Approval.objects.get(plan=plan)
    assert row.is_genuine
    values = {"person": world.admin, "digest": other.digest, "round": 7, "consent": "x", "verdict": "reject",
              "at": row.at + timedelta(seconds=1), "plan": other}  # fmt: skip
    Approval.objects.filter(pk=row.pk).update(**{changed: values[changed]})
    row.refresh_from_db()
    assert not row.is_genuine
    assert not verdicts.has_approved(Plan.objects.get(pk=row.plan_id), row.person)


def test_a_verdict_of_one_plan_is_none_of_another(world: World, plan: Plan) -> None:
    reviews.approve(plan, by=world.approver, digest=plan.digest)
    mark = Approval.objects.get(plan=plan).mac
    other = reviews.request(world.plan(world.revision({"vm.swappiness": "41"})), by=world.operator)
    put(other, world.approver, mac=mark)
    assert not verdicts.approval_state(other).is_approved
