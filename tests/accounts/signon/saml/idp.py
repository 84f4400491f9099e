"""A SAML provider without a server: it signs its own answers, and lies where a test wants it to."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from lxml import etree
from signxml.algorithms import CanonicalizationMethod
from signxml.signer import SignatureReference, XMLSigner

from accounts.providers import GroupRole, SamlProvider
from common.clock import now

MAPPING = (GroupRole("ops", "operator", "env:staging"), GroupRole("approvers", "approver", "*"),
           GroupRole("admins", "admin", "*"))  # fmt: skip
ENTITY = "https://idp.example.com/metadata"
SSO = "https://idp.example.com/sso"
SP = "http://testserver/login/saml/corp"
ACS = f"{SP}/acs/"
PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
EXCLUSIVE = "http://www.w3.org/2001/10/xml-exc-c14n#"
SUCCESS = "urn:oasis:names:tc:SAML:2.0:status:Success"
NS = {
    "samlp": "urn:oasis:names:tc:SAML:2.0:protocol",
    "saml": "urn:oasis:names:tc:SAML:2.0:assertion",
    "ds": "http://www.w3.org/2000/09/xmldsig#",
}


def certificate(key: Any, *, days: int = 365, begins: datetime | None = None) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "idp")])
    begins = begins or datetime.now(UTC) - timedelta(days=30)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM).decode()


KEY, OTHER_KEY = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
EC_KEY = ec.generate_private_key(ec.SECP256R1())
CERTIFICATE, OTHER_CERTIFICATE, EC_CERTIFICATE = certificate(KEY), certificate(OTHER_KEY), certificate(EC_KEY)


class Signer(XMLSigner):
    """One that signs by what is refused, too."""

    def check_deprecated_methods(self) -> None:
        pass

    def _build_transforms_for_reference(self, *, transforms_node: Any, reference: Any, **rest: Any) -> None:
        """Write the prefixes that the digest is made with: signxml leaves them out of an enveloped signature."""
        super()._build_transforms_for_reference(transforms_node=transforms_node, reference=reference, **rest)
        if reference.inclusive_ns_prefixes:
            prefixes = " ".join(reference.inclusive_ns_prefixes)
            etree.SubElement(transforms_node[-1], f"{{{EXCLUSIVE}}}InclusiveNamespaces", PrefixList=prefixes)


Edit = Callable[[etree._Element], Any]


def unchanged(element: etree._Element) -> None:
    pass


@dataclass
class Answer:
    """Words of the provider. `edit` changes the assertion before it is signed, `after` the response afterwards."""

    subject: str = "ada-1"
    format: str = PERSISTENT
    attributes: dict[str, list[str]] = field(
        default_factory=lambda: {"email": ["ada@example.com"], "groups": ["ops", "x"], "givenName": ["Ada"]}
    )
    issuer: str = ENTITY
    response_issuer: str = ENTITY
    audience: str = f"{SP}/metadata/"
    recipient: str = ACS
    destination: str = ACS
    request: str = ""
    """In place of the request's ID, in the assertion alone."""
    status: str = f'<samlp:StatusCode Value="{SUCCESS}"/>'
    assertion_id: str = ""
    begins: int = -5
    ends: int = 300
    """Seconds from now."""
    proved: int = 0
    session_ends: int | None = None
    key: Any = KEY
    cert: str | None = CERTIFICATE
    algorithm: str = "rsa-sha256"
    digest: str = "sha256"
    signs_assertion: bool = True
    signs_response: bool = False
    prefixes: list[str] | None = None
    """InclusiveNamespaces of the reference's Transform."""
    info_prefixes: list[str] | None = None
    """The same of CanonicalizationMethod."""
    edit: Edit = unchanged
    after: Edit = unchanged
    raw: Callable[[bytes], bytes] = lambda xml: xml


def request_of(location: str) -> tuple[etree._Element, str]:
    """Return the request that a redirect carries, and its RelayState."""
    query = parse_qs(urlsplit(location).query)
    return etree.fromstring(zlib.decompress(base64.b64decode(query["SAMLRequest"][0]), -15)), query["RelayState"][0]


def at(seconds: float) -> str:
    return (now() + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def assertion(answer: Answer, request: str) -> etree._Element:
    attributes = "".join(
        f'<saml:Attribute Name="{name}">{"".join(f"<saml:AttributeValue>{v}</saml:AttributeValue>" for v in values)}'
        "</saml:Attribute>"
        for name, values in answer.attributes.items()
    )
    identifier, begins, ends = answer.assertion_id or f"_{uuid4().hex}", at(answer.begins), at(answer.ends)
    session = "" if answer.session_ends is None else f' SessionNotOnOrAfter="{at(answer.session_ends)}"'
    made = etree.fromstring(f"""<saml:Assertion xmlns:saml="{NS["saml"]}" ID="{identifier}"
 Version="2.0" IssueInstant="{at(0)}"><saml:Issuer>{answer.issuer}</saml:Issuer><saml:Subject>
<saml:NameID Format="{answer.format}">{answer.subject}</saml:NameID>
<saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:bearer"><saml:SubjectConfirmationData
 Recipient="{answer.recipient}" InResponseTo="{answer.request or request}" NotOnOrAfter="{ends}"/>
</saml:SubjectConfirmation></saml:Subject><saml:Conditions NotBefore="{begins}" NotOnOrAfter="{ends}">
<saml:AudienceRestriction><saml:Audience>{answer.audience}</saml:Audience></saml:AudienceRestriction></saml:Conditions>
<saml:AuthnStatement AuthnInstant="{at(answer.proved)}"{session}><saml:AuthnContext>
<saml:AuthnContextClassRef>x</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement><saml:AttributeStatement>{attributes}</saml:AttributeStatement></saml:Assertion>""")
    answer.edit(made)
    return signed(made, answer) if answer.signs_assertion else made


def signed(element: etree._Element, answer: Answer) -> etree._Element:
    placeholder = etree.Element(f"{{{NS['ds']}}}Signature", Id="placeholder", nsmap={"ds": NS["ds"]})
    element.insert(1, placeholder)
    signer = Signer(
        signature_algorithm=answer.algorithm,
        digest_algorithm=answer.digest,
        c14n_algorithm=CanonicalizationMethod.EXCLUSIVE_XML_CANONICALIZATION_1_0,
    )
    reference = SignatureReference(f"#{element.get('ID')}", inclusive_ns_prefixes=answer.prefixes)
    return signer.sign(
        element, key=answer.key, cert=answer.cert, reference_uri=[reference], id_attribute="ID",
        inclusive_ns_prefixes=answer.info_prefixes,
    )  # fmt: skip


def response(answer: Answer, request: str) -> etree._Element:
    made = etree.fromstring(f"""<samlp:Response xmlns:samlp="{NS["samlp"]}" xmlns:saml="{NS["saml"]}"
 ID="_{uuid4().hex}" Version="2.0" IssueInstant="{at(0)}" Destination="{answer.destination}" InResponseTo="{request}">
<saml:Issuer>{answer.response_issuer}</saml:Issuer><samlp:Status>{answer.status}</samlp:Status></samlp:Response>""")
    made.append(assertion(answer, request))
    if answer.signs_response:
        made = signed(made, answer)
    answer.after(made)
    return made


def form(location: str, answer: Answer) -> dict[str, str]:
    """Return what the browser posts, for the request of this redirect."""
    request, relay = request_of(location)
    xml = answer.raw(etree.tostring(response(answer, request.get("ID", ""))))
    return {"SAMLResponse": base64.b64encode(xml).decode(), "RelayState": relay}


def provider(**over: Any) -> SamlProvider:
    given = {"sso_url": SSO, "certificates": (CERTIFICATE,)} | over
    return SamlProvider("corp", "Example Corp", ENTITY, MAPPING, **given)
