"""Verification of a SAML response (SAML 2.0 Profiles, section 4.1.4.3), and the claims in what it signed.

They have the names of OpenID Connect's, so that all that follows is the same: `sub`, `email`, `auth_time`, groups.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest
from lxml import etree

from accounts.access.jose import LEEWAY_SECONDS, LONGEST_SUBJECT
from accounts.models import UsedAssertion
from accounts.providers import SamlProvider
from accounts.signon.refusals import BadToken, Cancelled, Misconfigured, ProviderDown, SignOnRefused
from accounts.signon.saml import requests, signatures
from accounts.signon.saml.documents import check_form, only, read, text_of
from accounts.signon.saml.names import BEARER, ENTITY, NAME_IDS, SUCCESS, ds, saml, samlp
from accounts.signon.saml.times import instant
from common.clock import now

LEEWAY = timedelta(seconds=LEEWAY_SECONDS)
LONGEST_KEPT = timedelta(days=1)
"""How long a used assertion is remembered at most: its request is over long before."""
GROUPS_LINK = "http://schemas.microsoft.com/claims/groups.link"
"""Entra ID sends it in place of too many groups."""
_CLOCKS = "The clocks of the provider and of this installation differ: an operator should look at both."
_AGAIN = "Start again from this page."


@dataclass(frozen=True, slots=True)
class Answered:
    """A person whom the provider vouches for, the page that they wanted, and when the provider ends the session."""

    claims: dict[str, Any]
    next: str
    until: datetime | None


def finish(request: HttpRequest, provider: SamlProvider) -> Answered:
    """Verify the answer in this request, which its session waits for. Raises SignOnRefused."""
    begun = requests.take(request, provider, request.POST.get("RelayState", ""))
    root = read(request.POST.get("SAMLResponse", ""), provider)
    _check_response(root, provider, begun)
    check_form(root, provider)
    if root.find(ds("Signature")) is not None:
        signatures.signed(root, ".", provider)
    assertion = signatures.signed(root, saml("Assertion"), provider)
    ends = _check_assertion(assertion, provider, begun)
    claims, until = _claims(assertion, provider, begun)
    _spend(assertion, provider, begun, ends)
    return Answered(claims, begun.next, until)


# ── The response ──────────────────────────────────────────────────────────────────────────────────────────────────────
def _check_response(root: etree._Element, provider: SamlProvider, begun: requests.Begun) -> None:
    """Raises SignOnRefused. Most of it is unsigned: the assertion repeats what counts."""
    if root.get("Version") != "2.0":
        raise BadToken(f"{provider.name} sent a response of another version than SAML 2.0.")
    if root.get("Destination") != requests.answer_url(provider):
        raise BadToken(f"{provider.name} sent a response for another address.", "Compare SETPOINT_URL with it.")
    _check_issuer(only(root, saml("Issuer"), provider), provider)
    if not _is(root.get("InResponseTo"), begun.id):
        raise BadToken(f"The response of {provider.name} does not belong to this log-in.", _AGAIN)
    status = only(root, samlp("Status"), provider)
    code = only(status, samlp("StatusCode"), provider)
    if code.get("Value") != SUCCESS:
        raise _refused(code, provider)


def _refused(code: etree._Element, provider: SamlProvider) -> SignOnRefused:
    """The provider's message is not shown: it may be anything."""
    words = [each.get("Value", "").rpartition(":")[2] for each in (code, *code.findall(samlp("StatusCode")))]
    if {"AuthnFailed", "RequestDenied", "NoPassive"} & set(words):
        return Cancelled(f"{provider.name} did not let you in, or the log-in was cancelled there.")
    if words == ["Responder"]:
        return ProviderDown(f"{provider.name} could not log you in now.")
    word = next((each for each in reversed(words) if each.isalpha() and len(each) <= 40), "unknown status")
    return Misconfigured(f"{provider.name} refused the request of this installation: {word}.")


def _check_issuer(issuer: etree._Element, provider: SamlProvider) -> None:
    if issuer.get("Format", ENTITY) != ENTITY or not _is(text_of(issuer, provider).strip(), provider.issuer):
        raise BadToken(f"The answer was not issued by {provider.issuer}.", "Compare …_ENTITY_ID with the provider's.")


# ── The assertion ─────────────────────────────────────────────────────────────────────────────────────────────────────
def _check_assertion(assertion: etree._Element, provider: SamlProvider, begun: requests.Begun) -> datetime:
    """Return when the assertion ends. Raises BadToken unless it is the provider's, for this log-in and valid."""
    if assertion.get("Version") != "2.0":
        raise BadToken(f"{provider.name} sent an assertion of another version than SAML 2.0.")
    issued = _time(assertion, "IssueInstant", provider)
    if issued is None or issued > now() + LEEWAY or issued < begun.at - LEEWAY:
        raise BadToken(f"The assertion of {provider.name} is not of the time of this log-in.", _CLOCKS)
    _check_issuer(only(assertion, saml("Issuer"), provider), provider)
    conditions = only(assertion, saml("Conditions"), provider)
    _check_audience(conditions, provider)
    return min(_end(conditions, provider), _confirmed(assertion, provider, begun))


def _check_audience(conditions: etree._Element, provider: SamlProvider) -> None:
    known = {saml("AudienceRestriction"), saml("OneTimeUse"), saml("ProxyRestriction")}
    if any(child.tag not in known for child in conditions):
        raise BadToken(f"{provider.name} sent a condition that is not understood.")
    restrictions = conditions.findall(saml("AudienceRestriction"))
    ours = requests.entity_id(provider)
    for restriction in restrictions:
        audiences = [text_of(each, provider).strip() for each in restriction.findall(saml("Audience"))]
        if ours not in audiences:
            raise BadToken(f"The assertion of {provider.name} was issued for another application.")
    if not restrictions:
        raise BadToken(f"The assertion of {provider.name} names no application that it is for.")


def _confirmed(assertion: etree._Element, provider: SamlProvider, begun: requests.Begun) -> datetime:
    """Return when the confirmation ends: the bearer may use the assertion here, once, until then. Raises BadToken."""
    confirmation = only(only(assertion, saml("Subject"), provider), saml("SubjectConfirmation"), provider)
    if confirmation.get("Method") != BEARER:
        raise BadToken(f"{provider.name} sent an assertion that its bearer may not use.")
    data = only(confirmation, saml("SubjectConfirmationData"), provider)
    if not _is(data.get("Recipient"), requests.answer_url(provider)):
        raise BadToken(f"The assertion of {provider.name} is for another address.", "Compare SETPOINT_URL with it.")
    if not _is(data.get("InResponseTo"), begun.id):
        raise BadToken(f"The assertion of {provider.name} does not belong to this log-in.", _AGAIN)
    if data.get("NotOnOrAfter") is None:
        raise BadToken(f"{provider.name} sent an assertion without an end.")
    return _end(data, provider)


def _end(element: etree._Element, provider: SamlProvider) -> datetime:
    """Return its NotOnOrAfter; without one, as late as can be. Raises BadToken unless it is valid now."""
    begins, ends = _time(element, "NotBefore", provider), _time(element, "NotOnOrAfter", provider)
    if begins is not None and begins > now() + LEEWAY:
        raise BadToken(f"The assertion of {provider.name} is from the future.", _CLOCKS)
    if ends is not None and ends <= now() - LEEWAY:
        raise BadToken(f"The assertion of {provider.name} has expired.", f"{_AGAIN} {_CLOCKS}")
    return ends or datetime.max.replace(tzinfo=UTC)


def _spend(assertion: etree._Element, provider: SamlProvider, begun: requests.Begun, ends: datetime) -> None:
    """Remember assertion and request as used; of several posts at once the database lets one in. Raises BadToken."""
    until = now() + LEEWAY + min(max(ends - now(), requests.LASTS), LONGEST_KEPT)
    used = (f"assertion {assertion.get('ID')}", f"request {begun.id}")
    digests = [hashlib.sha256(f"saml {provider.issuer} {each}".encode()).hexdigest() for each in used]
    try:
        with transaction.atomic():
            for digest in digests:
                UsedAssertion.objects.create(digest=digest, expires_at=until)
    except IntegrityError:
        raise BadToken(f"The assertion of {provider.name} was used already.", _AGAIN) from None


# ── The person ────────────────────────────────────────────────────────────────────────────────────────────────────────
def _claims(
    assertion: etree._Element, provider: SamlProvider, begun: requests.Begun
) -> tuple[dict[str, Any], datetime | None]:
    """Return the claims, and when the provider ends the session. Raises BadToken, Misconfigured."""
    statement = only(assertion, saml("AuthnStatement"), provider)
    proved = _time(statement, "AuthnInstant", provider)
    if proved is None or proved > now() + LEEWAY:
        raise BadToken(f"{provider.name} does not tell when you logged in there, or a time in the future.", _CLOCKS)
    until = _time(statement, "SessionNotOnOrAfter", provider)
    if until is not None and until <= now():
        raise BadToken(f"The session at {provider.name} has ended.", _AGAIN)
    subject = _subject(assertion, provider)
    attributes = _attributes(assertion, provider)
    claims: dict[str, Any] = {"sub": subject}
    # Some providers write the time of the answer, also for a log-in that they remember.
    if provider.trusts_authn_instant and begun.is_step_up:
        claims["auth_time"] = proved.timestamp()
    if provider.email_claim == "NameID":
        claims["email"] = subject
    else:
        claims["email"] = _single(attributes, provider.email_claim)
    claims["given_name"] = next(iter(attributes.get(provider.first_name_attribute, [])), None)
    claims["family_name"] = next(iter(attributes.get(provider.last_name_attribute, [])), None)
    if provider.groups_claim in attributes:
        claims[provider.groups_claim] = attributes[provider.groups_claim]
    elif GROUPS_LINK in attributes:
        claims["_claim_names"] = {provider.groups_claim: GROUPS_LINK}
    if provider.scim_subject not in claims:
        claims[provider.scim_subject] = _single(attributes, provider.scim_subject)
    return claims, until


def _subject(assertion: etree._Element, provider: SamlProvider) -> str:
    """Return the NameID: the person for all time, at this provider. Raises BadToken, Misconfigured."""
    name = only(only(assertion, saml("Subject"), provider), saml("NameID"), provider)
    if name.get("Format") != NAME_IDS[provider.name_id]:
        advice = f"Tell the operator of this installation: the provider must send the format {provider.name_id}."
        given = name.get("Format", "unspecified").rpartition(":")[2][:40]
        raise Misconfigured(f"{provider.name} sent a NameID of the format {given!r}.", advice)
    if name.get("NameQualifier", provider.issuer) != provider.issuer:
        raise BadToken(f"{provider.name} sent a NameID of another provider.")
    if name.get("SPNameQualifier", requests.entity_id(provider)) != requests.entity_id(provider):
        raise BadToken(f"{provider.name} sent a NameID for another application.")
    subject = text_of(name, provider)
    if not 0 < len(subject) <= LONGEST_SUBJECT or not subject.isprintable() or subject != subject.strip():
        raise BadToken(f"{provider.name} sent a NameID that names no person.")
    return subject


def _attributes(assertion: etree._Element, provider: SamlProvider) -> dict[str, list[str]]:
    """Return the values by name. Some providers send an attribute of one name several times: its values are joined."""
    out: dict[str, list[str]] = {}
    for attribute in assertion.findall(f"{saml('AttributeStatement')}/{saml('Attribute')}"):
        values = out.setdefault(attribute.get("Name", ""), [])
        plain = [each for each in attribute.findall(saml("AttributeValue")) if not len(each)]
        values += [text_of(each, provider) for each in plain if each.text]
    return out


def _single(attributes: dict[str, list[str]], name: str) -> str | list[str] | None:
    """Return the value, or all where there are several: accounts.signon.arrival judges them, after the groups."""
    values = attributes.get(name, [])
    if len(set(values)) > 1:
        return values
    return values[0] if values else None


def _time(element: etree._Element, name: str, provider: SamlProvider) -> datetime | None:
    value = element.get(name)
    if value is None:
        return None
    at = instant(value)
    if at is None:
        raise BadToken(f"{provider.name} sent a time {name} that cannot be read.")
    return at


def _is(given: str | None, expected: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode(), expected.encode())
