"""Laws of a log-in with a second factor: no session before the code, and each code once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count

import pytest
from django.db import connection, connections
from django.test import Client

from accounts.access import factors, halfway, login, totp
from accounts.models import LiveSession, LoginAttempt, RecoveryCode, SecondFactor, User
from accounts.people import services
from audit.models import Record
from tests.accounts.authenticator import code, code_step, enroll, is_in, password_step, wrong
from tests.factories import PASSWORD, TokenClient, UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return UserFactory(roles=["viewer"])


def answers_at_once(number: int, act: Callable[[int], int]) -> list[int]:
    codes: list[int] = []
    barrier = threading.Barrier(number)

    def run(index: int) -> None:
        barrier.wait()
        codes.append(act(index))
        connections.close_all()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return codes


# ── Codes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(59, "287082"), (1111111109, "081804"), (1111111111, "050471"), (1234567890, "005924"), (2000000000, "279037")],
)
def test_codes_are_those_of_rfc_6238(seconds: int, shown: str) -> None:
    """Appendix B, SHA-1, its last six digits; the key is the ASCII text 12345678901234567890."""
    at = datetime.fromtimestamp(seconds, UTC)
    assert totp.step_of("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", shown, at) == seconds // 30


@pytest.mark.parametrize(("steps", "status"), [(-3, 401), (-2, 401), (1, 302), (2, 401), (3, 401)])
def test_a_code_counts_one_step_early_or_late(user, clock, steps, status) -> None:
    key, _ = enroll(user)
    clock.forward(minutes=10)
    assert code_step(password_step(user), code(key, steps=steps)) == status


# ── No session before the code ────────────────────────────────────────────────────────────────────────────────────────
def test_the_password_alone_opens_nothing(user, clock) -> None:
    key, _ = enroll(user)
    clock.forward(30)
    LiveSession.objects.all().delete()
    browser = password_step(user)
    assert not is_in(browser)
    assert browser.get("/api/v1/me").status_code in (401, 403)
    assert not LiveSession.objects.exists()
    assert not Record.objects.filter(action="session.start").exists()
    assert code_step(browser, code(key)) == 302
    assert is_in(browser)
    assert Record.objects.get(action="session.start").message.endswith("with a code (app)")
    assert not LoginAttempt.objects.exists()


def test_a_wrong_password_is_answered_alike_with_and_without_a_factor(user) -> None:
    enroll(user)
    other = UserFactory()
    texts = [
        Client().post("/login/", {"email": email, "password": "wrong"}).context["error"]
        for email in (user.email, other.email, "unknown@example.com")
    ]
    assert len(set(texts)) == 1


def test_the_code_leads_to_the_page_that_was_wanted_and_nowhere_else(user, clock) -> None:
    key, _ = enroll(user)
    for wanted, to in (("/audit/?page=2", "/audit/?page=2"), ("//evil.test", "/")):
        clock.forward(30)
        browser = Client()
        page = browser.post("/login/", {"email": user.email, "password": PASSWORD, "next": wanted})
        answer = browser.post("/login/code/", {"code": code(key), "next": page.context["next"]})
        assert answer["Location"] == to


# ── Each code once ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_code_that_was_used_is_refused_in_every_browser(user, clock) -> None:
    key, _ = enroll(user)
    places = count(1)

    def tried(text: str) -> int:
        place = {"REMOTE_ADDR": f"192.0.2.{next(places)}"}
        return code_step(password_step(user, **place), text, **place)

    assert tried(code(key)) == 401, "it confirmed the factor"
    clock.forward(30)
    text = code(key)
    assert tried(text) == 302
    assert tried(text) == 401
    assert tried(code(key, steps=-1)) == 401, "nor one from before"
    clock.forward(29)
    assert tried(text) == 401
    assert tried(code(key)) == 401
    clock.forward(1)
    assert tried(code(key)) == 302


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["app", "recovery code"])
def test_of_two_requests_with_one_code_one_logs_in(user, kind, clock) -> None:
    key, recovery = enroll(user)
    clock.forward(30)
    browsers = [password_step(user, REMOTE_ADDR=f"192.0.2.{number}") for number in range(4)]
    text = code(key) if kind == "app" else recovery[0]
    answers = answers_at_once(4, lambda index: code_step(browsers[index], text, REMOTE_ADDR=f"192.0.2.{index}"))
    assert sorted(answers) == [302, 401, 401, 401]


def test_a_recovery_code_counts_once_as_people_type_it(user) -> None:
    _, recovery = enroll(user)
    assert len(set(recovery)) == factors.RECOVERY_CODES
    assert code_step(password_step(user), recovery[3].upper().replace("-", " ")) == 302
    assert Record.objects.get(action="session.start").message.endswith("(recovery code)")
    browser = password_step(user)
    assert code_step(browser, recovery[3]) == 401
    assert code_step(browser, recovery[4]) == 302
    assert "8 recovery codes are left" in browser.get("/account/").content.decode()


def test_what_the_tables_hold_is_no_code(user) -> None:
    key, recovery = enroll(user)
    with connection.cursor() as cursor:
        stored = ""
        for table in ("accounts_secondfactor", "accounts_recoverycode", "django_session", "audit_record"):
            cursor.execute(f"SELECT * FROM {table}")
            stored += str([[bytes(v) if isinstance(v, memoryview) else v for v in row] for row in cursor.fetchall()])
    assert "second-factor.enroll" in stored
    for secret in (key, *recovery, *(text.replace("-", "") for text in recovery)):
        assert secret not in stored


# ── Tries ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_codes_are_counted_with_passwords(user, clock) -> None:
    key, _ = enroll(user)
    clock.forward(30)
    browser = password_step(user)
    assert [code_step(browser, wrong(key)) for _ in range(login.TRIES)] == [401] * 4 + [429]
    assert code_step(browser, code(key)) == 429
    refused = Record.objects.filter(action="session.refuse-code", target=f"user:{user.pk}")
    assert refused.count() == 4, "each tells that the password is known"
    assert Client().post("/login/", {"email": user.email, "password": PASSWORD}).status_code == 429
    clock.forward(61)
    assert code_step(browser, code(key)) == 302
    page = browser.get("/account/").content.decode()
    assert "4 wrong codes were entered after your password" in page, "it may be known to another person"


def test_a_right_password_in_between_gives_no_more_tries(user, clock) -> None:
    key, _ = enroll(user)
    answers = []
    for _ in range(4):
        browser = Client()
        if browser.post("/login/", {"email": user.email, "password": PASSWORD}).status_code == 200:
            answers.append(code_step(browser, wrong(key)))
    assert answers.count(401) <= login.TRIES // 2


def test_guessing_from_many_addresses_ends_and_recovery_codes_work_on(user, clock) -> None:
    key, recovery = enroll(user)
    clock.forward(30)
    SecondFactor.objects.update(wrong_codes=factors.MOST_WRONG_CODES - 6)
    statuses = []
    for number in range(8):
        place = {"REMOTE_ADDR": f"2001:db8::{number:x}"}
        statuses.append(code_step(password_step(user, **place), wrong(key), **place))
    assert statuses == [401] * 6 + [403] * 2
    assert code_step(password_step(user), code(key)) == 403
    assert code_step(password_step(user), recovery[0]) == 302
    assert code_step(password_step(user), code(key)) == 302


@pytest.mark.django_db(transaction=True)
def test_a_crowd_of_guesses_at_once_is_counted_each(user) -> None:
    key, _ = enroll(user)
    SecondFactor.objects.update(wrong_codes=factors.MOST_WRONG_CODES - 3)
    row = SecondFactor.objects.get()

    def guess(_: int) -> int:
        try:
            return 200 if factors.spend(row, wrong(key)) else 401
        except factors.FactorUnusable:
            return 403

    assert sorted(answers_at_once(8, guess)) == [401] * 3 + [403] * 5


# ── A log-in between password and code ────────────────────────────────────────────────────────────────────────────────
def test_a_code_needs_a_password_in_the_same_browser_and_in_time(user, clock) -> None:
    key, _ = enroll(user)
    clock.forward(30)
    assert code_step(Client(), code(key)) == 401
    browser = password_step(user)
    clock.forward(halfway.LASTS.total_seconds())
    assert code_step(browser, code(key)) == 401
    assert Client().get("/login/code/")["Location"] == "/login/"
    assert code_step(password_step(user), code(key)) == 302, "the code was not used up"


def test_a_session_that_was_planted_in_the_browser_gets_no_share_of_its_log_in(user, clock) -> None:
    key, _ = enroll(user)
    clock.forward(30)
    browser, thief = password_step(user), Client()
    planted = browser.cookies["sessionid"].value
    thief.cookies["sessionid"] = planted
    password_step(user, browser)
    clock.forward(61)
    assert code_step(thief, code(key)) == 401, "the key was replaced with the password"
    thief.cookies["sessionid"] = browser.cookies["sessionid"].value
    assert code_step(browser, code(key)) == 302
    assert not is_in(thief), "and once more with the code"


@pytest.mark.parametrize("what", ["deactivated", "password", "removed", "changed in the table", "moved"])
def test_a_change_in_between_ends_it(user, clock, what) -> None:
    key, _ = enroll(user)
    clock.forward(30)
    browser = password_step(user)
    if what == "deactivated":
        services.change_user(user=user, by=UserFactory(roles=["admin"]), is_active=False)
    elif what == "password":
        services.set_password(user=user, password="another long password", by="a test")
    elif what == "removed":
        SecondFactor.objects.all().delete()
    elif what == "changed in the table":
        User.objects.filter(pk=user.pk).update(is_superuser=True)
    else:
        SecondFactor.objects.update(user=UserFactory())
    assert code_step(browser, code(key)) == 401
    assert not is_in(browser)


# ── Rows of power ─────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("change", [{"confirmed_at": None}, {"last_step": 0}, {"mac": ""}, {"secret": b"other"}])
def test_a_factor_changed_in_the_table_accepts_no_code_and_is_not_left_out(user, clock, change) -> None:
    key, _ = enroll(user)
    clock.forward(30)
    SecondFactor.objects.update(**change)
    browser = password_step(user)
    assert code_step(browser, code(key)) == 403
    assert not is_in(browser)


def test_ones_own_key_in_the_row_of_another_opens_nothing(user, clock) -> None:
    enroll(user)
    mallory = UserFactory()
    key, recovery = enroll(mallory)
    mine = SecondFactor.objects.get(user=mallory)
    SecondFactor.objects.filter(user=user).update(secret=mine.secret, secret_key=mine.secret_key)
    RecoveryCode.objects.filter(factor=mine).update(factor=SecondFactor.objects.get(user=user))
    clock.forward(30)
    assert code_step(password_step(user), code(key)) == 403
    assert code_step(password_step(user), recovery[0]) == 401


def test_a_key_that_is_not_configured_is_named_to_no_one_outside_and_recovery_codes_work(user, settings, clock) -> None:
    from cryptography.fernet import Fernet

    key, recovery = enroll(user)
    clock.forward(30)
    settings.SETPOINT_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    browser = password_step(user)
    answer = browser.post("/login/code/", {"code": code(key)})
    assert answer.status_code == 403
    row = SecondFactor.objects.get()
    assert row.secret_key not in answer.content.decode()
    assert row.wrong_codes == 0, "no code was compared"
    assert code_step(browser, recovery[0]) == 302


def test_tokens_ask_for_no_code(user) -> None:
    client = TokenClient(user, ["read"])
    enroll(user)
    assert client.get("/api/v1/me").status_code == 200
