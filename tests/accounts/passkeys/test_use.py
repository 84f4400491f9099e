"""Laws of using a passkey: to log in alone, after the password, and to confirm that it is you."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connections
from django.test import Client, RequestFactory

from accounts.access import freshness, login
from accounts.models import Identity, LiveSession, LoginAttempt, Passkey, SecondFactor, User
from accounts.passkeys import challenges
from accounts.people import factor_resets, identities, pending, services
from accounts.providers import OidcProvider
from audit.models import Record
from common.errors import WrongState
from tests.accounts import authenticator
from tests.accounts.authenticator import code_step, is_in, password_step
from tests.accounts.passkeys.security_key import (
    BE,
    PAGE,
    SITE,
    UP,
    UV,
    SecurityKey,
    encoded,
    enroll,
    logged_in,
    options,
    send,
)
from tests.factories import PASSWORD, TokenClient, UserFactory

pytestmark = pytest.mark.django_db

ALONE, AFTER, CONFIRM = "/login/passkey/", "/login/code/passkey/", "/account/confirm/passkey/"


@pytest.fixture
def key(user: User) -> SecurityKey:
    return enroll(logged_in(user), SecurityKey(counter=0))


def alone(key: SecurityKey, client: Client | None = None, **over: Any) -> tuple[Client, int]:
    client = client or Client()
    answer = send(client, ALONE, key.proved(options(client, ALONE), **over))
    return client, answer.status_code


def browser_at(path: str, user: User) -> Client:
    """Return a browser that may answer there: at log-in, after the password, or logged in an hour ago."""
    if path == ALONE:
        return Client()
    if path == AFTER:
        return password_step(user)
    client = Client()
    client.force_login(user)
    return client


def has_passed(client: Client, path: str) -> bool:
    return is_in(client) if path != CONFIRM else "accounts.proved_at" in client.session


# ── A log-in by passkey alone ─────────────────────────────────────────────────────────────────────────────────────────
def test_a_passkey_alone_logs_its_owner_in_and_the_session_notes_it(user, key, clock) -> None:
    clock.forward(60)
    LiveSession.objects.all().delete()
    client = Client()
    sent = options(client, ALONE)
    assert sent["userVerification"] == "required"
    assert not is_in(client)
    answer = send(client, ALONE, key.proved(sent), next="/audit/")
    assert (answer.status_code, answer["Location"]) == (302, "/audit/")
    assert client.get("/api/v1/me").json()["email"] == user.email
    assert Record.objects.filter(action="session.start", message__endswith="with the passkey blue key").count() == 1
    assert client.session["accounts.proved_by"] == "with the passkey blue key"
    assert Passkey.objects.get().last_used_at is not None
    assert LiveSession.objects.filter(user=user).count() == 1
    assert not LoginAttempt.objects.filter(account__contains="passkey of").exists()
    assert options(client, PAGE), "it is a recent log-in"


def test_what_is_asked_for_at_log_in_is_the_same_for_everyone(user, key) -> None:
    sent = [
        Client().post(f"{ALONE}options/", fields).json()["publicKey"]
        for fields in ({}, {"email": user.email}, {"email": "unknown@example.com"})
    ]
    for each in sent:
        assert each.pop("challenge")
    assert sent[0] == sent[1] == sent[2]
    assert not sent[0].get("allowCredentials")
    assert encoded(key.credential) not in str(sent)


def test_every_refusal_reads_alike(user, key) -> None:
    other = UserFactory()
    deactivated = enroll(logged_in(other))
    User.objects.get(pk=other.pk)
    services.change_user(user=other, by=UserFactory(roles=["admin"]), is_active=False)
    forged = SecurityKey(credential=key.credential, user_handle=key.user_handle)
    texts = set()
    for wrong in (SecurityKey(user_handle=b"h" * 32), forged, deactivated):
        client = Client()
        answer = send(client, ALONE, wrong.proved(options(client, ALONE)))
        assert answer.status_code == 401
        texts.add(answer.context["refusal"]["message"])
    assert len(texts) == 1


# ── Forged, in all three places ───────────────────────────────────────────────────────────────────────────────────────
FORGERIES: dict[str, dict[str, Any]] = {
    "another origin": {"origin": "https://setpoint.example.com.evil.example"},
    "a subdomain": {"origin": "https://a.setpoint.example.com"},
    "a host that sent itself": {"origin": "http://testserver"},
    "another RP ID": {"rp_id": "example.com"},
    "type of a registration": {"client": {"type": "webauthn.create"}},
    "type of a payment": {"client": {"type": "payment.get"}},
    "another challenge": {"client": {"challenge": encoded(b"x" * 32)}},
    "an empty challenge": {"client": {"challenge": ""}},
    "a frame of another site": {"client": {"crossOrigin": True}},
    "no presence": {"flags": UV},
    "synced all at once": {"flags": UP | UV | BE},
}


@pytest.mark.parametrize("path", [ALONE, AFTER, CONFIRM])
def test_what_is_forged_proves_nothing(user, key, path, monkeypatch) -> None:
    monkeypatch.setattr(login, "TRIES", 1000)
    client, passed = browser_at(path, user), []
    mallory = enroll(logged_in(UserFactory()))
    own = {name: getattr(key, name) for name in ("secret", "credential", "user_handle")}
    wrong: list[tuple[str, dict[str, Any], dict[str, Any]]] = [(n, f, {}) for n, f in FORGERIES.items()]
    wrong += [
        ("a broken signature", {}, {"signature": b"\x30\x06\x02\x01\x01\x02\x01\x01"}),
        ("an empty signature", {}, {"signature": b"\0"}),
        ("the handle of another", {}, {"user_handle": mallory.user_handle}),
        ("another's key under this ID", {"secret": mallory.secret}, {}),
        ("this key under another's ID", {"credential": mallory.credential}, {}),
        ("this key under an unknown ID", {"credential": b"unknown"}, {}),
    ]
    if path != AFTER:
        wrong.append(("no verification", {"flags": UP}, {}))
    if path == ALONE:
        wrong.append(("no handle", {}, {"user_handle": b""}))
    else:
        other = {name: getattr(mallory, name) for name in ("secret", "credential", "user_handle")}
        wrong.append(("another's passkey, whole", other, {}))
    for name, forged, over in wrong:
        fields = {f: v for f, v in forged.items() if f in SecurityKey.__dataclass_fields__}
        liar = SecurityKey(**fields)
        for attribute, value in (own | {f: v for f, v in forged.items() if f in own}).items():
            setattr(liar, attribute, value)
        answer = send(client, path, liar.proved(options(client, path), **over))
        if answer.status_code != 401 or has_passed(client, path):
            passed.append((name, answer.status_code))
    assert not passed
    key.flags = UP | UV
    assert send(client, path, key.proved(options(client, path))).status_code == 302
    assert has_passed(client, path)


@pytest.mark.parametrize("path", [ALONE, AFTER, CONFIRM])
def test_an_answer_counts_once_in_its_browser_in_time_and_for_its_purpose(user, key, path, clock, monkeypatch) -> None:
    monkeypatch.setattr(login, "TRIES", 1000)
    client = browser_at(path, user)
    late = key.proved(options(client, path))
    clock.forward(5 * 60)
    client = browser_at(path, user)
    assert send(client, path, late).status_code == 401
    sent = options(browser_at(path, user), path)
    options(client, path)
    assert send(client, path, key.proved(sent)).status_code == 401, "the challenge of another browser"
    assert send(client, path, key.proved(sent)).status_code == 401, "and without one of its own"
    if path != CONFIRM:
        elsewhere = AFTER if path == ALONE else ALONE
        both = password_step(user)
        assert send(both, path, key.proved(options(both, elsewhere))).status_code == 401, "of another purpose"
    clock.forward(61)
    client = browser_at(path, user)
    answer = key.proved(options(client, path))
    assert send(client, path, answer).status_code == 302
    if path == CONFIRM:
        assert send(client, path, answer).status_code == 401
    else:
        client.logout()
        assert send(client, path, answer).status_code == 401
        assert not is_in(client)


@pytest.mark.django_db(transaction=True)
def test_of_two_requests_with_one_answer_one_logs_in(user) -> None:
    key = enroll(logged_in(user))
    browsers, codes = [Client() for _ in range(3)], []
    sent = options(browsers[0], ALONE)
    for browser in browsers[1:]:
        browser.cookies["sessionid"] = browsers[0].cookies["sessionid"].value
    answer, barrier = key.proved(sent), threading.Barrier(3)

    def run(browser: Client) -> None:
        barrier.wait()
        codes.append(send(browser, ALONE, answer).status_code)
        connections.close_all()

    threads = [threading.Thread(target=run, args=(browser,)) for browser in browsers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes.count(302) == 1
    assert {code for code in codes if code != 302} <= {400, 401}, "400: its session ended with the log-in of the first"


def test_a_copy_of_the_session_gives_no_second_answer() -> None:
    first, second = RequestFactory().post("/"), RequestFactory().post("/")
    first.session = {}
    value = challenges.issue(first, challenges.LOG_IN)
    second.session = dict(first.session)
    assert challenges.claim(first, challenges.LOG_IN).value == value
    with pytest.raises(challenges.ChallengeOver):
        challenges.claim(second, challenges.LOG_IN)


# ── The counter ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_counter_that_does_not_grow_is_a_copy_and_is_refused_and_recorded(user) -> None:
    key = enroll(logged_in(user), SecurityKey(counter=7))
    for counter, status in ((8, 302), (8, 401), (5, 401), (0, 401), (9, 302)):
        key.counter = counter
        assert alone(key)[1] == status, counter
    records = Record.objects.filter(action="passkey.refuse", target=f"user:{user.pk}")
    assert records.count() == 3
    assert "copy" in records[0].message


def test_without_a_counter_it_is_used_again_and_again(key) -> None:
    assert [alone(key)[1] for _ in range(3)] == [302] * 3


# ── Whose ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "what",
    ["deactivated", "single sign-on", "changed account", "changed row", "another's row", "removed", "password reset",
     "emergency accounts"],
)  # fmt: skip
def test_whose_account_may_not_log_in_uses_none(user, key, what, settings: Any) -> None:
    admin = UserFactory(roles=["admin"])
    if what == "deactivated":
        services.change_user(user=user, by=admin, is_active=False)
    elif what == "single sign-on":
        Identity.objects.create(user=user, issuer="https://idp.example.com", subject="7")
    elif what == "changed account":
        User.objects.filter(pk=user.pk).update(is_superuser=True)
    elif what == "changed row":
        Passkey.objects.update(sign_count=-1)
    elif what == "another's row":
        Passkey.objects.update(user=admin)
    elif what == "removed":
        Passkey.objects.all().delete()
    elif what == "password reset":
        services.reset_password(user=user, by=admin)
    else:
        settings.SETPOINT_LOCAL_ACCOUNTS = ["root@example.com"]
    client, status = alone(key)
    assert (status, is_in(client)) == (401, False)


def test_a_local_account_that_becomes_the_providers_loses_its_passkeys(user, key) -> None:
    provider = OidcProvider("idp", "IdP", "https://idp.example.com", (), client_id="client", client_secret="secret")
    identities.link(user=user, provider=provider, subject="7", by="a test")
    assert not Passkey.objects.exists()


# ── After the password ────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_password_alone_opens_nothing_where_there_is_a_passkey(user, key) -> None:
    client = password_step(user)
    assert not is_in(client)
    assert code_step(client, "123456") == 403, "there is no app"
    sent = options(client, AFTER)
    assert [each["id"] for each in sent["allowCredentials"]] == [encoded(key.credential)]
    key.flags = UP  # possession is enough after the password
    assert send(client, AFTER, key.proved(sent, user_handle=b"")).status_code == 302
    assert is_in(client)
    assert client.session["accounts.proved_by"] == "with password and the passkey blue key"
    assert Client().post(f"{AFTER}options/").status_code == 401, "no password, no list of passkeys"


def test_app_passkey_and_recovery_codes_each_complete_a_log_in(user, clock) -> None:
    totp_key, recovery = authenticator.enroll(user)
    clock.forward(30)
    client = password_step(user)
    assert code_step(client, authenticator.code(totp_key)) == 302
    key = enroll(client)
    for complete in (
        lambda c: code_step(c, recovery[0]),
        lambda c: send(c, AFTER, key.proved(options(c, AFTER))).status_code,
        lambda c: code_step(c, recovery[1]),
    ):
        browser = password_step(user)
        assert complete(browser) == 302
        assert is_in(browser)
    assert alone(key)[1] == 302


def test_a_change_between_password_and_passkey_ends_it(user, key) -> None:
    browser = password_step(user)
    sent = options(browser, AFTER)
    services.set_password(user=user, password="another long password", by="a test")
    assert send(browser, AFTER, key.proved(sent)).status_code == 401
    assert not is_in(browser)


# ── Tries ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_answers_are_counted_like_passwords(user, key, clock) -> None:
    client, forged = Client(), SecurityKey(credential=key.credential, user_handle=key.user_handle)
    statuses = [send(client, ALONE, forged.proved(options(client, ALONE))).status_code for _ in range(7)]
    assert statuses == [401] * 5 + [429] * 2
    assert alone(key)[1] == 429
    other = UserFactory()
    assert alone(enroll(logged_in(other)))[1] == 302, "of one account only"
    clock.forward(61)
    assert alone(key)[1] == 302
    clock.forward(61)
    rubbish = [send(Client(), ALONE, "{}").status_code for _ in range(6)]
    assert rubbish == [401] * 5 + [429]
    assert Record.objects.filter(action="session.throttle").count() == 1
    clock.forward(61)
    sent = [Client().post(f"{ALONE}options/").status_code for _ in range(login.TRIES_PER_ADDRESS + 1)]
    assert (sent[0], sent[-1]) == (200, 429), "each makes a row of a session"


# ── Confirming ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_confirming_with_a_passkey_is_a_recent_log_in_and_the_password_alone_is_none(user, key) -> None:
    client = browser_at(CONFIRM, user)
    refused = client.post("/account/confirm/", {"password": PASSWORD})
    assert (refused.status_code, has_passed(client, CONFIRM)) == (403, False)
    page = client.get("/account/confirm/").content.decode()
    assert 'name="password"' not in page
    answer = send(client, CONFIRM, key.proved(options(client, CONFIRM)), next="/plans/")
    assert (answer.status_code, answer["Location"]) == (302, "/plans/")
    assert Record.objects.get(action="session.confirm").message.endswith("with the passkey blue key")
    assert "with the passkey blue key" in client.get("/account/confirm/").content.decode()
    request = type("Request", (), {"session": client.session, "auth": None})()
    assert not freshness.is_stale(freshness.proved_at(request))
    bad = SecurityKey(credential=key.credential)
    assert send(client, CONFIRM, bad.proved(options(client, CONFIRM)), next="//evil.test").status_code == 401
    assert send(client, CONFIRM, key.proved(options(client, CONFIRM)), next="//evil.test")["Location"] == "/account/"


# ── Resets ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_reset_of_the_second_factor_takes_the_passkeys_and_the_sessions(user, key) -> None:
    admin = UserFactory(roles=["admin"])
    client, _ = alone(key)
    rest = TokenClient(admin)
    assert rest.get(f"/api/v1/users/{user.pk}").json()["has_second_factor"]
    assert "Reset second factor" in logged_in(admin).get("/people/").content.decode()
    assert rest.post(f"/api/v1/users/{user.pk}/actions/reset-second-factor").status_code == 200
    assert not rest.get(f"/api/v1/users/{user.pk}").json()["has_second_factor"]
    assert not Passkey.objects.exists()
    assert not is_in(client)
    assert alone(key)[1] == 401
    assert is_in(logged_in(user))


@pytest.mark.parametrize(("then", "works"), [("same", True), ("removed", True), ("another", False)])
def test_a_reset_that_waits_for_consent_takes_what_was_there_when_it_was_proposed(then, works) -> None:
    admin, other = UserFactory(roles=["admin"]), UserFactory(roles=["admin"])
    approver = UserFactory(roles=["approver"])
    client = logged_in(approver)
    enroll(client)
    enroll(client)
    change = factor_resets.reset(user=approver, by=admin)
    assert change is not None
    assert Passkey.objects.count() == 2
    if then == "removed":
        client.post(f"{PAGE}{Passkey.objects.earliest('created_at').pk}/remove/")
    elif then == "another":
        enroll(client)
    row = pending.waiting(other)[0]
    try:
        pending.consent(pk=row.pk, by=other)
    except WrongState:
        assert not works
    assert Passkey.objects.exists() is not works
    assert not SecondFactor.objects.exists()


def test_the_site_of_these_tests_is_not_what_requests_say() -> None:
    """The test client's Host is another one throughout: nothing here can pass by it."""
    assert SITE.endswith("setpoint.example.com")
    assert Client().get("/login/").wsgi_request.get_host() == "testserver"
