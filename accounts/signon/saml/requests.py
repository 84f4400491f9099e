"""Requests to a SAML provider (HTTP-Redirect), those that this browser's session waits for, and our own metadata."""

from __future__ import annotations

import base64
import secrets
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse
from lxml import etree

from accounts.providers import SamlProvider
from accounts.signon.refusals import Expired
from accounts.signon.saml.names import ASSERTION, ENTITY, METADATA, NAME_IDS, POST, PROTOCOL, md, saml, samlp
from common.clock import now

LASTS = timedelta(minutes=10)
"""From the request to the answer."""
AT_ONCE = 5
"""Log-ins of one browser, in several tabs: the oldest is forgotten for another one."""
_KEPT = "accounts.saml"
"""Key in the session: requests without an answer, by their RelayState."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A request that was sent from this browser and has no answer yet."""

    id: str
    next: str
    at: datetime
    is_step_up: bool
    """It had ForceAuthn when it left here. It is not signed: the person at the browser can take that out."""


def entity_id(provider: SamlProvider) -> str:
    """Return our name at this provider: the address of the metadata, on SETPOINT_URL: a Host header has no say."""
    return _address("accounts:saml_metadata", provider)


def answer_url(provider: SamlProvider) -> str:
    """Return where this provider sends its answer."""
    return _address("accounts:saml_answer", provider)


def _address(name: str, provider: SamlProvider) -> str:
    return f"{settings.BASE_URL.rstrip('/')}{reverse(name, args=[provider.key])}"


def begin(
    request: HttpRequest, provider: SamlProvider, next_url: str, *, is_step_up: bool = False
) -> HttpResponseRedirect:
    """Send the browser to the provider. `is_step_up`: it is asked not to rely on a log-in that it remembers."""
    # An xs:ID must not begin with a digit.
    identifier, relay, at = f"_{secrets.token_hex(20)}", secrets.token_urlsafe(24), now()
    kept = dict(sorted(_kept(request).items(), key=lambda item: item[1]["at"])[-(AT_ONCE - 1) :])
    request.session[_KEPT] = kept | {
        relay: {
            "id": identifier, "provider": provider.key, "next": next_url, "at": at.timestamp(),
            "is_step_up": is_step_up,
        }
    }  # fmt: skip
    xml = _request(provider, identifier, at, is_step_up)
    packed = zlib.compressobj(wbits=-15)
    query = urlencode({
        "SAMLRequest": base64.b64encode(packed.compress(xml) + packed.flush()).decode(),
        "RelayState": relay,
    })  # fmt: skip
    return HttpResponseRedirect(f"{provider.sso_url}{'&' if '?' in provider.sso_url else '?'}{query}")


def is_begun(request: HttpRequest, provider: SamlProvider, relay: str) -> bool:
    """Return whether this browser waits for an answer with this RelayState."""
    return bool(_kept(request).get(relay, {}).get("provider") == provider.key)


def take(request: HttpRequest, provider: SamlProvider, relay: str) -> Begun:
    """Return the request and forget it: one answer to it is looked at, right or wrong. Raises Expired."""
    kept = dict(_kept(request))
    row = kept.pop(relay, None)
    if row is None or row["provider"] != provider.key:
        raise not_in_progress()
    request.session[_KEPT] = kept
    at = datetime.fromtimestamp(row["at"], UTC)
    if now() - at > LASTS:
        raise not_in_progress()
    return Begun(row["id"], row["next"], at, row.get("is_step_up") is True)


def not_in_progress() -> Expired:
    message = "This log-in is not in progress here: it took too long, was used already, or began elsewhere."
    return Expired(message, "Start again from this page, not from the provider's list of applications.")


def _kept(request: HttpRequest) -> dict[str, Any]:
    kept: dict[str, Any] = request.session.get(_KEPT, {})
    return kept


def _request(provider: SamlProvider, identifier: str, at: datetime, is_step_up: bool) -> bytes:
    root = etree.Element(samlp("AuthnRequest"), nsmap={"samlp": PROTOCOL, "saml": ASSERTION})
    root.attrib.update({
        "ID": identifier,
        "Version": "2.0",
        "IssueInstant": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "Destination": provider.sso_url,
        "ProtocolBinding": POST,
        "AssertionConsumerServiceURL": answer_url(provider),
        **({"ForceAuthn": "true"} if is_step_up else {}),
    })  # fmt: skip
    etree.SubElement(root, saml("Issuer"), Format=ENTITY).text = entity_id(provider)
    etree.SubElement(root, samlp("NameIDPolicy"), Format=NAME_IDS[provider.name_id], AllowCreate="true")
    return bytes(etree.tostring(root))


def metadata(provider: SamlProvider) -> bytes:
    """Return what an administrator of the provider registers: our entity ID, where answers go, and what is asked."""
    root = etree.Element(md("EntityDescriptor"), nsmap={"md": METADATA}, entityID=entity_id(provider))
    role = etree.SubElement(
        root,
        md("SPSSODescriptor"),
        AuthnRequestsSigned="false",
        WantAssertionsSigned="true",
        protocolSupportEnumeration=PROTOCOL,
    )
    etree.SubElement(role, md("NameIDFormat")).text = NAME_IDS[provider.name_id]
    service = {"Binding": POST, "Location": answer_url(provider), "index": "0", "isDefault": "true"}
    etree.SubElement(role, md("AssertionConsumerService"), service)
    return bytes(etree.tostring(root, xml_declaration=True, encoding="utf-8", pretty_print=True))
