"""Log-ins by SAML: the request, the way back without a cookie, the account, and roles that follow groups."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from typing import Any
from xml.etree import ElementTree

import pytest
from django.conf import settings as configured
from django.contrib.sessions.models import Session
from django.test import Client, RequestFactory
from lxml import etree

from accounts.access import freshness
from accounts.models import Identity, LiveSession, LoginAttempt, RoleBinding, User
from accounts.providers import OidcProvider
from audit.models import Record
from common.clock import now
from tests.accounts.signon.saml import idp
from tests.accounts.signon.saml.conftest import LogIn
from tests.accounts.signon.saml.idp import Answer
from tests.conftest import Clock
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db

ACS = "/login/saml/corp/acs/"
XS = "http://www.w3.org/2001/XMLSchema"


def attributes(*groups: str, **more: list[str]) -> dict[str, list[str]]:
    return {"email": ["ada@example.com"], "groups": list(groups), **more}


def test_the_first_log_in_makes_the_account_and_gives_the_roles_of_its_groups(log_in: LogIn) -> None:
    client = Client()
    assert log_in(client).status_code == 302
    ada = User.objects.get()
    assert (ada.email, ada.first_name, ada.grants) == ("ada@example.com", "Ada", {("operator", "env:staging")})
    assert not ada.has_usable_password()
    identity = Identity.objects.get()
    assert (identity.issuer, identity.subject) == (idp.ENTITY, "ada-1")
    assert client.get("/api/v1/me").json()["email"] == "ada@example.com"
    assert Record.objects.filter(actor="single sign-on (corp)", action="role.grant").exists()


def test_groups_that_change_change_roles_and_their_loss_ends_all(log_in: LogIn) -> None:
    client = Client()
    log_in(client)
    log_in(Client(), attributes=attributes("approvers"))
    assert set(RoleBinding.objects.values_list("role", flat=True)) == {"approver"}
    assert User.objects.count() == 1
    for lost in (attributes("staff"), {"email": ["ada@example.com"]}):
        log_in(Client(), attributes=attributes("ops"))
        refused = log_in(Client(), attributes=lost)
        assert refused.status_code == 403
        assert "attribute groups" in refused.content.decode() or "None of your groups" in refused.content.decode()
        assert not RoleBinding.objects.exists()
        assert not LiveSession.objects.exists()
    assert client.get("/api/v1/me").status_code == 401


def test_an_attribute_sent_once_a_group_is_read_whole(log_in: LogIn) -> None:
    def split(assertion: Any) -> None:
        first = assertion.find(".//saml:Attribute[@Name='groups']", idp.NS)
        second = deepcopy(first)
        second[0].text = "approvers"
        first.addnext(second)

    log_in(edit=split)
    assert set(RoleBinding.objects.values_list("role", flat=True)) == {"operator", "approver"}


def test_a_person_is_their_name_id_whatever_their_address_becomes(log_in: LogIn) -> None:
    log_in()
    log_in(attributes=attributes("ops", email=["ada.king@example.com"]))
    assert User.objects.get().email == "ada.king@example.com"
    UserFactory(email="root@example.com", roles=["admin"])
    refused = log_in(subject="eve-1", attributes=attributes("ops", email=["root@example.com"]))
    assert refused.status_code == 403, "an address links nothing"


def test_the_same_subject_of_an_openid_provider_is_another_person(log_in: LogIn, settings: Any) -> None:
    other = UserFactory(email="other@example.com")
    Identity.objects.create(user=other, issuer="https://oidc.example.com", subject="ada-1")
    settings.SETPOINT_OIDC = (
        OidcProvider("oidc", "Other", "https://oidc.example.com", (), client_id="x", client_secret="y"),
    )
    log_in()
    assert Identity.objects.get(issuer=idp.ENTITY).user != other
    page = Client().get("/login/").content.decode()
    assert "/login/saml/corp/" in page
    assert "/login/with/oidc/" in page


def test_a_name_id_that_is_an_address_names_person_and_account(log_in: LogIn, settings: Any) -> None:
    settings.SETPOINT_SAML = (idp.provider(name_id="email", email_claim="NameID"),)
    given = Answer(subject="ada@example.com", format="urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress")
    assert log_in(given=given, attributes={"groups": ["ops"]}).status_code == 302
    assert User.objects.get().email == "ada@example.com"


@pytest.mark.parametrize(
    ("over", "key", "cert", "algorithm"),
    [({}, idp.KEY, idp.CERTIFICATE, "rsa-sha512"), ({}, idp.KEY, None, "rsa-sha256"),
     ({"certificates": (idp.OTHER_CERTIFICATE, idp.CERTIFICATE)}, idp.KEY, idp.CERTIFICATE, "rsa-sha256"),
     ({"certificates": (idp.EC_CERTIFICATE, idp.CERTIFICATE)}, idp.KEY, idp.CERTIFICATE, "rsa-sha256"),
     ({"certificates": (idp.CERTIFICATE, idp.EC_CERTIFICATE)}, idp.EC_KEY, idp.EC_CERTIFICATE, "ecdsa-sha256")],
    ids=["SHA-512", "no KeyInfo of X.509", "the second of two", "RSA after ECDSA", "ECDSA"],
)  # fmt: skip
def test_each_configured_certificate_verifies(
    log_in: LogIn, settings: Any, over: dict[str, Any], key: Any, cert: str | None, algorithm: str
) -> None:
    settings.SETPOINT_SAML = (idp.provider(**over),)
    signed = {"key": key, "cert": cert, "algorithm": algorithm}
    assert log_in(**signed).status_code == 302
    assert log_in(signs_response=True, **signed).status_code == 302, "the response may be signed beside it"


# ── The way ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_request_names_us_and_where_to_answer(corp: None) -> None:
    location = Client().get("/login/saml/corp/")["Location"]
    assert location.startswith(f"{idp.SSO}?SAMLRequest=")
    request, relay = idp.request_of(location)
    assert request.find("saml:Issuer", idp.NS).text == f"{idp.SP}/metadata/"
    assert request.get("AssertionConsumerServiceURL") == idp.ACS
    assert (request.get("Destination"), request.get("ForceAuthn")) == (idp.SSO, None)
    assert request.find("samlp:NameIDPolicy", idp.NS).get("Format") == idp.PERSISTENT
    assert len(relay) <= 80, "SAML's limit of RelayState"


def test_the_metadata_says_what_the_request_says(corp: None) -> None:
    answer = Client().get("/login/saml/corp/metadata/")
    assert answer["Content-Type"].startswith("application/samlmetadata+xml")
    root = ElementTree.fromstring(answer.content)
    assert root.get("entityID") == f"{idp.SP}/metadata/"
    md = "{urn:oasis:names:tc:SAML:2.0:metadata}"
    role = root.find(f"{md}SPSSODescriptor")
    assert role.get("WantAssertionsSigned") == "true"
    assert role.find(f"{md}AssertionConsumerService").get("Location") == idp.ACS
    assert Client().get("/login/saml/other/metadata/").status_code == 404


def test_a_post_from_another_site_sets_no_cookie_and_is_sent_again_from_ours(corp: None) -> None:
    browser = Client(enforce_csrf_checks=True)
    form = idp.form(browser.get("/login/saml/corp/?next=/plans/")["Location"], Answer())
    foreign = {"Origin": "https://idp.example.com", "Sec-Fetch-Site": "cross-site"}
    without_cookie = Client(enforce_csrf_checks=True).post(ACS, form, headers=foreign)
    assert without_cookie.status_code == 200
    assert not without_cookie.cookies, "a new session's cookie would take the place of the one with the request"
    page = without_cookie.content.decode()
    fields = {name: unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', page)}
    assert fields == {**form, "again": "1"}
    assert "<button" in page
    assert not re.search(r"<script(?![^>]*\bsrc=)", page), "nothing inline"
    assert browser.post(ACS, fields)["Location"] == "/plans/"
    assert User.objects.count() == 1
    assert Client().post(ACS, fields).status_code == 400, "in a browser that did not begin it, also the second time"


def test_an_answer_that_nobody_asked_for_is_never_taken(corp: None) -> None:
    """A log-in that the provider's portal begins, and a person led into another one's session."""
    attacker, victim = Client(), Client()
    form = idp.form(attacker.get("/login/saml/corp/")["Location"], Answer())
    victim.get("/login/saml/corp/")
    for again in ({}, {"again": "1"}):
        answer = victim.post(ACS, {**form, **again})
        assert victim.get("/api/v1/me").status_code == 401
    assert answer.status_code == 400
    assert not User.objects.exists()


def test_several_tabs_each_end_their_own_log_in_and_the_oldest_is_forgotten(corp: None) -> None:
    browser = Client()
    forms = [idp.form(browser.get("/login/saml/corp/")["Location"], Answer()) for _ in range(6)]
    assert browser.post(ACS, {**forms[0], "again": "1"}).status_code == 400
    assert browser.post(ACS, forms[1]).status_code == 302


def test_starts_are_limited_for_an_address(corp: None) -> None:
    LoginAttempt.objects.bulk_create(LoginAttempt(account="someone", address="127.0.0.1") for _ in range(49))
    assert [Client().get("/login/saml/corp/").status_code for _ in range(2)] == [302, 429]


def test_another_site_begins_no_log_in_and_none_leads_there(corp: None) -> None:
    for site in ("cross-site", "same-site"):
        answer = Client().get("/login/saml/corp/", headers={"Sec-Fetch-Site": site})
        assert answer["Location"] == "/login/"
    browser = Client()
    form = idp.form(browser.get("/login/saml/corp/?next=//evil.example.com")["Location"], Answer())
    assert browser.post(ACS, {**form, "next": "//evil.example.com"})["Location"] == "/"


def test_an_answer_of_more_than_is_read_is_not_repeated_to_the_browser(corp: None) -> None:
    answer = Client().post(ACS, {"SAMLResponse": "A" * 600_000, "RelayState": "x"})
    assert answer.status_code == 400
    assert len(answer.content) < 50_000
    assert Client().post("/login/saml/other/acs/", {"SAMLResponse": "x"}).status_code == 404
    assert Client().get(ACS).status_code == 405


# ── A recent log-in, the session, address ranges, SCIM ───────────────────────────────────────────────────────────────
def proved_at(client: Client) -> Any:
    request = RequestFactory().get("/")
    request.session = client.session
    return freshness.proved_at(request)


def test_a_confirmation_asks_for_a_new_log_in_and_counts_by_the_providers_time(log_in: LogIn, settings: Any) -> None:
    settings.SETPOINT_SAML = (idp.provider(trusts_authn_instant=True),)
    client = Client()
    log_in(client)
    assert proved_at(client) is None, "it was not asked to forget the log-in that it remembers"
    page = client.get("/account/confirm/?next=/plans/").content.decode()
    assert "/login/saml/corp/?again=1&amp;next=%2Fplans%2F" in page
    begun = client.get("/login/saml/corp/?again=1&next=/plans/")
    assert idp.request_of(begun["Location"])[0].get("ForceAuthn") == "true"
    assert client.post(ACS, idp.form(begun["Location"], Answer(proved=-7000)))["Location"] == "/plans/"
    assert (now() - proved_at(client)).total_seconds() > 6000, "a provider that remembers is not believed"
    begun = client.get("/login/saml/corp/?again=1")
    client.post(ACS, idp.form(begun["Location"], Answer()))
    assert (now() - proved_at(client)).total_seconds() < 60
    log_in(Client())
    client.logout()
    log_in(client)
    assert proved_at(client) is None


def test_a_provider_that_writes_the_time_of_its_answer_proves_no_recent_log_in(log_in: LogIn, settings: Any) -> None:
    """Keycloak does, and the person at the browser can take ForceAuthn out of the request."""
    client = Client()
    log_in(client)
    begun = client.get("/login/saml/corp/?again=1")
    client.post(ACS, idp.form(begun["Location"], Answer()))
    assert proved_at(client) is None


@pytest.mark.parametrize(("asked_for", "trusts", "is_told"),
    [("reboot", False, True), ("", False, False), ("reboot", True, False)])  # fmt: skip
def test_the_person_is_told_where_a_provider_makes_it_impossible(
    log_in: LogIn, settings: Any, asked_for: str, trusts: bool, is_told: bool
) -> None:
    settings.SETPOINT_STEP_UP = asked_for
    settings.SETPOINT_SAML = (idp.provider(trusts_authn_instant=trusts),)
    log_in(client := Client())
    assert ("AuthnInstant" in client.get("/account/").content.decode()) is is_told


def test_a_session_ends_no_later_than_the_providers(log_in: LogIn, clock: Clock) -> None:
    clock.at = datetime.now(UTC)  # signatures are verified at the present
    log_in(client := Client(), session_ends=600)
    kept = Session.objects.get(pk=LiveSession.objects.get().key)
    assert 500 < (kept.expire_date - now()).total_seconds() <= 600
    clock.forward(300)
    client.get("/login/saml/corp/?again=1")  # it writes to the session
    kept.refresh_from_db()
    assert 200 < (kept.expire_date - now()).total_seconds() <= 300, "a session that is used goes on for longer"
    log_in(client := Client(), session_ends=10**8)
    assert client.session.get_expiry_age() <= configured.SESSION_COOKIE_AGE
    assert log_in(session_ends=-5).status_code == 403


def test_a_later_log_in_without_an_end_is_not_held_to_an_earlier_ones(log_in: LogIn) -> None:
    log_in(client := Client(), session_ends=600)
    begun = client.get("/login/saml/corp/?again=1")
    client.post(ACS, idp.form(begun["Location"], Answer()))
    assert client.session.get_expiry_age() > 600


def test_address_ranges_hold_for_it(log_in: LogIn) -> None:
    log_in()
    User.objects.get().put_marked(networks="192.0.2.0/24")
    assert log_in(Client(REMOTE_ADDR="198.51.100.9")).status_code == 403
    assert log_in(Client(REMOTE_ADDR="192.0.2.7")).status_code == 302


def test_a_link_in_place_of_groups_is_named(log_in: LogIn) -> None:
    link = {"http://schemas.microsoft.com/claims/groups.link": ["https://graph.windows.net/x"]}
    refused = log_in(attributes={"email": ["ada@example.com"], **link})
    assert "a link in place of the groups" in refused.context["refusal"]["message"]


def test_two_addresses_name_no_account_and_a_known_person_needs_none(log_in: LogIn) -> None:
    two = ["ada@example.com", "root@example.com"]
    refused = log_in(attributes=attributes("ops", email=two))
    assert refused.status_code == 403
    assert "2 e-mail addresses (attribute email)" in refused.context["refusal"]["message"]
    assert not User.objects.exists()
    log_in()
    assert log_in(attributes=attributes("ops", email=two)).status_code == 302
    assert User.objects.get().email == "ada@example.com"
    assert log_in(attributes=attributes("staff", email=two)).status_code == 403
    assert not RoleBinding.objects.exists(), "whom the provider has taken out of all groups is shut out"
    assert not LiveSession.objects.exists()
    assert Record.objects.filter(action="session.refuse", target="identity:corp").count() == 2


def test_two_names_of_the_directory_lead_to_no_account(log_in: LogIn, settings: Any) -> None:
    settings.SETPOINT_SAML = (replace(idp.provider(), scim_subject="oid"),)
    log_in(attributes=attributes("ops", oid=["o-1"]))
    assert log_in(attributes=attributes("staff", oid=["o-1", "o-2"])).status_code == 403
    assert not LiveSession.objects.exists()


def test_what_providers_write_around_a_text_counts_for_nothing(log_in: LogIn) -> None:
    blanks = {
        "issuer": f"\n  {idp.ENTITY}\n",
        "response_issuer": f" {idp.ENTITY} ",
        "audience": f"\n {idp.SP}/metadata/ ",
    }
    assert log_in(**blanks).status_code == 302
    assert log_in(raw=lambda xml: b"\xef\xbb\xbf" + xml).status_code == 302, "a byte order mark"


def test_prefixes_of_the_reference_are_verified(log_in: LogIn) -> None:
    def declare(assertion: Any) -> None:
        etree.cleanup_namespaces(assertion, top_nsmap={"xs": XS}, keep_ns_prefixes=["xs"])

    assert log_in(prefixes=["xs"], edit=declare).status_code == 302
    altered = log_in(prefixes=["xs"], edit=declare, raw=lambda xml: xml.replace(b'PrefixList="xs"', b'PrefixList="ds"'))
    assert altered.status_code == 403


def test_an_attribute_may_be_the_directorys_name_of_a_person(log_in: LogIn, settings: Any) -> None:
    settings.SETPOINT_SAML = (replace(idp.provider(), scim_subject="oid"),)
    assert log_in(attributes=attributes("ops", oid=["o-1"])).status_code == 302
