"""Reading of a SAML response into elements, and the form that it must have before any signature is looked at.

Attacks on SAML put a second assertion, or a second element of the same ID, where one part of the code looks while
another verifies. Here a response has one assertion, in one place, and each ID once; everything else is refused.
"""

from __future__ import annotations

import base64
import binascii
import re

from lxml import etree

from accounts.providers import SamlProvider
from accounts.signon.refusals import BadToken, Misconfigured
from accounts.signon.saml.names import ds, saml, samlp

LONGEST = 512 * 1024
"""Characters of base64: 20,000 groups of a directory are less."""
MOST_ATTRIBUTES = 50
"""Of an XML element."""
_DECLARATION = re.compile(
    r"""^<\?xml version=["']1\.0["'](?: encoding=["']utf-?8["'])?(?: standalone=["']\w+["'])?\s*\?>""", re.IGNORECASE
)
_CHILDREN = {samlp("Extensions"), samlp("Status"), saml("Issuer"), saml("Assertion"), ds("Signature")}


def read(text: str, provider: SamlProvider) -> etree._Element:
    """Return the Response. Raises BadToken, Misconfigured."""
    if len(text) > LONGEST:
        raise BadToken(f"{provider.name} sent an answer of more than {LONGEST:,} characters, which is not read.")
    try:
        xml = base64.b64decode("".join(text.split()), validate=True).decode("utf-8-sig")
    except (binascii.Error, ValueError):
        raise BadToken(f"{provider.name} sent an answer that is no base64 of UTF-8.") from None
    body = _DECLARATION.sub("", xml, count=1)
    # Comments, CDATA, DTDs, entities and processing instructions: no provider needs them, and each has been a way to
    # make two readers of one document see two things.
    if "<!" in body or "<?" in body:
        raise BadToken(f"{provider.name} sent XML with a comment, a DTD or an instruction, which is not read.")
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, huge_tree=False, encoding="utf-8"
    )
    try:
        root = etree.fromstring(body.encode(), parser)
    except (etree.XMLSyntaxError, ValueError):
        raise BadToken(f"{provider.name} sent an answer that is no XML.") from None
    if root.tag != samlp("Response"):
        raise BadToken(f"{provider.name} sent XML that is no SAML 2.0 response.")
    return root


def check_form(root: etree._Element, provider: SamlProvider) -> None:
    """Raises BadToken, Misconfigured unless the response holds one signed assertion, and nothing in another place."""
    if next(root.iter(saml("EncryptedAssertion"), saml("EncryptedID"), saml("EncryptedAttribute")), None) is not None:
        raise Misconfigured(
            f"{provider.name} encrypts its assertions, which is not supported: Setpoint has no key to read them.",
            "Tell the operator of this installation: encryption of assertions must be off for it at the provider.",
        )
    if unknown := [child for child in root if child.tag not in _CHILDREN]:
        raise BadToken(f"{provider.name} sent a response with an element {local(unknown[0])}, which is not read.")
    assertions = list(root.iter(saml("Assertion")))
    if len(assertions) != 1 or assertions[0].getparent() is not root:
        raise BadToken(f"{provider.name} sent {len(assertions)} assertions; a response needs one, and in its place.")
    for signature in root.iter(ds("Signature")):
        parent = signature.getparent()
        if parent is None or (parent is not root and parent is not assertions[0]):
            raise BadToken(f"{provider.name} sent a signature in an unexpected place.")
    identifiers: list[str] = []
    for element in root.iter():
        if len(element.attrib) > MOST_ATTRIBUTES:  # reading them takes the square of their number
            raise BadToken(f"{provider.name} sent an element with more than {MOST_ATTRIBUTES} attributes.")
        identifiers += [v for name, v in element.attrib.items() if etree.QName(name).localname.lower() == "id"]
    if len(set(identifiers)) != len(identifiers):
        raise BadToken(f"{provider.name} sent two elements with the same ID.")


def only(parent: etree._Element, tag: str, provider: SamlProvider) -> etree._Element:
    """Return the only child of this tag. Raises BadToken."""
    children = parent.findall(tag)
    if len(children) != 1:
        name = etree.QName(tag).localname
        raise BadToken(f"{provider.name} sent {len(children)} elements {name} in {local(parent)}; one is needed.")
    return children[0]


def text_of(element: etree._Element, provider: SamlProvider) -> str:
    """Return its whole text. Raises BadToken for one with elements in it, of which a part could be missed."""
    if len(element):
        raise BadToken(f"{provider.name} sent elements within {local(element)}, where text is needed.")
    return str(element.text or "")


def local(element: etree._Element) -> str:
    return str(etree.QName(element).localname)[:40]
