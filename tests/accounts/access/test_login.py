from __future__ import annotations

import threading

import pytest
from django.db import connections
from django.test import Client, RequestFactory

from accounts.access import login
from accounts.access.addresses import client_address
from accounts.models import LoginAttempt
from audit.models import Record
from tests.factories import PASSWORD, UserFactory

pytestmark = pytest.mark.django_db


def attempt(email: str, password: str, client: Client | None = None, **extra: str):
    return (client or Client()).post("/login/", {"email": email, "password": password}, **extra)


def test_the_right_password_lets_in_and_is_recorded() -> None:
    user, client = UserFactory(roles=["viewer"]), Client()
    answer = attempt(user.email.upper(), PASSWORD, client)
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert client.get("/api/v1/me").json()["email"] == user.email
    assert Record.objects.get(action="session.start").actor == user.email


def test_a_wrong_password_says_how_many_tries_are_left_then_pauses_a_minute(clock) -> None:
    user = UserFactory()
    left = [attempt(user.email, "wrong").context["tries_left"] for _ in range(5)]
    assert left == [4, 3, 2, 1, 0]
    paused = attempt(user.email, PASSWORD)
    assert paused.status_code == 429
    assert b"one minute" in paused.content
    clock.forward(61)
    assert attempt(user.email, PASSWORD).status_code == 302


def test_asking_during_the_pause_does_not_prolong_it(clock) -> None:
    user = UserFactory()
    for _ in range(5):
        attempt(user.email, "wrong")
    for _ in range(5):
        clock.forward(11)
        assert attempt(user.email, PASSWORD).status_code == 429
    clock.forward(6)
    assert attempt(user.email, PASSWORD).status_code == 302


def test_unknown_accounts_are_answered_and_counted_alike() -> None:
    UserFactory(email="known@example.com")
    known, unknown = attempt("known@example.com", "wrong"), attempt("unknown@example.com", "wrong")
    assert known.status_code == unknown.status_code == 401
    assert known.context["error"] == unknown.context["error"]


def test_a_pause_is_for_one_account_at_one_address() -> None:
    user, other = UserFactory(), UserFactory()
    for _ in range(6):
        attempt(user.email, "wrong")
    assert attempt(other.email, PASSWORD).status_code == 302
    assert attempt(user.email, PASSWORD, REMOTE_ADDR="192.0.2.7").status_code == 302


def test_one_address_cannot_try_all_accounts() -> None:
    codes = [attempt(f"a{n}@example.com", "wrong").status_code for n in range(login.TRIES_PER_ADDRESS + 1)]
    assert codes[-2:] == [401, 429]


@pytest.mark.parametrize("who", [{"is_active": False}, {"is_service": True}])
def test_deactivated_people_and_machines_do_not_log_in(who: dict[str, bool]) -> None:
    assert attempt(UserFactory(**who).email, PASSWORD).status_code == 401


@pytest.mark.parametrize(
    "target",
    ["https://evil.test/", "//evil.test", "javascript:alert(1)", "/\\evil.test", "plans", "a%0d:b", "..", "login/"],
)
def test_logging_in_never_leads_elsewhere(target: str) -> None:
    answer = Client().post("/login/", {"email": UserFactory().email, "password": PASSWORD, "next": target})
    assert answer["Location"] == "/"


def test_logging_in_leads_to_where_one_wanted() -> None:
    answer = Client().post("/login/", {"email": UserFactory().email, "password": PASSWORD, "next": "/audit/?page=2"})
    assert answer["Location"] == "/audit/?page=2"


def test_success_forgets_the_tries() -> None:
    user = UserFactory()
    attempt(user.email, "wrong")
    attempt(user.email, PASSWORD)
    assert not LoginAttempt.objects.exists()


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address"),
    [
        (0, "1.1.1.1", "9.9.9.9"),
        (1, "6.6.6.6, 1.1.1.1", "1.1.1.1"),
        (2, "6.6.6.6, 1.1.1.1, 2.2.2.2", "1.1.1.1"),
        (1, "", "9.9.9.9"),
    ],
)
def test_only_our_own_proxies_are_believed(settings, proxies: int, forwarded: str, address: str) -> None:
    settings.SETPOINT_PROXIES = proxies
    request = RequestFactory().get("/", REMOTE_ADDR="9.9.9.9", headers={"X-Forwarded-For": forwarded})
    assert client_address(request) == address


@pytest.mark.django_db(transaction=True)
def test_twenty_guesses_at_once_are_five() -> None:
    email, codes, barrier = UserFactory().email, [], threading.Barrier(20)

    def guess() -> None:
        barrier.wait()
        codes.append(attempt(email, "wrong").status_code)
        connections.close_all()

    threads = [threading.Thread(target=guess) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes.count(401) <= 5
    assert codes.count(401) + codes.count(429) == 20
