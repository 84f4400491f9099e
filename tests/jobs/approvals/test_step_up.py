"""Laws of SETPOINT_STEP_UP: an approver of what is disruptive enough has logged in a short while ago."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.access import tokens
from audit.models import Record
from common.clock import now
from config import env
from config.env import BadEnvironment
from jobs.approvals import reviews, step_up
from jobs.diffs.changes import Disruption
from jobs.models import Approval, Plan
from jobs.policy.judgement import NO_POLICY
from tests.accounts import authenticator
from tests.factories import PASSWORD, UserFactory
from tests.jobs.conftest import World

CONFIRM = "/account/confirm/"


@pytest.fixture(autouse=True)
def _asked_of_reboots(settings) -> None:
    settings.SETPOINT_STEP_UP = "drain"
    settings.SETPOINT_STEP_UP_MINUTES = 15


@pytest.fixture
def reboot(world: World) -> Plan:
    world.approver.set_password(PASSWORD)
    world.approver.save(update_fields=["password"])
    return reviews.request(world.plan(world.revision({"cmdline.iommu": "pt"})), by=world.operator)


def logged_in(person) -> Client:
    client = Client()
    assert client.post("/login/", {"email": person.email, "password": PASSWORD}).status_code == 302
    return client


def approve(client: Client, plan: Plan, **typed: str):
    fields = {"verdict": "approve", "digest": plan.digest, "comment": "Tonight is fine."} | typed
    return client.post(f"/plans/P-{plan.number}/verdict/", fields)


def approve_by_rest(client: Client, plan: Plan, **headers: str):
    path = f"/api/v1/plans/{plan.pk}/actions/approve"
    return client.post(path, {"digest": plan.digest}, content_type="application/json", headers=headers)


def given() -> int:
    return Approval.objects.count()


def test_a_log_in_counts_for_so_long_and_not_a_second_more(world, reboot, clock) -> None:
    client = logged_in(world.approver)
    clock.forward(15 * 60 + 1)
    page = client.get(f"/plans/P-{reboot.number}/")
    assert f"{CONFIRM}?next=/plans/P-{reboot.number}/" in page.content.decode()

    refused = approve(client, reboot)
    assert (refused.status_code, given()) == (403, 0)
    text = refused.content.decode()
    assert "Tonight is fine." in text
    assert f"{CONFIRM}?next=" in text
    over_rest = approve_by_rest(client, reboot)
    assert (over_rest.status_code, over_rest.json()["code"], given()) == (403, "fresh-login-needed", 0)

    clock.forward(-1)
    assert CONFIRM not in client.get(f"/plans/P-{reboot.number}/").content.decode()
    assert (approve(client, reboot).status_code, given()) == (302, 1)


def test_confirming_with_the_password_is_enough_and_is_recorded(world, reboot, clock) -> None:
    client = logged_in(world.approver)
    clock.forward(3600)
    page = client.get(f"{CONFIRM}?next=/plans/P-{reboot.number}/").content.decode()
    assert 'name="code"' not in page
    wrong = client.post(CONFIRM, {"password": "not it", "next": "/plans/"})
    assert (wrong.status_code, approve(client, reboot).status_code) == (422, 403)
    confirmed = client.post(CONFIRM, {"password": PASSWORD, "next": f"/plans/P-{reboot.number}/"})
    assert (confirmed.status_code, confirmed["Location"]) == (302, f"/plans/P-{reboot.number}/")
    assert Record.objects.filter(action="session.confirm", actor=world.approver.email).count() == 1
    assert (approve(client, reboot).status_code, given()) == (302, 1)


def test_the_password_is_guessed_no_faster_here_than_at_a_log_in(world, clock) -> None:
    world.approver.set_password(PASSWORD)
    world.approver.save(update_fields=["password"])
    client = logged_in(world.approver)
    assert [client.post(CONFIRM, {"password": f"guess {n}"}).status_code for n in range(6)] == [422] * 5 + [429]
    assert client.post(CONFIRM, {"password": PASSWORD}).status_code == 429


def test_who_has_a_second_factor_confirms_with_both(world, reboot, clock) -> None:
    key, _ = authenticator.enroll(world.approver)
    client = Client()
    client.force_login(world.approver)
    assert approve(client, reboot).status_code == 403
    assert client.post(CONFIRM, {"password": PASSWORD}).status_code == 422
    assert client.post(CONFIRM, {"password": PASSWORD, "code": authenticator.wrong(key)}).status_code == 422
    assert approve(client, reboot).status_code == 403
    clock.forward(90)
    assert client.post(CONFIRM, {"password": PASSWORD, "code": authenticator.code(key)}).status_code == 302
    assert (approve(client, reboot).status_code, given()) == (302, 1)


def test_no_token_approves_it_not_even_beside_a_fresh_session(world, reboot) -> None:
    client = logged_in(world.approver)
    _, text = tokens.issue(user=world.approver, name="mine", scopes=["read", "approve"], days=1, by=world.approver)
    assert approve_by_rest(Client(), reboot, authorization=f"Bearer {text}").status_code == 403
    assert approve_by_rest(client, reboot, authorization=f"Bearer {text}").status_code == 403
    assert given() == 0
    assert approve_by_rest(client, reboot).status_code == 202


def test_a_session_whose_log_in_is_not_known_is_none_of_the_last_minutes(world, reboot) -> None:
    client = Client()
    client.force_login(world.approver)
    assert (approve(client, reboot).status_code, given()) == (403, 0)


def test_another_browser_of_the_person_has_to_confirm_itself(world, reboot, clock) -> None:
    stolen = logged_in(world.approver)
    clock.forward(3600)
    logged_in(world.approver)
    assert (approve(stolen, reboot).status_code, given()) == (403, 0)


def test_a_password_that_logs_nobody_in_confirms_nothing(world, reboot, clock, settings) -> None:
    """An old password does not replace the provider, where passwords are for emergency accounts."""
    client = logged_in(world.approver)
    clock.forward(3600)
    settings.SETPOINT_LOCAL_ACCOUNTS = ("emergency@example.com",)
    assert client.post(CONFIRM, {"password": PASSWORD}).status_code == 403
    assert 'type="password"' not in client.get(CONFIRM).content.decode()
    assert (approve(client, reboot).status_code, given()) == (403, 0)


def test_what_cannot_be_taken_back_takes_one_of_any_class(world, clock) -> None:
    """A plan that formats disks or destroys objects asks for typed consent; its class may be live."""
    live = Plan(worst_class=Disruption.LIVE, summary={})
    assert not step_up.is_too_old(live, None)
    live.summary = {"consent": "format 2 disks in atlas"}
    assert step_up.is_too_old(live, None)
    assert not step_up.is_too_old(live, now())


@pytest.mark.parametrize("verdict", ["request-changes", "reject"])
def test_what_stops_a_plan_takes_none(world, reboot, clock, verdict) -> None:
    client = logged_in(world.approver)
    clock.forward(3600)
    assert approve(client, reboot, verdict=verdict).status_code == 302


def test_what_is_less_disruptive_takes_none_and_without_the_setting_nothing_does(
    world, reboot, clock, settings
) -> None:
    live = reviews.request(world.plan(), by=world.operator)
    client = logged_in(world.approver)
    clock.forward(3600)
    assert CONFIRM not in client.get(f"/plans/P-{live.number}/").content.decode()
    assert approve(client, live).status_code == 302
    settings.SETPOINT_STEP_UP = ""
    assert approve(client, reboot).status_code == 302


def test_every_class_from_the_named_one_up_takes_it(settings) -> None:
    for least in Disruption:
        settings.SETPOINT_STEP_UP = least
        concerned = [worst for worst in Disruption if step_up.is_too_old(Plan(worst_class=worst), None, NO_POLICY)]
        assert concerned == [worst for worst in Disruption if worst.rank >= least.rank]
        assert not any(step_up.is_too_old(Plan(worst_class=worst), now(), NO_POLICY) for worst in Disruption)


def test_a_session_renamed_by_a_new_password_keeps_its_time(world, reboot, clock) -> None:
    """The present password is asked for there; yet it is no log-in."""
    client = logged_in(world.approver)
    clock.forward(3600)
    changed = client.post("/account/password/", {"old": PASSWORD, "new": "a very long new one"})
    assert changed.status_code == 302
    assert approve(client, reboot).status_code == 403


def test_the_setting_is_one_class(monkeypatch) -> None:
    monkeypatch.setenv("SETPOINT_STEP_UP", "reboot")
    assert env.one_of("SETPOINT_STEP_UP", tuple(Disruption)) == "reboot"
    monkeypatch.setenv("SETPOINT_STEP_UP", "")
    assert env.one_of("SETPOINT_STEP_UP", tuple(Disruption)) == ""
    monkeypatch.setenv("SETPOINT_STEP_UP", "all")
    with pytest.raises(BadEnvironment, match=r"SETPOINT_STEP_UP.*'all'"):
        env.one_of("SETPOINT_STEP_UP", tuple(Disruption))


def test_a_proof_of_a_clock_that_was_ahead_is_not_recent_for_hours(world, reboot, clock) -> None:
    clock.forward(3600)
    client = logged_in(world.approver)
    clock.forward(-3600)
    assert (approve(client, reboot).status_code, given()) == (403, 0)


@pytest.mark.django_db
def test_who_has_no_password_is_told_what_to_do() -> None:
    client = Client()
    person = UserFactory(roles=["viewer"])
    person.set_unusable_password()
    person.save(update_fields=["password"])
    client.force_login(person)
    page = client.get(CONFIRM).content.decode()
    assert 'type="password"' not in page
    assert "log in again" in page
