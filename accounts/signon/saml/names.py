"""Names of SAML 2.0 and XML Signature, as the standards write them."""

from __future__ import annotations

ASSERTION = "urn:oasis:names:tc:SAML:2.0:assertion"
PROTOCOL = "urn:oasis:names:tc:SAML:2.0:protocol"
METADATA = "urn:oasis:names:tc:SAML:2.0:metadata"
SIGNATURE = "http://www.w3.org/2000/09/xmldsig#"
POST = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"
SUCCESS = "urn:oasis:names:tc:SAML:2.0:status:Success"
BEARER = "urn:oasis:names:tc:SAML:2.0:cm:bearer"
ENTITY = "urn:oasis:names:tc:SAML:2.0:nameid-format:entity"
NAME_IDS = {
    "persistent": "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent",
    "email": "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress",
}
"""Formats of NameID by the word of SETPOINT_SAML_<KEY>_NAME_ID."""


def saml(name: str) -> str:
    return f"{{{ASSERTION}}}{name}"


def samlp(name: str) -> str:
    return f"{{{PROTOCOL}}}{name}"


def md(name: str) -> str:
    return f"{{{METADATA}}}{name}"


def ds(name: str) -> str:
    return f"{{{SIGNATURE}}}{name}"
