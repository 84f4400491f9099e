"""Laws of one's own second factor: no effect before it is confirmed, and nothing without password and code."""

from __future__ import annotations

import base64
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.fernet import Fernet
from django.db import connections
from django.test import Client

from accounts import tasks
from accounts.access import enrollment, factors
from accounts.models import Identity, RecoveryCode, SecondFactor, User
from accounts.people import identities
from accounts.providers import OidcProvider
from audit.models import Record
from tests.accounts.authenticator import (
    PAGE,
    begin,
    code,
    code_step,
    enroll,
    is_in,
    password_step,
    recovery_codes,
    wrong,
)
from tests.factories import PASSWORD, UserFactory

pytestmark = pytest.mark.django_db
PROVIDER = OidcProvider("corp", "Corp", "https://id.example.com", (), client_id="setpoint", client_secret="")


@pytest.fixture
def user() -> User:
    return UserFactory(roles=["viewer"])


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def log_in(user: User, password: str = PASSWORD) -> int:
    return Client().post("/login/", {"email": user.email, "password": password}).status_code


def test_the_page_shows_a_key_that_an_app_can_take(user, settings) -> None:
    settings.BASE_URL = "https://setpoint.example.com"
    client = browser(user)
    page = client.post(f"{PAGE}begin/", {"password": PASSWORD})
    link = urlsplit(page.context["begun"].link)
    query = {name: values[0] for name, values in parse_qs(link.query).items()}
    assert (link.scheme, link.netloc) == ("otpauth", "totp")
    assert len(base64.b32decode(query["secret"])) == 20
    assert query["secret"] == page.context["begun"].key
    assert (query["digits"], query["period"], query["algorithm"]) == ("6", "30", "SHA1")
    assert query["issuer"] == "Setpoint setpoint.example.com"
    assert page.context["begun"].link.replace("&", "&amp;") in page.content.decode()


def test_what_is_not_confirmed_has_no_effect(user, clock) -> None:
    client = browser(user)
    key = begin(client)
    assert log_in(user) == 302
    refused = client.post(f"{PAGE}confirm/", {"code": wrong(key)})
    assert refused.status_code == 422
    assert "code" in refused.context["confirm_form"].errors
    assert key == refused.context["begun"].key, "the app may have another one"
    assert log_in(user) == 302
    assert not RecoveryCode.objects.exists()
    clock.forward(enrollment.CONFIRM_WITHIN.total_seconds())
    assert client.post(f"{PAGE}confirm/", {"code": code(key)}).status_code == 409
    assert log_in(user) == 302
    clock.forward(1)
    tasks.forget_old()
    assert not SecondFactor.objects.exists()


def test_a_key_is_confirmed_in_the_browser_that_began_it(user) -> None:
    here, there = browser(user), browser(user)
    key = begin(here)
    assert there.get(PAGE).context["begun"] is None
    assert there.post(f"{PAGE}confirm/", {"code": code(key)}).status_code == 409
    assert here.post(f"{PAGE}confirm/", {"code": code(key)}).status_code == 200


def test_a_key_begun_later_replaces_the_one_that_waits(user) -> None:
    client = browser(user)
    first, second = begin(client), begin(client)
    assert client.post(f"{PAGE}confirm/", {"code": code(first)}).status_code == 422
    assert client.post(f"{PAGE}confirm/", {"code": code(second)}).status_code == 200


def test_it_begins_with_the_password_and_guesses_are_counted(user, clock) -> None:
    client = browser(user)
    answers = [client.post(f"{PAGE}begin/", {"password": "wrong"}).status_code for _ in range(6)]
    assert answers == [422] * 5 + [429]
    assert client.post(f"{PAGE}begin/", {"password": PASSWORD}).status_code == 429
    assert not SecondFactor.objects.exists()
    assert log_in(user) == 302, "a stolen session does not lock its owner out"


def test_confirming_ends_the_other_sessions_and_shows_recovery_codes_once(user) -> None:
    here, there = browser(user), Client()
    there.post("/login/", {"email": user.email, "password": PASSWORD})
    key = begin(here)
    codes = recovery_codes(here.post(f"{PAGE}confirm/", {"code": code(key)}))
    assert len(codes) == factors.RECOVERY_CODES
    assert (is_in(here), is_in(there)) == (True, False)
    again = here.get(PAGE).content.decode()
    assert not any(text in again for text in (*codes, key))
    assert Record.objects.get(action="second-factor.enroll").actor == user.email


@pytest.mark.parametrize("what", ["remove", "renew"])
def test_password_and_code_are_both_needed(user, clock, what) -> None:
    key, recovery = enroll(user)
    clock.forward(30)
    path = f"{PAGE}remove/" if what == "remove" else f"{PAGE}recovery-codes/"
    client = password_step(user)
    code_step(client, recovery[0])

    def act(password: str, text: str) -> int:
        return client.post(path, {f"{what}-password": password, f"{what}-code": text}).status_code

    assert [act("wrong", code(key)), act(PASSWORD, wrong(key)), act(PASSWORD, "")] == [422] * 3
    assert RecoveryCode.objects.count() == factors.RECOVERY_CODES - 1
    assert act(PASSWORD, code(key)) in (200, 302)
    if what == "remove":
        assert not SecondFactor.objects.exists()
        assert log_in(user) == 302
        assert Record.objects.get(action="second-factor.remove").actor == user.email
    else:
        assert act(PASSWORD, code(key)) == 422, "the code was used"
        assert code_step(password_step(user), recovery[1]) == 401, "the codes from before"
        assert RecoveryCode.objects.count() == factors.RECOVERY_CODES


def test_a_stolen_session_does_not_replace_the_factor(user, clock) -> None:
    key, _ = enroll(user)
    clock.forward(30)
    thief = browser(user)
    assert thief.post(f"{PAGE}begin/", {"password": PASSWORD}).status_code == 409
    assert [
        thief.post(f"{PAGE}remove/", {"remove-password": PASSWORD, "remove-code": wrong(key)}).status_code
        for _ in range(6)
    ] == [422] * 5 + [429]
    assert SecondFactor.objects.get().confirmed_at


def test_a_factor_changed_in_the_table_is_not_replaced_with_the_password(user, clock) -> None:
    enroll(user)
    SecondFactor.objects.update(confirmed_at=None)
    clock.forward(days=1)
    tasks.forget_old()
    client = browser(user)
    assert client.post(f"{PAGE}begin/", {"password": PASSWORD}).status_code == 403
    assert client.get(PAGE).status_code == 200
    assert log_in(user) == 200, "it asks for a code"


def test_an_account_of_single_sign_on_has_none(user) -> None:
    enroll(user)
    identities.link(user=user, provider=PROVIDER, subject="s-1", by="a test")
    assert not SecondFactor.objects.exists()
    assert Identity.objects.get().user == user
    client = browser(user)
    page = client.get(PAGE)
    assert "single sign-on" in page.context["reason_without"]
    assert client.post(f"{PAGE}begin/", {"password": PASSWORD}).status_code == 409
    assert PAGE not in client.get("/account/").content.decode()


def test_without_a_usable_key_nothing_is_begun_and_the_reason_is_shown(user, settings) -> None:
    settings.SETPOINT_CREDENTIAL_KEYS, settings.EMBEDDED = [], False
    page = browser(user).post(f"{PAGE}begin/", {"password": PASSWORD})
    assert page.status_code == 403
    assert "SETPOINT_CREDENTIAL_KEYS" in page.content.decode()
    assert not SecondFactor.objects.exists()
    settings.SETPOINT_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    client = browser(user)
    first = begin(client)
    settings.SETPOINT_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    assert client.get(PAGE).context["begun"] is None
    assert begin(client) != first


@pytest.mark.django_db(transaction=True)
def test_of_two_confirmations_at_once_one_counts_and_its_codes_work(user) -> None:
    client, twin = browser(user), Client()
    text = code(begin(client))
    twin.cookies = client.cookies
    barrier = threading.Barrier(2)
    answers: list[Any] = []

    def confirm(tab: Client) -> None:
        barrier.wait()
        answers.append(tab.post(f"{PAGE}confirm/", {"code": text}))
        connections.close_all()

    threads = [threading.Thread(target=confirm, args=(tab,)) for tab in (client, twin)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    right = [answer for answer in answers if answer.status_code == 200]
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert code_step(password_step(user), recovery_codes(right[0])[0]) == 302
