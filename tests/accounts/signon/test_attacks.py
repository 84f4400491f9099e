"""Answers of a provider with which no log-in may succeed, and the pages that say why."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from django.test import Client
from django.urls import get_resolver

from accounts.models import LiveSession, LoginAttempt, User
from tests.accounts.signon.conftest import LogIn
from tests.accounts.signon.issuer import CLIENT, KEY, OTHER_KEY, SECRET, Issuer, published, signed

pytestmark = pytest.mark.django_db

Sign = Callable[[dict[str, Any]], str]


def unsigned(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, None, algorithm="none", headers={"kid": "1"})


def by_secret(secret: str) -> Sign:
    return lambda claims: jwt.encode(claims, secret.ljust(32, "\0"), algorithm="HS256", headers={"kid": "1"})


def over(**changes: Any) -> Sign:
    """Sign rightly, with these claims; None takes one away."""
    return lambda claims: signed({n: v for n, v in (claims | changes).items() if v is not None})


def stripped(claims: dict[str, Any]) -> str:
    return signed(claims).rpartition(".")[0] + "."


def altered(claims: dict[str, Any]) -> str:
    head, _, signature = signed(claims).split(".")
    return ".".join((head, signed(claims | {"groups": ["admins"]}).split(".")[1], signature))


NOW = int(time.time())
TOKENS: dict[str, Sign] = {
    "alg none": unsigned,
    "signed with the client's secret": by_secret(SECRET),
    "signed with the public key as a secret": by_secret(str(published(KEY)["x"])),
    "without a signature": stripped,
    "altered after it was signed": altered,
    "signed with another key": lambda claims: signed(claims, OTHER_KEY),
    "signed with an unpublished key": lambda claims: signed(claims, OTHER_KEY, "2"),
    "for another application": over(aud="other"),
    "for several, and another party": over(aud=[CLIENT, "other"], azp="other"),
    "for several, and no party": over(aud=[CLIENT, "other"]),
    "of another issuer": over(iss="https://evil.example.com"),
    "without an issuer": over(iss=None),
    "of another log-in": over(nonce="a nonce of another log-in"),
    "without a nonce": over(nonce=None),
    "with a nonce of another type": over(nonce=7),
    "expired": over(exp=NOW - 3600, iat=NOW - 7200),
    "without an end": over(exp=None),
    "from the future": over(iat=NOW + 3600, exp=NOW + 7200),
    "not valid yet": over(nbf=NOW + 3600),
    "without a subject": over(sub=None),
    "with an empty subject": over(sub=""),
    "with a subject of another type": over(sub=17),
    "with a subject of two lines": over(sub="a\nb"),
    "with an endless subject": over(sub="a" * 256),
    "no token at all": lambda claims: "rubbish",
}


@pytest.mark.parametrize("sign", TOKENS.values(), ids=TOKENS.keys())
def test_a_token_that_proves_nothing_lets_nobody_in(
    log_in: LogIn, issuer: Issuer, sign: Sign, caplog: pytest.LogCaptureFixture
) -> None:
    issued: list[str] = []

    def remembered(claims: dict[str, Any]) -> str:
        issued.append(sign(claims))
        return issued[-1]

    issuer.sign = remembered
    client = Client()
    with caplog.at_level(logging.DEBUG):
        refused = log_in(client, groups=["ops", "admins"])
    assert refused.status_code == 403
    assert refused.context["refusal"]["message"]
    assert refused.context["refusal"]["advice"]
    assert client.get("/api/v1/me").status_code == 401
    assert not User.objects.exists()
    assert not LiveSession.objects.exists()
    for secret in (*(token for token in issued if len(token) > 20), SECRET, "opaque-access"):
        assert secret not in caplog.text
        assert secret not in refused.content.decode()


@pytest.mark.parametrize("skew", [-45, 45])
def test_clocks_may_differ_by_a_minute(log_in: LogIn, issuer: Issuer, skew: int) -> None:
    at = int(time.time()) + skew
    issuer.sign = over(iat=at, exp=at + 30)
    assert log_in().status_code == 302


def test_keys_that_change_are_read_again(log_in: LogIn, issuer: Issuer) -> None:
    assert log_in().status_code == 302
    issuer.answers["/keys"] = (200, {"keys": [{"kty": "odd"}, 7, published(KEY), published(OTHER_KEY, "2")]})
    issuer.sign = lambda claims: signed(claims, OTHER_KEY, "2")
    assert log_in().status_code == 302


# ── The answer of the browser ─────────────────────────────────────────────────────────────────────────────────────────
def test_an_answer_counts_once_and_in_the_browser_that_began(issuer: Issuer) -> None:
    victim, attacker = Client(), Client()
    location = attacker.get("/login/with/corp/")["Location"]
    query = issuer.authorize(location)
    stolen = victim.get(f"/login/with/corp/back/?{query}")
    assert stolen.status_code == 400, "nobody is logged in as somebody else by a link"
    assert victim.get("/api/v1/me").status_code == 401
    assert attacker.get(f"/login/with/corp/back/?{query}").status_code == 302
    assert Client().get(f"/login/with/corp/back/?{query}").status_code == 400
    attacker.post("/logout/")
    assert attacker.get(f"/login/with/corp/back/?{query}").status_code == 400
    assert attacker.get("/api/v1/me").status_code == 401


def test_a_code_of_another_log_in_is_not_exchanged(issuer: Issuer) -> None:
    """PKCE: a stolen code is of no use in a log-in of the thief's own."""
    victim, thief = Client(), Client()
    stolen = issuer.authorize(victim.get("/login/with/corp/")["Location"]).split("&")[0]
    own = issuer.authorize(thief.get("/login/with/corp/")["Location"]).split("&")[1]
    assert thief.get(f"/login/with/corp/back/?{stolen}&{own}").status_code == 400
    assert thief.get("/api/v1/me").status_code == 401


def test_a_log_in_of_yesterday_has_expired(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    query = issuer.authorize(client.get("/login/with/corp/")["Location"])
    at = time.time() + 601
    monkeypatch.setattr("allauth.socialaccount.internal.statekit.time.time", lambda: at)
    assert client.get(f"/login/with/corp/back/?{query}").status_code == 400


@pytest.mark.parametrize(
    ("error", "status"),
    [("access_denied", 403), ("login_required", 403), ("temporarily_unavailable", 502), ("invalid_scope", 502),
     ("<script>alert(1)</script>", 502), ("x" * 5000, 502), ("", 403)],
)  # fmt: skip
def test_an_error_of_the_provider_is_a_page_with_what_to_do(issuer: Issuer, error: str, status: int) -> None:
    client = Client()
    query = issuer.authorize(client.get("/login/with/corp/")["Location"])
    state = query.split("state=")[1]
    reply = {"state": state, "error": error, "error_description": "<b>pay here</b>"}
    refused = client.get("/login/with/corp/back/", reply)
    assert refused.status_code == status
    assert refused.context["refusal"]["advice"]
    assert b"<script>alert" not in refused.content
    assert b"pay here" not in refused.content
    assert b'href="/login/with/corp/"' in refused.content, "they can try again from there"


def test_the_answer_of_another_issuer_is_refused(log_in: LogIn, issuer: Issuer) -> None:
    assert log_in(over={"iss": "https://evil.example.com"}).status_code == 403
    assert log_in(over={"iss": issuer.url}).status_code == 302


@pytest.mark.parametrize(
    "wanted", ["https://evil.example.com/", "//evil.example.com", "/\\evil.example.com", "javascript:alert(1)",
               "\t//evil.example.com", "evil", "http:///evil.example.com"],
)  # fmt: skip
def test_no_log_in_leads_to_another_site(issuer: Issuer, wanted: str) -> None:
    client = Client()
    query = issuer.authorize(client.get("/login/with/corp/", {"next": wanted})["Location"])
    assert client.get(f"/login/with/corp/back/?{query}&next={wanted}")["Location"] == "/"
    assert client.get("/login/with/corp/", {"next": wanted})["Location"] == "/"


def test_a_log_in_leads_to_the_page_that_was_wanted(issuer: Issuer) -> None:
    client = Client()
    page = client.get("/login/", {"next": "/plans/?status=draft&x=1"}).content.decode()
    address = page.split('href="/login/with/corp/')[1].split('"')[0].replace("&amp;", "&")
    query = issuer.authorize(client.get(f"/login/with/corp/{address}")["Location"])
    assert client.get(f"/login/with/corp/back/?{query}")["Location"] == "/plans/?status=draft&x=1"


def test_another_site_begins_no_log_in(issuer: Issuer) -> None:
    for site in ("cross-site", "same-site"):
        answer = Client().get("/login/with/corp/", headers={"Sec-Fetch-Site": site})
        assert answer["Location"] == "/login/"
    assert issuer.requests == []


def test_starts_are_limited_for_an_address(issuer: Issuer) -> None:
    LoginAttempt.objects.bulk_create(LoginAttempt(account="someone", address="127.0.0.1") for _ in range(49))
    assert [Client().get("/login/with/corp/").status_code for _ in range(2)] == [302, 429]


# ── The provider itself ───────────────────────────────────────────────────────────────────────────────────────────────
DISCOVERY = "/.well-known/openid-configuration"


@pytest.mark.parametrize(
    "answer",
    [(500, {}), (200, b"<html>"), (200, []), (200, {}), (302, {}), (404, {}), (200, b"[" * 2_000_000),
     (200, {"issuer": "https://evil.example.com"})],
    ids=["500", "html", "list", "empty", "redirect", "404", "endless", "other issuer"],
)  # fmt: skip
def test_a_provider_without_a_usable_document_gives_a_page(issuer: Issuer, answer: tuple[int, Any]) -> None:
    issuer.answers[DISCOVERY] = answer
    refused = Client().get("/login/with/corp/")
    assert refused.status_code == 502
    assert refused.context["refusal"]["advice"]
    assert issuer.requests == [DISCOVERY], "no redirect is followed"


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize("value", [None, 7, "file:///etc/passwd", "javascript:alert(1)"])
def test_endpoints_are_addresses_of_the_web(issuer: Issuer, name: str, value: Any) -> None:
    issuer.answers[DISCOVERY] = (200, issuer.discovery() | {name: value})
    assert Client().get("/login/with/corp/").status_code == 502


def test_no_metadata_service_is_asked_for_keys(log_in: LogIn, issuer: Issuer) -> None:
    issuer.answers[DISCOVERY] = (200, issuer.discovery() | {"jwks_uri": "http://169.254.169.254/keys"})
    assert log_in().status_code == 502


def test_a_provider_that_is_down_gives_a_page(issuer: Issuer) -> None:
    client = Client()
    query = issuer.authorize(client.get("/login/with/corp/")["Location"])
    issuer.close()
    assert client.get(f"/login/with/corp/back/?{query}").status_code == 502
    refused = client.get("/login/with/corp/", {"next": "/plans/"})
    assert refused.status_code == 502
    assert refused.context["next"] == "/plans/", "the way on is kept"
    issuer.server.server_close()


@pytest.mark.parametrize(
    ("path", "answer", "status"),
    [("/token", (401, {"error": "invalid_client"}), 502), ("/token", (400, {"error": "invalid_grant"}), 400),
     ("/token", (200, {"id_token": "ey.leaked.token"}), 502), ("/token", (200, b"{"), 502), ("/token", (200, []), 502),
     ("/token", (200, ["access_token"]), 502),
     ("/token", (200, {"access_token": "a"}), 403), ("/token", (200, {"access_token": "a", "id_token": 7}), 403),
     ("/keys", (200, {"keys": []}), 403), ("/keys", (200, []), 403), ("/keys", (500, {}), 502),
     ("/keys", (200, {"keys": "all"}), 403), ("/keys", (200, {"keys": [{"kid": "1", "kty": "EC"}]}), 403)],
)  # fmt: skip
def test_answers_that_make_no_sense_give_a_page_and_leak_nothing(
    log_in: LogIn, issuer: Issuer, path: str, answer: tuple[int, Any], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.answers[path] = answer
    with caplog.at_level(logging.DEBUG):
        refused = log_in()
    assert refused.status_code == status
    assert "leaked" not in caplog.text
    assert "leaked" not in refused.content.decode()
    assert not User.objects.exists()


def test_claims_come_from_user_information_where_the_token_lacks_them(log_in: LogIn, issuer: Issuer) -> None:
    issuer.userinfo = {"sub": "ada-1", "email": "ada@example.com", "email_verified": True, "groups": ["ops"]}
    assert log_in(email=None, email_verified=None, groups=None).status_code == 302
    assert User.objects.get().grants == {("operator", "env:staging")}


@pytest.mark.parametrize("reply", [{"sub": "root", "groups": ["admins"]}, {}, [], {"sub": 7}])
def test_user_information_of_another_person_is_refused(log_in: LogIn, issuer: Issuer, reply: Any) -> None:
    issuer.userinfo = reply
    assert log_in(groups=None).status_code == 403
    assert not User.objects.exists()


def test_a_verification_of_one_address_does_not_verify_another(log_in: LogIn, issuer: Issuer) -> None:
    issuer.userinfo = {"sub": "ada-1", "email": "ada@example.com", "email_verified": True, "groups": ["ops"]}
    assert log_in(email="ceo@example.com", email_verified=None, groups=None).status_code == 403


# ── What is not there ─────────────────────────────────────────────────────────────────────────────────────────────────
def test_no_page_of_the_library_is_reachable(issuer: Issuer) -> None:
    for path in (
        "/accounts/signup/", "/accounts/login/", "/accounts/password/reset/", "/accounts/email/", "/oidc/corp/login/",
        "/accounts/social/connections/", "/login/with/other/", "/login/with/other/back/",
    ):  # fmt: skip
        assert Client().get(path).status_code == 404, path
    names = [name for name in get_resolver().reverse_dict if isinstance(name, str)]
    assert not [name for name in names if name.startswith(("account_", "socialaccount", "openid"))]


def test_an_issuer_written_into_the_librarys_table_is_not_believed(issuer: Issuer, settings: Any) -> None:
    from allauth.socialaccount.models import SocialApp

    row = {"client_id": CLIENT, "secret": SECRET, "settings": {"server_url": issuer.url}}
    SocialApp.objects.create(provider="openid_connect", provider_id="evil", name="Evil", **row)
    assert Client().get("/login/with/evil/").status_code == 404
    assert b"Evil" not in Client().get("/login/").content
    settings.SETPOINT_OIDC = ()
    assert Client().get("/login/with/corp/").status_code == 404
