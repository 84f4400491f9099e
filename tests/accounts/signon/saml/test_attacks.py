"""Answers of a SAML provider, or of an attacker, with which no log-in may succeed."""

from __future__ import annotations

import base64
import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from lxml import etree

from accounts.models import LiveSession, User
from accounts.signon.saml import signatures
from tests.accounts.signon.saml import idp
from tests.accounts.signon.saml.conftest import LogIn
from tests.accounts.signon.saml.idp import NS, Answer

pytestmark = pytest.mark.django_db

ACS = "/login/saml/corp/acs/"


def put(path: str, name: str, value: str | None) -> Callable[[Any], None]:
    """Set, or take away, an attribute of the element at this path."""

    def edit(root: Any) -> None:
        element = root if path == "." else root.find(path, NS)
        if value is None:
            del element.attrib[name]
        else:
            element.set(name, value)

    return edit


def drop(path: str) -> Callable[[Any], None]:
    def edit(root: Any) -> None:
        element = root.find(path, NS)
        element.getparent().remove(element)

    return edit


def twice(path: str) -> Callable[[Any], None]:
    def edit(root: Any) -> None:
        element = root.find(path, NS)
        element.addnext(copy.deepcopy(element))

    return edit


def text(path: str, value: str) -> Callable[[Any], None]:
    def edit(root: Any) -> None:
        root.find(path, NS).text = value

    return edit


def inside(before: bytes, after: bytes) -> Callable[[bytes], bytes]:
    def raw(xml: bytes) -> bytes:
        assert before in xml
        return xml.replace(before, after, 1)

    return raw


def encrypted(root: Any) -> None:
    root.find("saml:Assertion", NS).tag = f"{{{NS['saml']}}}EncryptedAssertion"


def status(*codes: str) -> str:
    out = ""
    for code in reversed(codes):
        out = f'<samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:{code}">{out}</samlp:StatusCode>'
    return out


CONFIRMATION = "saml:Subject/saml:SubjectConfirmation"
HOLDER = "urn:oasis:names:tc:SAML:2.0:cm:holder-of-key"
EMAIL = "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"
INCLUSIVE = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
XPATH = "http://www.w3.org/TR/1999/REC-xpath-19991116"
NAME = "saml:Subject/saml:NameID"
DATA = "saml:Subject/saml:SubjectConfirmation/saml:SubjectConfirmationData"
INFO = "saml:Assertion/ds:Signature/ds:SignedInfo"
PUBLIC = idp.CERTIFICATE.encode()
MANY = b" ".join(b'a%d=""' % n for n in range(99))
DTD = b'<!DOCTYPE x [<!ENTITY a "b">]>'
HMAC = {"key": PUBLIC, "cert": None, "algorithm": "hmac-sha256"}
FAKE = {"key": idp.OTHER_KEY, "cert": idp.OTHER_CERTIFICATE}
ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "without a signature": ({"signs_assertion": False}, "without a signature of its own"),
    "with the response signed alone": ({"signs_assertion": False, "signs_response": True}, "without a signature"),
    "signed with another key": (FAKE, "without a valid signature"),
    "signed with the key of its KeyInfo": ({"key": idp.OTHER_KEY, "cert": idp.OTHER_CERTIFICATE}, "configured"),
    "signed with another key, naming ours": ({"key": idp.OTHER_KEY, "cert": idp.CERTIFICATE}, "configured"),
    "signed by SHA-1": ({"algorithm": "rsa-sha1"}, "'rsa-sha1'"),
    "with a digest by SHA-1": ({"digest": "sha1"}, "'sha1'"),
    "signed with the certificate as a secret": (HMAC, "'hmac-sha256'"),
    "altered after it was signed": (
        {"after": text(".//saml:Attribute[@Name='groups']/saml:AttributeValue", "admins")}, "valid signature"),
    "with the signed response altered": ({"signs_response": True, "after": put(".", "X", "y")}, "valid signature"),
    "canonicalized inclusively": (
        {"after": put(f"{INFO}/ds:CanonicalizationMethod", "Algorithm", INCLUSIVE)},
        "canonicalization"),
    "with prefixes of CanonicalizationMethod": (
        {"info_prefixes": ["saml"]}, "InclusiveNamespaces within CanonicalizationMethod"),
    "with an XPath transform": (
        {"after": put(f"{INFO}/ds:Reference/ds:Transforms/ds:Transform", "Algorithm", XPATH)},
        "transforms"),
    "with a reference to the document": ({"after": put(f"{INFO}/ds:Reference", "URI", "")}, "does not name"),
    "with a reference elsewhere": (
        {"after": put(f"{INFO}/ds:Reference", "URI", "http://169.254.169.254/")}, "does not name"),
    "with two references": ({"after": twice(f"{INFO}/ds:Reference")}, "2 elements Reference"),
    "with two signatures": ({"after": twice("saml:Assertion/ds:Signature")}, "2 signatures"),
    "with two assertions": ({"after": twice("saml:Assertion")}, "2 assertions"),
    "without an assertion": ({"after": drop("saml:Assertion")}, "0 assertions"),
    "with an encrypted assertion": ({"after": encrypted}, "encrypts"),
    "for another application": ({"audience": "https://other.example.com"}, "another application"),
    "for no application": ({"edit": drop("saml:Conditions/saml:AudienceRestriction")}, "names no application"),
    "without conditions": ({"edit": drop("saml:Conditions")}, "Conditions"),
    "for another address": ({"recipient": "https://other.example.com/acs/"}, "for another address"),
    "without an address": ({"edit": put(DATA, "Recipient", None)}, "for another address"),
    "sent to another address": ({"destination": "https://other.example.com/acs/"}, "another address"),
    "sent to no address": ({"after": put(".", "Destination", None)}, "another address"),
    "of another issuer": ({"issuer": "https://evil.example.com"}, "not issued by"),
    "in a response of another issuer": ({"response_issuer": "https://evil.example.com"}, "not issued by"),
    "of another request": ({"request": "_other"}, "does not belong"),
    "of no request": ({"edit": put(DATA, "InResponseTo", None)}, "does not belong"),
    "in a response to another request": ({"after": put(".", "InResponseTo", "_other")}, "does not belong"),
    "in a response to no request": ({"after": put(".", "InResponseTo", None)}, "does not belong"),
    "expired": ({"ends": -120}, "expired"),
    "without an end": ({"edit": put(DATA, "NotOnOrAfter", None)}, "without an end"),
    "confirmed until a minute ago": ({"edit": put(DATA, "NotOnOrAfter", idp.at(-120))}, "expired"),
    "not valid yet": ({"begins": 600}, "future"),
    "issued in the future": ({"edit": put(".", "IssueInstant", idp.at(3600))}, "not of the time"),
    "issued before it was asked for": ({"edit": put(".", "IssueInstant", idp.at(-3600))}, "not of the time"),
    "issued at no time": ({"edit": put(".", "IssueInstant", "yesterday")}, "cannot be read"),
    "with a log-in in the future": ({"proved": 3600}, "when you logged in"),
    "without a log-in": ({"edit": drop("saml:AuthnStatement")}, "AuthnStatement"),
    "for the holder of a key": (
        {"edit": put(CONFIRMATION, "Method", HOLDER)}, "bearer"),
    "with a condition of its own": (
        {"edit": lambda a: etree.SubElement(a.find("saml:Conditions", NS), f"{{{NS['saml']}}}Condition")}, "condition"),
    "of SAML 1.1": ({"edit": put(".", "Version", "1.1")}, "version"),
    "with a transient name": ({"format": "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"}, "'transient'"),
    "with an address for a name": ({"format": EMAIL}, "'emailAddress'"),
    "without a name": ({"subject": ""}, "names no person"),
    "with a name of blanks": ({"subject": " ada-1"}, "names no person"),
    "with an endless name": ({"subject": "a" * 256}, "names no person"),
    "with an element in the name": ({"subject": "ada<saml:x/>-1"}, "elements within NameID"),
    "with two names": ({"edit": twice(NAME)}, "2 elements NameID"),
    "with a name of another provider's": ({"edit": put(NAME, "NameQualifier", "x")}, "another provider"),
    "with a name for another application": (
        {"edit": put(NAME, "SPNameQualifier", "x")}, "another application"),
    "with a comment in the name": ({"raw": inside(b">ada-1<", b">ada<!-- -->-1<")}, "comment"),
    "with CDATA in the name": ({"raw": inside(b">ada-1<", b"><![CDATA[ada-1]]><")}, "comment"),
    "with an instruction in the name": ({"raw": inside(b">ada-1<", b">ada<?x y?>-1<")}, "instruction"),
    "with a DTD": ({"raw": lambda xml: DTD + xml}, "DTD"),
    "in UTF-16": ({"raw": lambda xml: xml.decode().encode("utf-16")}, "no base64 of UTF-8"),
    "in UTF-7": ({"raw": lambda xml: b'<?xml version="1.0" encoding="utf-7"?>' + xml}, "instruction"),
    "cut off": ({"raw": lambda xml: xml[:-20]}, "no XML"),
    "of another kind": ({"raw": lambda xml: b"<x/>"}, "no SAML 2.0 response"),
    "of nothing": ({"raw": lambda xml: b""}, "no XML"),
    "with attributes without end": (
        {"raw": inside(b"<saml:Conditions", b"<x " + MANY + b"/><saml:Conditions")},
        "more than 50 attributes"),
    "that is too deep": ({"raw": lambda xml: b"<x>" * 5000}, "no XML"),
    "of a log-in that failed": ({"status": status("Responder", "AuthnFailed")}, "did not let you in"),
    "of a provider that is down": ({"status": status("Responder")}, "could not log you in"),
    "of a request that it refuses": ({"status": status("Requester", "InvalidNameIDPolicy")}, "InvalidNameIDPolicy"),
    "of a status that is no word": ({"status": status("&lt;b&gt;")}, "unknown status"),
}  # fmt: skip


@pytest.mark.parametrize(("over", "message"), ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.every_case
def test_an_answer_that_proves_nothing_lets_nobody_in(
    log_in: LogIn, over: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client()
    with caplog.at_level(logging.DEBUG):
        refused = log_in(client, **over)
    assert refused.status_code in (403, 502)
    assert message in refused.context["refusal"]["message"]
    assert refused.context["refusal"]["advice"]
    assert client.get("/api/v1/me").status_code == 401
    assert not User.objects.exists()
    assert not LiveSession.objects.exists()
    assert "ada@example.com" not in caplog.text


@pytest.mark.parametrize("skew", [-45, 45])
def test_clocks_may_differ_by_a_minute(log_in: LogIn, skew: int) -> None:
    assert log_in(begins=skew, ends=skew, proved=skew, edit=put(".", "IssueInstant", idp.at(skew))).status_code == 302


def test_an_answer_counts_once(corp: None) -> None:
    client = Client()
    form = idp.form(client.get("/login/saml/corp/")["Location"], Answer())
    assert client.post(ACS, form).status_code == 302
    client.post("/logout/")
    assert client.post(ACS, {**form, "again": "1"}).status_code == 400
    assert client.get("/api/v1/me").status_code == 401


def test_a_refused_answer_ends_its_request(corp: None) -> None:
    """Else a person could try answers to one request without end."""
    client = Client()
    location = client.get("/login/saml/corp/")["Location"]
    assert client.post(ACS, idp.form(location, Answer(**FAKE))).status_code == 403
    assert client.post(ACS, {**idp.form(location, Answer()), "again": "1"}).status_code == 400


def test_an_assertion_is_used_once_whatever_it_answers(log_in: LogIn) -> None:
    """A provider that gives one ID to two assertions is not told from one whose assertion was stolen."""
    assert log_in(assertion_id="_same").status_code == 302
    refused = log_in(assertion_id="_same")
    assert refused.status_code == 403
    assert "used already" in refused.context["refusal"]["message"]


def test_a_log_in_of_a_quarter_of_an_hour_ago_has_expired(corp: None, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    begun = client.get("/login/saml/corp/")["Location"]
    monkeypatch.setattr("accounts.signon.saml.requests.LASTS", -idp.timedelta(seconds=1))
    assert client.post(ACS, {**idp.form(begun, Answer()), "again": "1"}).status_code == 400


def test_a_certificate_that_has_expired_verifies_nothing_and_says_so(log_in: LogIn, settings: Any) -> None:
    old = idp.certificate(idp.KEY, days=10)
    settings.SETPOINT_SAML = (idp.provider(certificates=(old,)),)
    refused = log_in(cert=old)
    assert refused.status_code == 502
    assert "expired" in refused.context["refusal"]["message"]
    settings.SETPOINT_SAML = (idp.provider(certificates=(old, idp.CERTIFICATE)),)
    assert log_in().status_code == 302, "while it is being replaced"


def test_only_what_was_signed_is_returned(corp: None) -> None:
    """Comments are not signed: where they were read, a part of a text would pass for the whole."""
    root = idp.response(Answer(subject="root@example.com.evil.example"), "_r")
    name = root.find(".//saml:NameID", NS)
    name.text = "root@example.com"
    comment = etree.Comment("x")
    comment.tail = ".evil.example"
    name.append(comment)
    signed = signatures.signed(root, f"{{{NS['saml']}}}Assertion", idp.provider())
    assert signed.find(".//saml:NameID", NS).text == "root@example.com.evil.example"
    assert signed.getroottree().getroot() is signed, "it is of another document"


def test_the_log_has_the_reason_of_each_certificate(log_in: LogIn, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, signatures.__name__)
    assert log_in(key=idp.OTHER_KEY, cert=idp.OTHER_CERTIFICATE).status_code == 403
    (line,) = [record.getMessage() for record in caplog.records if record.name == signatures.__name__]
    assert "InvalidSignature" in line


def test_a_defect_of_a_library_is_no_bad_signature(log_in: LogIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an error is not hidden behind advice about certificates, and lets no one in."""

    def defect(*args: Any, **kwargs: Any) -> None:
        raise TypeError("of a new version")

    monkeypatch.setattr(signatures.XMLVerifier, "verify", defect)
    with pytest.raises(TypeError):
        log_in()
    assert not User.objects.exists()


def test_text_that_is_no_base64_is_refused(corp: None) -> None:
    for sent in ("%%%", "AAAA=A", base64.b64encode(b"\xff\xfe").decode()):
        client = Client()
        form = idp.form(client.get("/login/saml/corp/")["Location"], Answer())
        assert client.post(ACS, {**form, "SAMLResponse": sent}).status_code == 403
