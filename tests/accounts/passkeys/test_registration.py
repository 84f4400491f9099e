"""Laws of registering and removing a passkey: by its owner alone, after a recent log-in, of this site, bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from accounts.access import login
from accounts.models import Identity, Passkey, SecondFactor, SpentChallenge
from accounts.passkeys import ceremonies, challenges, keys, relying_party
from accounts.tasks import forget_old
from audit.models import Record
from tests.accounts.authenticator import is_in
from tests.accounts.passkeys.security_key import (
    AT,
    BS,
    EDDSA,
    PAGE,
    RS256,
    SITE,
    UP,
    UV,
    SecurityKey,
    decoded,
    encoded,
    enroll,
    logged_in,
    options,
    send,
)
from tests.factories import PASSWORD, UserFactory

pytestmark = pytest.mark.django_db


# ── The request ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_browser_is_asked_for_a_verified_discoverable_key_of_this_site_without_attestation(user) -> None:
    client = logged_in(user)
    first = enroll(client)
    sent = options(client, PAGE, headers={"host": "localhost"})
    assert sent["rp"]["id"] == "setpoint.example.com"
    selection = sent["authenticatorSelection"]
    assert (selection["residentKey"], selection["userVerification"]) == ("required", "required")
    assert sent["attestation"] == "none"
    assert [each["alg"] for each in sent["pubKeyCredParams"]] == [-7, EDDSA, RS256]
    assert [each["id"] for each in sent["excludeCredentials"]] == [encoded(first.credential)]
    assert sent["user"]["id"] == encoded(first.user_handle), "one account on the authenticator, not two"
    assert str(user.pk) not in sent["user"]["id"]
    assert len(first.user_handle) == 32


@pytest.mark.parametrize("algorithm", [-7, EDDSA, RS256])
def test_each_algorithm_that_is_offered_registers_and_logs_in(user, algorithm) -> None:
    key = enroll(logged_in(user), SecurityKey(algorithm=algorithm))
    browser = Client()
    assert send(browser, "/login/passkey/", key.proved(options(browser, "/login/passkey/"))).status_code == 302
    assert is_in(browser)


@pytest.mark.parametrize(
    ("address", "rp_id", "origin", "is_possible"),
    [
        ("https://Setpoint.Example.com/", "setpoint.example.com", "https://setpoint.example.com", True),
        ("https://setpoint.example.com:443", "setpoint.example.com", "https://setpoint.example.com", True),
        ("https://setpoint.example.com:8443", "setpoint.example.com", "https://setpoint.example.com:8443", True),
        ("https://bücher.example", "xn--bcher-kva.example", "https://xn--bcher-kva.example", True),
        ("http://localhost:8000", "localhost", "http://localhost:8000", True),
        ("http://setpoint.example.com", "setpoint.example.com", "http://setpoint.example.com", False),
        ("http://127.0.0.1:8000", "127.0.0.1", "http://127.0.0.1:8000", False),
        ("https://[::1]:8000", "::1", "https://::1:8000", False),
        ("https://10.0.0.1", "10.0.0.1", "https://10.0.0.1", False),
    ],
)
def test_the_site_is_the_configured_address(settings: Any, address, rp_id, origin, is_possible) -> None:
    settings.BASE_URL = address
    assert (relying_party.rp_id(), relying_party.origin()) == (rp_id, origin)
    assert (relying_party.reason_without() == "") is is_possible


def test_where_the_address_makes_none_the_pages_work_without_and_name_the_setting(user, settings: Any) -> None:
    client = logged_in(user)
    enroll(client)
    settings.BASE_URL = "http://127.0.0.1:8000"
    page = client.get("/account/second-factor/").content.decode()
    assert "SETPOINT_URL" in page
    assert PAGE + "options/" not in page
    assert client.post(f"{PAGE}options/").status_code == 409
    assert "/login/passkey/" not in Client().get("/login/").content.decode()
    assert Client().post("/login/passkey/options/").status_code == 409


# ── Forged ────────────────────────────────────────────────────────────────────────────────────────────────────────────
OFF_CURVE = {1: 2, 3: -7, -1: 1, -2: b"\x01" * 32, -3: b"\x02" * 32}
FORGERIES: dict[str, dict[str, Any]] = {
    "another origin": {"client": {"origin": "https://evil.example.com"}},
    "a subdomain": {"client": {"origin": "https://a.setpoint.example.com"}},
    "another port": {"client": {"origin": f"{SITE}:8443"}},
    "plain http": {"client": {"origin": "http://setpoint.example.com"}},
    "no origin": {"client": {"origin": None}},
    "another RP ID": {"rp_id": "example.com"},
    "type of a use": {"client": {"type": "webauthn.get"}},
    "another challenge": {"client": {"challenge": encoded(b"x" * 32)}},
    "a frame of another site": {"client": {"crossOrigin": True}},
    "a top origin": {"client": {"topOrigin": "https://evil.example.com"}},
    "cross origin as a word": {"client": {"crossOrigin": "false"}},
    "no verification": {"flags": UP},
    "no presence": {"flags": UV},
    "backed up and not eligible": {"flags": UP | UV | BS},
    "a long credential ID": {"credential": b"x" * 1024},
    "no credential ID": {"credential": b""},
}
OVER: dict[str, dict[str, Any]] = {
    "no credential": {"flags": UP | UV},
    "extensions announced and missing": {"flags": UP | UV | AT | 0x80},
    "cut off": {"auth_data": b"short"},
    "another ID outside": {"raw_id": b"another"},
    "ES384": {"cose": {1: 2, 3: -35, -1: 2, -2: b"\x01" * 48, -3: b"\x02" * 48}},
    "RS1": {"cose": {1: 3, 3: -65535, -1: b"\xff" * 256, -2: b"\x01\x00\x01"}},
    "an unknown algorithm": {"cose": {1: 2, 3: -424242}},
    "no algorithm": {"cose": {1: 2}},
    "the symmetric algorithm": {"cose": {1: 4, 3: 5, -1: b"k" * 32}},
    "a point off the curve": {"cose": OFF_CURVE},
    "another curve": {"cose": {1: 2, 3: -7, -1: 2, -2: b"\x01" * 32, -3: b"\x02" * 32}},
    "text for coordinates": {"cose": {1: 2, 3: -7, -1: 1, -2: "x" * 32, -3: "y" * 32}},
    "a short RSA key": {"cose": {1: 3, 3: RS256, -1: b"\xff" * 128, -2: b"\x01\x00\x01"}},
    "a huge RSA key": {"cose": {1: 3, 3: RS256, -1: b"\xff" * 1024, -2: b"\x01\x00\x01"}},
    "the RSA exponent 1": {"cose": {1: 3, 3: RS256, -1: b"\xff" * 256, -2: b"\x01"}},
    "a key that is no map": {"cose": [1, 2, 3]},
}


def test_what_is_forged_is_not_registered(user) -> None:
    client, accepted = logged_in(user), []
    for name, forged in {**FORGERIES, **OVER}.items():
        key = SecurityKey(**(forged if name in FORGERIES else {}))
        sent = options(client, PAGE)
        answer = send(client, PAGE, key.made(sent, **({} if name in FORGERIES else forged)), name="forged")
        if answer.status_code != 422 or Passkey.objects.exists():
            accepted.append((name, answer.status_code))
            Passkey.objects.all().delete()
    assert not accepted
    assert Record.objects.filter(action="passkey.refuse").count() == len(FORGERIES) + len(OVER)
    enroll(client)


DEEP = encoded(b"\x81" * 6000)
RUBBISH = [
    "", "{}", "[]", "null", "1", "x", '{"rawId": 1}', '{"id":"YQ","rawId":"YQ","type":"public-key","response":{}}',
    "[" * 5000, json.dumps({"id": "YQ", "rawId": "YQ", "type": "public-key", "response": {
        "clientDataJSON": encoded(b"{}"), "attestationObject": DEEP}}),
    json.dumps({"id": "YQ", "rawId": "YQ", "type": "public-key", "response": {
        "clientDataJSON": encoded(b"[]"), "attestationObject": encoded(b"\x9b" + b"\xff" * 8),
        "authenticatorData": encoded(b"\xff" * 37), "signature": "AA"}}),
    '{"rawId": "' + "A" * 20_000 + '"}',
]  # fmt: skip


@pytest.mark.parametrize("text", RUBBISH, ids=range(len(RUBBISH)))
def test_rubbish_is_refused(text) -> None:
    with pytest.raises(ceremonies.NotProved):
        ceremonies.registered(text, b"c" * 32)
    with pytest.raises(ceremonies.NotProved):
        _read_and_verify(text)


def _read_and_verify(text: str) -> int:
    answer = ceremonies.read(text)
    row = Passkey(credential=answer.credential, public_key="AA", user_handle="AA")
    return ceremonies.verify(answer, row, b"c" * 32, is_verified=True, names_its_user=True)


@given(data=st.binary(max_size=400), cut=st.integers(0, 300), start=st.booleans())
@hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_bytes_come_nothing_but_a_refusal_does(data, cut, start) -> None:
    """Bytes alone, and bytes put into a right answer at any place."""
    key, sent = SecurityKey(), {"challenge": encoded(b"c" * 32), "user": {"id": encoded(b"h" * 32)}}
    made = key.made(sent)
    for part in ("attestationObject", "clientDataJSON"):
        whole = decoded(made["response"][part])
        mangled = data if start else whole[:cut] + data + whole[cut + len(data) :]
        if mangled == whole:
            continue
        text = json.dumps(made | {"response": made["response"] | {part: encoded(mangled)}})
        try:
            result = ceremonies.registered(text, b"c" * 32)
        except ceremonies.NotProved:
            continue
        assert result.credential == made["id"], "bytes that mean nothing were changed: the statement, the AAGUID"


# ── The challenge ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_challenge_is_of_one_browser_one_purpose_and_one_answer(user, clock) -> None:
    client, other = logged_in(user), logged_in(user)
    made = SecurityKey().made(options(client, PAGE))
    assert send(other, PAGE, made, name="x").status_code == 401, "another browser of the same person"
    options(other, PAGE)
    assert send(other, PAGE, made, name="x").status_code == 422, "nor with a challenge of its own"
    confirm = options(client, "/account/confirm/passkey/")
    assert send(client, PAGE, SecurityKey().made(confirm | {"user": {"id": "AA"}}), name="x").status_code == 401
    key = SecurityKey()
    answer = key.made(options(client, PAGE))
    assert send(client, PAGE, answer, name="x").status_code == 302
    assert send(client, PAGE, answer, name="x").status_code == 401, "answered already"
    late = SecurityKey().made(options(client, PAGE))
    clock.forward(challenges.LASTS.total_seconds())
    assert send(client, PAGE, late, name="x").status_code == 401
    assert Passkey.objects.count() == 1
    assert SpentChallenge.objects.exists()
    clock.forward(3600)
    forget_old()
    assert not SpentChallenge.objects.exists()


# ── Who may ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_session_whose_log_in_is_not_recent_registers_and_removes_nothing(user, clock, settings: Any) -> None:
    client = logged_in(user)
    enroll(client)
    row = Passkey.objects.get()
    made = SecurityKey().made(options(client, PAGE))
    clock.forward(settings.SETPOINT_STEP_UP_MINUTES * 60 + 1)
    assert client.post(f"{PAGE}options/").status_code == 403
    assert send(client, PAGE, made, name="x").status_code == 403
    assert client.post(f"{PAGE}{row.pk}/remove/").status_code == 403
    assert list(Passkey.objects.all()) == [row]
    page = client.get("/account/second-factor/").content.decode()
    assert "/account/confirm/?next=/account/second-factor/" in page
    assert PAGE + "options/" not in page


def test_a_stolen_session_without_the_password_registers_nothing_however_recent(user) -> None:
    """The set-up of an app asks for it too: a thief of the cookie has the minutes of a recent log-in, and no more."""
    client = logged_in(user)
    for wrong in ("", "a guess"):
        refused = client.post(f"{PAGE}options/", {"password": wrong})
        assert (refused.status_code, "publicKey" in refused.json()) == (422, False)
        assert "present password" in refused.json()["message"]
    made = SecurityKey().made(options(client, PAGE))
    for wrong in ("", "a guess"):
        assert send(client, PAGE, made, name="x", password=wrong).status_code == 422
    assert not Passkey.objects.exists()
    statuses = [client.post(f"{PAGE}options/", {"password": "a guess"}).status_code for _ in range(login.TRIES)]
    assert statuses[-1] == 429, "guesses are counted"


def test_no_one_removes_the_passkey_of_another(user) -> None:
    enroll(logged_in(user))
    row, admin = Passkey.objects.get(), logged_in(UserFactory(roles=["admin"]))
    assert admin.post(f"{PAGE}{row.pk}/remove/").status_code == 404
    assert Passkey.objects.exists()


def test_an_account_of_single_sign_on_registers_none(user) -> None:
    client = logged_in(user)
    made = SecurityKey().made(options(client, PAGE))
    Identity.objects.create(user=user, issuer="https://idp.example.com", subject="7")
    assert client.post(f"{PAGE}options/").status_code == 409
    assert send(client, PAGE, made, name="x").status_code == 409


def test_a_credential_id_is_of_one_account(user) -> None:
    key = enroll(logged_in(user))
    mallory = logged_in(UserFactory())
    copy = SecurityKey(credential=key.credential)
    refused = send(mallory, PAGE, copy.made(options(mallory, PAGE)), name="x")
    assert refused.status_code == 422
    assert Passkey.objects.get().user == user
    assert Record.objects.filter(action="passkey.refuse").exists()


def test_their_number_and_names_are_bounded(user, monkeypatch) -> None:
    monkeypatch.setattr(keys, "MOST", 2)
    client = logged_in(user)
    assert send(client, PAGE, SecurityKey().made(options(client, PAGE)), name="x" * 61).status_code == 422
    made = SecurityKey().made(options(client, PAGE))
    enroll(client)
    enroll(client)
    assert client.post(f"{PAGE}options/").status_code == 409
    assert send(client, PAGE, made, name="x").status_code == 409
    page = client.get("/account/second-factor/").content.decode()
    assert page.count("not used yet") == 2
    assert PAGE + "options/" not in page


# ── What follows ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_first_second_factor_ends_other_sessions_and_is_recorded(user) -> None:
    client, other = logged_in(user), logged_in(user)
    enroll(client, name="laptop")
    assert is_in(client)
    assert not is_in(other)
    record = Record.objects.get(action="passkey.register")
    assert (record.actor, record.message.endswith(" laptop")) == (user.email, True)
    key = SecurityKey()
    enroll(client, key)
    browser = Client()
    send(browser, "/login/passkey/", key.proved(options(browser, "/login/passkey/")))
    enroll(client)
    assert is_in(browser), "a further one ends nothing"
    row = Passkey.objects.get(name="laptop")
    assert client.post(f"{PAGE}{row.pk}/remove/").status_code == 302
    assert (is_in(client), is_in(browser)) == (True, False), "a removed one may be in other hands"
    assert Record.objects.get(action="passkey.remove").message.endswith(" laptop")


def test_the_need_of_a_role_is_met_by_a_passkey(user, settings: Any, clock) -> None:
    settings.SETPOINT_SECOND_FACTOR = frozenset({"viewer"})
    client = logged_in(user)
    assert client.get("/account/")["Location"] == "/account/second-factor/"
    clock.forward(3600)
    assert client.get("/account/confirm/").status_code == 200, "registering takes a recent log-in"
    assert client.post("/account/confirm/", {"password": PASSWORD}).status_code == 302
    assert not is_in(client)
    enroll(client)
    assert is_in(client)
    client.post(f"{PAGE}{Passkey.objects.get().pk}/remove/")
    assert not is_in(client), "the last one is gone"


def test_with_a_passkey_an_app_is_set_up_after_a_recent_log_in_only(user, clock) -> None:
    client = logged_in(user)
    enroll(client)
    clock.forward(3600)
    refused = client.post("/account/second-factor/begin/", {"password": PASSWORD})
    assert refused.status_code == 409
    assert not SecondFactor.objects.exists()
