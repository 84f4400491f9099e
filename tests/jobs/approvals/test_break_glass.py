"""Laws of break-glass: a start without approval, by a permitted person in a browser, and reviewed by two others."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from rest_framework.settings import api_settings

from accounts.access import tokens
from accounts.access.authentication import BearerToken
from accounts.models import PendingChange, RoleBinding, User
from accounts.people import services
from accounts.permissions import Role
from audit.models import Record
from common.clock import now
from common.errors import Invalid, NotAllowed, WrongState
from jobs import tasks
from jobs.approvals import glass, glass_reviews, reviews, step_up
from jobs.hooks import alert_rules
from jobs.models import BreakGlass, CalendarRule, Freeze, GlassReview, Plan, Rollout
from jobs.rollouts import glass_start, rollout_actions
from tests.factories import PASSWORD, UserFactory
from tests.jobs.approvals.test_approvals_at_once import at_once
from tests.jobs.conftest import World

REASON = "The link flaps; waiting costs the run."


@pytest.fixture(autouse=True)
def _on(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SETPOINT_BREAK_GLASS_CLASS = "drain"
    monkeypatch.setattr(tasks, "wake", lambda pk: None)


@pytest.fixture
def breaker(world: World) -> User:
    """A person with the permission and the role operator, who wrote nothing of the plans."""
    return person("operator", "break-glass")


def person(*roles: str) -> User:
    user = UserFactory(roles=list(roles))
    user.set_password(PASSWORD)
    user.save(update_fields=["password"])
    return User.objects.get(pk=user.pk)


def logged_in(user: User) -> Client:
    client = Client()
    assert client.post("/login/", {"email": user.email, "password": PASSWORD}).status_code == 302
    return client


def break_by_page(client: Client, plan: Plan, **typed: str):
    fields = {"digest": plan.digest, "reason": REASON, "confirmation": str(plan)} | typed
    return client.post(f"/plans/{plan}/break-glass/", fields)


def broken(plan: Plan, by: User, **changed: object) -> Rollout:
    given = {"digest": plan.digest, "reason": REASON, "confirmation": str(plan), "proved_at": now()} | changed
    return glass_start.start(plan, by=by, **given)


def fresh(user: User) -> User:
    """Read the person as the next request does."""
    return User.objects.get(pk=user.pk)


# ── the start ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_it_starts_outside_windows_is_marked_and_reviewed(world, plan, breaker, clock, closed_window) -> None:
    client = logged_in(breaker)
    page = client.get(f"/plans/{plan}/").content.decode()
    assert 'data-glass="yes"' in page
    answer = break_by_page(client, plan)
    assert answer.status_code == 302
    rollout = Rollout.objects.get()
    assert (rollout.plan_id, rollout.glass.reason, rollout.glass.worst_class) == (plan.pk, REASON, plan.worst_class)
    (record,) = Record.objects.filter(action="rollout.break-glass")
    assert (record.actor, record.message) == (breaker.email, REASON)
    assert record.after["missing_approvals"] == 1

    world.slice(rollout)
    assert rollout.status == Rollout.Status.RUNNING, rollout.waiting_for
    assert rollout.steps.exclude(status="queued").exists()
    for path in (f"/plans/{plan}/", f"/rollouts/{rollout}/", "/rollouts/", "/"):
        assert "reak-glass" in client.get(path).content.decode(), path
    seen = client.get(f"/api/v1/rollouts/{rollout.pk}").json()["break_glass"]
    assert (seen["by"], seen["state"], seen["missing"]) == (breaker.email, "open", 2)

    reviewer = logged_in(person_of(world.approver))
    assert f"{rollout} waits for your review" in reviewer.get("/").content.decode()
    assert f"{rollout} waits for your review" not in client.get("/").content.decode()
    stored = reviewer.post(f"/rollouts/{rollout}/review/", {"verdict": "ok", "text": "The link did flap."})
    assert stored.status_code == 302
    _, token = tokens.issue(user=world.second, name="t", scopes=["read", "approve"], days=1, by=world.second)
    path = f"/api/v1/rollouts/{rollout.pk}/actions/review-break-glass"
    over_rest = Client().post(
        path, {"verdict": "not-ok", "text": "It could wait."}, content_type="application/json",
        headers={"authorization": f"Bearer {token}"},
    )  # fmt: skip
    assert over_rest.status_code == 202, over_rest.content
    assert over_rest.json()["break_glass"]["state"] == "reviewed"
    assert {row["verdict"] for row in over_rest.json()["break_glass"]["reviews"]} == {"ok", "not-ok"}
    assert 'data-glass="open"' not in client.get("/").content.decode()
    assert seen["reason"] in client.get(f"/rollouts/{rollout}/").content.decode()


def person_of(user: User) -> User:
    user.set_password(PASSWORD)
    user.save(update_fields=["password"])
    return user


@pytest.fixture
def closed_window(world: World):
    """A window of the cluster that is closed now."""
    return CalendarRule.objects.create(
        name="patch night",
        kind="window",
        cluster=world.cluster,
        starts=f"{now() + timedelta(days=3):%Y-%m-%dT%H:%M}",
        zone="UTC",
        minutes=60,
        rule="FREQ=MONTHLY",
    )


def test_it_is_not_broken_from_outside_of_a_persons_address_ranges(world, plan, breaker) -> None:
    client = logged_in(breaker)
    User.objects.get(pk=breaker.pk).put_marked(networks="192.0.2.0/24")
    assert break_by_page(client, plan).status_code == 401
    assert not Rollout.objects.exists()


def test_no_authentication_of_the_api_breaks_the_glass(world, plan, breaker) -> None:
    """Every authentication class of the API is tried: a new one has to be added here."""
    _, token = tokens.issue(user=breaker, name="t", scopes=["read", "plan", "apply", "approve"], days=1, by=breaker)
    bearer = {"authorization": f"Bearer {token}"}
    session = logged_in(breaker)
    knocks = {
        "BearerToken": [(Client(), bearer), (session, bearer)],
        "SessionAuthentication": [(session, {})],
    }
    assert {kind.__name__ for kind in api_settings.DEFAULT_AUTHENTICATION_CLASSES} == set(knocks)
    assert BearerToken in api_settings.DEFAULT_AUTHENTICATION_CLASSES
    for client, headers in (each for many in knocks.values() for each in many):
        path = f"/api/v1/plans/{plan.pk}/actions/start"
        marked = client.post(path, {"break_glass": True}, content_type="application/json", headers=headers)
        assert (marked.status_code, marked.json()["code"]) == (403, "break-glass-in-browser")
        plain = client.post(path, {}, content_type="application/json", headers=headers)
        assert plain.status_code == 409
    page = Client().post(f"/plans/{plan}/break-glass/", {"digest": plan.digest}, headers=bearer)
    assert page.status_code in (302, 401)
    breaker.acting_token = tokens.authenticate(token, address="127.0.0.1")
    with pytest.raises(NotAllowed) as refused:
        broken(plan, breaker)
    assert isinstance(refused.value, glass.NeverOverRest)
    assert not Rollout.objects.exists()


@pytest.mark.parametrize(
    "roles",
    [("operator",), ("break-glass",), ("approver", "admin", "operator"), ("operator", "break-glass@env:production")],
)
def test_it_takes_both_roles_where_the_cluster_is(world, plan, roles) -> None:
    user = person(*roles)
    client = logged_in(user)
    assert "data-glass=" not in client.get(f"/plans/{plan}/").content.decode()
    assert break_by_page(client, plan).status_code == 403
    assert not Rollout.objects.exists()


def test_no_superuser_and_no_service_account_has_it_unless_given(world, plan) -> None:
    boss = UserFactory(is_superuser=True)
    with pytest.raises(NotAllowed, match="break-glass"):
        broken(plan, boss)
    machine = UserFactory(is_service=True)
    with pytest.raises(Invalid, match="never breaks the glass"):
        services.bind(user=machine, role="break-glass", scope="*", by="operator of the machine")
    RoleBinding.objects.create(user=machine, role="break-glass", scope="*")
    RoleBinding.objects.create(user=machine, role="operator", scope="*")
    with pytest.raises(NotAllowed):
        broken(plan, fresh(machine))


def test_one_administrator_alone_gives_it_to_nobody(world) -> None:
    UserFactory(roles=["admin"])
    services.bind(user=world.operator, role="break-glass", scope="*", by=world.admin)
    assert PendingChange.objects.get().kind == "role.grant"
    assert not RoleBinding.objects.filter(role=Role.BREAK_GLASS).exists()


def test_a_recent_log_in_is_asked_for_whatever_step_up_says(world, plan, breaker, clock, settings) -> None:
    settings.SETPOINT_STEP_UP = ""
    client = logged_in(breaker)
    clock.forward(settings.SETPOINT_STEP_UP_MINUTES * 60 + 1)
    refused = break_by_page(client, plan)
    text = refused.content.decode()
    assert (refused.status_code, Rollout.objects.count()) == (403, 0)
    assert f"{step_up.CONFIRM}?next=" in text
    assert REASON in text
    with pytest.raises(step_up.FreshLoginNeeded):
        broken(plan, breaker, proved_at=None)
    assert client.post(step_up.CONFIRM, {"password": PASSWORD}).status_code == 302
    assert break_by_page(client, plan).status_code == 302


def test_what_is_typed_is_checked_field_by_field(world, plan, breaker) -> None:
    for typed in ({"reason": " "}, {"reason": "x" * 501}, {"confirmation": "yes"}, {"confirmation": ""}):
        with pytest.raises(Invalid) as refused:
            broken(plan, breaker, **typed)
        assert set(refused.value.fields) == set(typed)
    client = Client(enforce_csrf_checks=True)
    client.force_login(breaker)
    assert break_by_page(client, plan).status_code == 403
    assert not Rollout.objects.exists()


def test_the_plan_is_the_one_that_was_seen_and_of_an_allowed_class(world, breaker, settings) -> None:
    plan = reviews.request(world.plan(), by=world.operator)
    with pytest.raises(WrongState, match="not what you saw"):
        broken(plan, breaker, digest="sha256:" + "0" * 64)
    for most in ("", "live"):
        settings.SETPOINT_BREAK_GLASS_CLASS = most
        reboot = (
            plan
            if not most
            else reviews.request(world.plan(world.revision({"cmdline.iommu": "pt"})), by=world.operator)
        )
        with pytest.raises(WrongState, match="SETPOINT_BREAK_GLASS_CLASS"):
            broken(reboot, breaker)
    # Lowered in the table after the page was shown: the mark of the row, and the digest, name the class.
    Plan.objects.filter(pk=reboot.pk).update(worst_class="live")
    with pytest.raises(WrongState):
        broken(reboot, breaker)
    assert not Rollout.objects.exists()


@pytest.mark.parametrize("state", ["draft", "changes", "rejected", "consent", "freeze", "needless", "uncounted"])
def test_what_it_does_not_pass(world, breaker, state) -> None:
    plan = world.plan()
    if state != "draft":
        plan = reviews.request(plan, by=world.operator)
    if state == "changes":
        plan = reviews.request_changes(plan, by=world.approver, digest=plan.digest, comment="Smaller.")
    elif state == "rejected":
        plan = reviews.reject(plan, by=world.approver, digest=plan.digest, comment="No.")
    elif state == "needless":
        plan = reviews.approve(plan, by=world.approver, digest=plan.digest)
    elif state == "freeze":
        Freeze.objects.create(reason="Quarter end")
    elif state == "consent":
        Plan.objects.filter(pk=plan.pk).update(summary=plan.summary | {"consent": "format 2 disks in atlas"})
    elif state == "uncounted":
        Plan.objects.filter(pk=plan.pk).update(is_uncounted=True)
    with pytest.raises(WrongState):
        broken(plan, breaker)
    assert not Rollout.objects.exists()


def test_a_permission_that_is_taken_away_ends_it_at_the_post_and_before_the_begin(world, plan, breaker, clock) -> None:
    client = logged_in(breaker)
    assert 'data-glass="yes"' in client.get(f"/plans/{plan}/").content.decode()
    RoleBinding.objects.filter(user=breaker, role="break-glass").delete()
    assert (break_by_page(client, plan).status_code, Rollout.objects.count()) == (403, 0)

    RoleBinding.objects.create(user=breaker, role="break-glass", scope="*")
    rollout = broken(plan, fresh(breaker))
    RoleBinding.objects.filter(user=breaker, role="break-glass").delete()
    world.slice(rollout)
    assert rollout.status == Rollout.Status.QUEUED
    assert "no longer use break-glass" in rollout.waiting_for


def test_one_that_has_not_begun_in_time_never_begins(world, plan, breaker, clock, settings) -> None:
    rollout = broken(plan, breaker)
    clock.forward(settings.SETPOINT_BREAK_GLASS_HOURS * 3600 + 1)
    world.look()
    world.slice(rollout)
    assert rollout.status == Rollout.Status.QUEUED
    assert "expired" in rollout.waiting_for


def test_a_row_that_was_put_into_the_table_lets_nothing_begin(world, plan, breaker) -> None:
    """A changed row, and one that is gone: each of them leaves a rollout without approvals that never begins."""
    rollout = broken(plan, breaker)
    BreakGlass.objects.filter(rollout=rollout).update(until=now() + timedelta(days=9))
    world.slice(rollout)
    assert rollout.status == Rollout.Status.QUEUED
    BreakGlass.objects.filter(rollout=rollout).delete()
    world.slice(Rollout.objects.get(pk=rollout.pk))
    assert Rollout.objects.get().status == Rollout.Status.QUEUED


@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_starts(world, plan, breaker) -> None:
    refusals = at_once(*[lambda: broken(Plan.objects.get(pk=plan.pk), fresh(breaker))] * 2)
    assert [type(refusal) for refusal in refusals] == [WrongState]
    assert Rollout.objects.count() == BreakGlass.objects.count() == 1
    with pytest.raises(WrongState):
        rollout_actions.start(Plan.objects.get(), by=world.operator)


def test_a_plan_that_was_altered_after_its_page_was_shown_does_not_start(world, plan, breaker) -> None:
    client = logged_in(breaker)
    assert 'data-glass="yes"' in client.get(f"/plans/{plan}/").content.decode()
    plan.nodes.all().delete()
    assert break_by_page(client, plan).status_code == 409
    assert not Rollout.objects.exists()


# ── the review ────────────────────────────────────────────────────────────────────────────────────────────────────────
def reviewed(rollout: Rollout, by: User, verdict: str = "ok", text: str = "Checked.") -> GlassReview:
    row = Rollout.objects.get(pk=rollout.pk)
    return glass_reviews.review(row, by=fresh(by), verdict=verdict, text=text, proved_at=now())


def test_two_others_review_it_who_could_have_approved_it(world, plan, clock) -> None:
    starter = person("operator", "break-glass", "approver")
    rollout = broken(plan, starter)
    clock.forward(60)
    made_by_starter = person("approver")  # given after the start
    machine = UserFactory(is_service=True)
    RoleBinding.objects.create(user=machine, role="approver", scope="*", created_at=now() - timedelta(days=1))
    for refused in (starter, world.operator, world.author, world.admin, made_by_starter, machine):
        with pytest.raises(NotAllowed):
            reviewed(rollout, refused)
    for wrong in ({"verdict": "fine"}, {"text": " "}, {"text": "x" * 2001}):
        with pytest.raises(Invalid):
            reviewed(rollout, world.approver, **wrong)
    reviewed(rollout, world.approver)
    with pytest.raises(NotAllowed, match="already"):
        reviewed(rollout, world.approver)
    assert BreakGlass.objects.get().state == "open"
    RoleBinding.objects.filter(user=world.second).delete()
    with pytest.raises(NotAllowed):
        reviewed(rollout, world.second)
    assert GlassReview.objects.count() == 1


def test_a_review_that_was_put_into_the_table_does_not_count(world, plan, breaker) -> None:
    rollout = broken(plan, breaker)
    reviewed(rollout, world.approver)
    row = reviewed(rollout, world.second, verdict="not-ok")
    assert BreakGlass.objects.get().state == "reviewed"
    GlassReview.objects.filter(pk=row.pk).update(verdict="ok")
    assert (BreakGlass.objects.get().state, BreakGlass.objects.get().missing) == ("open", 1)


def test_an_overdue_review_is_reported_once_and_blocks_its_starter(world, plan, breaker, clock, settings) -> None:
    rollout = broken(plan, breaker)
    assert glass_reviews.report_overdue() == 0
    clock.forward(settings.SETPOINT_BREAK_GLASS_REVIEW_HOURS * 3600 + 1)
    world.look()
    assert [glass_reviews.report_overdue(), glass_reviews.report_overdue()] == [1, 0]
    assert Record.objects.filter(action="rollout.break-glass-overdue").count() == 1
    text = logged_in(breaker).get("/").content.decode()
    assert 'data-glass="overdue"' in text
    (condition,) = alert_rules.unreviewed(world.cluster.pk, 0).conditions
    assert condition.name == str(rollout)
    assert 'setpoint_break_glass_reviews{state="overdue"} 1.0' in Client().get("/metrics").content.decode()

    rollout_actions.abort(rollout, by=breaker)
    world.tick(60)
    again = reviews.request(world.plan(), by=world.operator)
    with pytest.raises(NotAllowed, match="overdue"):
        broken(again, fresh(breaker))
    for reviewer in (world.approver, world.second):
        reviewed(rollout, reviewer)
    assert broken(again, fresh(breaker)).broken_glass
