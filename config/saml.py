"""Reading of SETPOINT_SAML_*: the SAML providers of single sign-on, whole or not at all, as config.oidc has it."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from accounts.providers import Provider, SamlProvider, url_objection
from config import env, oidc
from config.env import BadEnvironment

PREFIX = "SETPOINT_SAML_"
LISTED = f"{PREFIX}PROVIDERS"
REQUIRED = ("ENTITY_ID", "SSO_URL", "CERTIFICATES", "ROLES")
OPTIONAL = (
    "NAME", "NAME_ID", "GROUPS_ATTRIBUTE", "EMAIL_ATTRIBUTE", "FIRST_NAME_ATTRIBUTE", "LAST_NAME_ATTRIBUTE",
    "SCIM_SUBJECT", "SCIM_GROUPS", "TRUST_AUTHN_INSTANT",
)  # fmt: skip
NAME_IDS = ("persistent", "email")
"""Words for the formats of accounts.signon.saml.names, which cannot be imported yet; a test keeps them equal."""
LEAST_RSA_BITS, LEAST_EC_BITS = 2048, 256
LONGEST_ENTITY_ID = 500
"""As long as the column of identities."""
RESERVED = frozenset({"sub", "email", "auth_time", "given_name", "family_name", "_claim_names"})
"""Claims that are made of other parts of an assertion: no attribute may be taken for one."""
_CLAIMS = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/"
WRITTEN_BY_PEOPLE = oidc.WRITTEN_BY_PEOPLE | {
    "mail", "displayname", "givenname", "sn", "surname", "cn",
    *(f"{_CLAIMS}{name}" for name in ("givenname", "surname", "name", "emailaddress", "upn")),
    "urn:oid:0.9.2342.19200300.100.1.3", "urn:oid:2.16.840.1.113730.3.1.241", "urn:oid:2.5.4.42", "urn:oid:2.5.4.4",
    "urn:oid:2.5.4.3",
}  # fmt: skip
"""Attributes that a person may change, in lower case: none of them gives a role or leads to an account."""
_ATTRIBUTE = re.compile(r"[\x21-\x7e]{1,500}")
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def providers(keys: list[str], *, beside: Sequence[Provider] = ()) -> tuple[SamlProvider, ...]:
    """Return the providers with these keys, which SETPOINT_SAML_PROVIDERS lists. Raises BadEnvironment.

    `beside`: the other providers, of which none may share a key or an issuer with them.
    """
    oidc.check_keys(keys, LISTED)
    oidc.refuse_unknown(keys, PREFIX, (*REQUIRED, *OPTIONAL))
    if both := sorted({row.key for row in beside} & set(keys)):
        raise BadEnvironment(f"{LISTED}: {oidc.LISTED} names {both[0]} already; a key is one provider's")
    read = tuple(_provider(key) for key in keys)
    issuers = [row.issuer for row in (*beside, *read)]
    for provider in read:
        if issuers.count(provider.issuer) > 1:
            name = _variable(provider.key, "ENTITY_ID")
            raise BadEnvironment(f"{name}: another provider has this name; its people would have two sets of roles")
    return read


def _provider(key: str) -> SamlProvider:
    given = {part: env.text(_variable(key, part)).strip() for part in (*REQUIRED, *OPTIONAL)}
    if missing := [_variable(key, part) for part in REQUIRED if not given[part]]:
        raise BadEnvironment(f"{missing[0]} must be set: {LISTED} lists {key}")
    name_id = _name_id(_variable(key, "NAME_ID"), given["NAME_ID"])
    email = _attribute(key, "EMAIL_ATTRIBUTE", given, "NameID" if name_id == "email" else "email")
    first_name = _attribute(key, "FIRST_NAME_ATTRIBUTE", given, "givenName")
    last_name = _attribute(key, "LAST_NAME_ATTRIBUTE", given, "sn")
    own = WRITTEN_BY_PEOPLE | {name.lower() for name in (email, first_name, last_name)}
    groups = _unwritten(key, "GROUPS_ATTRIBUTE", _attribute(key, "GROUPS_ATTRIBUTE", given, "groups"), own)
    return SamlProvider(
        key=key,
        name=given["NAME"][:60] or key.capitalize(),
        issuer=_entity_id(_variable(key, "ENTITY_ID"), given["ENTITY_ID"]),
        mapping=oidc.mapping(_variable(key, "ROLES"), given["ROLES"]),
        sso_url=_sso_url(_variable(key, "SSO_URL"), given["SSO_URL"]),
        certificates=certificates(_variable(key, "CERTIFICATES"), given["CERTIFICATES"]),
        name_id=name_id,
        groups_claim=groups,
        email_claim=email,
        first_name_attribute=first_name,
        last_name_attribute=last_name,
        scim_subject=_scim_subject(key, given, own | {groups.lower()}),
        scim_groups=oidc.scim_groups(_variable(key, "SCIM_GROUPS"), given["SCIM_GROUPS"]),
        trusts_authn_instant=env.flag(_variable(key, "TRUST_AUTHN_INSTANT")),
    )


def _variable(key: str, part: str) -> str:
    return f"{PREFIX}{key.upper()}_{part}"


def _entity_id(name: str, text: str) -> str:
    if len(text) > LONGEST_ENTITY_ID or not text.isprintable() or " " in text:
        raise BadEnvironment(f"{name} must be the provider's entityID, as its metadata has it, not {text[:60]!r}")
    return text


def _sso_url(name: str, url: str) -> str:
    if objection := url_objection(url):
        raise BadEnvironment(f"{name} {objection}")
    return url


def _name_id(name: str, word: str) -> str:
    if word and word not in NAME_IDS:
        raise BadEnvironment(f"{name} must be {' or '.join(NAME_IDS)}, not {word!r}")
    return word or NAME_IDS[0]


def _attribute(key: str, part: str, given: dict[str, str], default: str) -> str:
    name = given[part] or default
    if not _ATTRIBUTE.fullmatch(name) or (part == "GROUPS_ATTRIBUTE" and name in RESERVED):
        raise BadEnvironment(f"{_variable(key, part)} must be the Name of an attribute of the assertion, not {name!r}")
    return name


def _unwritten(key: str, part: str, name: str, refused: Set[str]) -> str:
    """Return the attribute's name. Raises BadEnvironment for one of these, in any case."""
    if name.lower() in refused:
        raise BadEnvironment(f"{_variable(key, part)} must be an attribute that its person cannot change, not {name!r}")
    return name


def _scim_subject(key: str, given: dict[str, str], refused: Set[str]) -> str:
    """Return `sub`, which is the NameID, or an attribute's name."""
    name = _attribute(key, "SCIM_SUBJECT", given, "sub")
    if name.lower() == "nameid":
        raise BadEnvironment(f"{_variable(key, 'SCIM_SUBJECT')}: write sub for the NameID, not {name!r}")
    return _unwritten(key, "SCIM_SUBJECT", name, refused | (RESERVED - {"sub"}))


def certificates(name: str, text: str) -> tuple[str, ...]:
    """Return the certificates of a PEM text, or of base64 as metadata has it. Raises BadEnvironment."""
    blocks = _PEM.findall(text)
    if not blocks and "-----" not in text:
        blocks = ["-----BEGIN CERTIFICATE-----\n" + "".join(text.split()) + "\n-----END CERTIFICATE-----"]
    if not blocks or _PEM.sub("", text).strip() not in ("", text):
        raise BadEnvironment(f"{name} must hold certificates in PEM, and nothing else")
    return tuple(_certificate(f"{name}[{index}]", block) for index, block in enumerate(blocks))


def _certificate(where: str, pem: str) -> str:
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise BadEnvironment(f"{where} is no certificate: copy X509Certificate of the provider's metadata") from None
    if isinstance(key, rsa.RSAPublicKey):
        least = LEAST_RSA_BITS
    elif isinstance(key, ec.EllipticCurvePublicKey):
        least = LEAST_EC_BITS
    else:
        raise BadEnvironment(f"{where} has a key that is neither RSA nor of an elliptic curve")
    if key.key_size < least:
        raise BadEnvironment(f"{where} has a key of {key.key_size} bits; at least {least} are needed")
    return certificate.public_bytes(Encoding.PEM).decode()
