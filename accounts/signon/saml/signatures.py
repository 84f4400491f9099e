"""Verification of an XML signature by signxml, in the one form that SAML needs, with the configured certificates."""

from __future__ import annotations

import logging

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from lxml import etree
from signxml.algorithms import DigestAlgorithm, SignatureMethod
from signxml.exceptions import InvalidCertificate, SignXMLException
from signxml.verifier import SignatureConfiguration, XMLVerifier

from accounts.providers import SamlProvider
from accounts.signon.refusals import BadToken, Misconfigured
from accounts.signon.saml.documents import local, only
from accounts.signon.saml.names import ds
from common.clock import now

log = logging.getLogger(__name__)

METHODS = frozenset({
    SignatureMethod.RSA_SHA256, SignatureMethod.RSA_SHA384, SignatureMethod.RSA_SHA512,
    SignatureMethod.SHA256_RSA_MGF1, SignatureMethod.SHA384_RSA_MGF1, SignatureMethod.SHA512_RSA_MGF1,
    SignatureMethod.ECDSA_SHA256, SignatureMethod.ECDSA_SHA384, SignatureMethod.ECDSA_SHA512,
})  # fmt: skip
DIGESTS = frozenset({DigestAlgorithm.SHA256, DigestAlgorithm.SHA384, DigestAlgorithm.SHA512})
NOT_VALID = (SignXMLException, etree.LxmlError, UnsupportedAlgorithm, ValueError)
"""Ways in which signxml and the libraries below it say that a signature is not valid. Any other error is a defect: the
log-in fails by it, and it is logged as one."""
EXCLUSIVE = "http://www.w3.org/2001/10/xml-exc-c14n#"
ENVELOPED = "http://www.w3.org/2000/09/xmldsig#enveloped-signature"


def signed(root: etree._Element, path: str, provider: SamlProvider) -> etree._Element:
    """Return the element at `path` as it was signed, which alone may be read. Raises BadToken, Misconfigured.

    It is parsed from the bytes whose digest was signed: what else the document holds, or shows in another place, is
    not in it.
    """
    element = root if path == "." else root.find(path)
    if element is None or (signature := element.find(ds("Signature"))) is None:
        advice = "Tell the operator of this installation: the provider must sign assertions, not only the response."
        raise Misconfigured(f"{provider.name} sent an assertion without a signature of its own.", advice)
    _check_form(signature, element, provider)
    result = _verify(root, "./" if path == "." else f"./{path}/", provider)
    if result is None or result.tag != element.tag or result.get("ID") != element.get("ID"):
        raise BadToken(f"The signature of {provider.name} is of another element.")
    return result


def _check_form(signature: etree._Element, of: etree._Element, provider: SamlProvider) -> None:
    """Raises BadToken unless the signature is of the whole element that it is in, and of nothing else."""
    if (count := len(of.findall(ds("Signature")))) != 1:
        raise BadToken(f"{provider.name} sent {count} signatures of one element.")
    info, reference = _parts(signature, provider)
    method = only(info, ds("SignatureMethod"), provider).get("Algorithm", "")
    if method not in {accepted.value for accepted in METHODS}:
        advice = "Have the provider sign with RSA or ECDSA and SHA-256 or better."
        raise BadToken(f"{provider.name} signs with {method.rpartition('#')[2][:40]!r}, which is not accepted.", advice)
    canonicalization = only(info, ds("CanonicalizationMethod"), provider)
    if canonicalization.get("Algorithm") != EXCLUSIVE:
        raise BadToken(f"{provider.name} signs without exclusive canonicalization, which is not accepted.")
    if len(canonicalization):  # the schema has none there: signxml would call the signature invalid
        name = local(canonicalization[0])
        advice = "Have the provider leave it out there; within the reference's Transform it is accepted."
        raise BadToken(f"{provider.name} sent {name} within CanonicalizationMethod, which is not accepted.", advice)
    identifier = of.get("ID", "")
    if not identifier or reference.get("URI") != f"#{identifier}":
        raise BadToken(f"The signature of {provider.name} does not name the element that it is in.")
    transforms = [each.get("Algorithm") for each in only(reference, ds("Transforms"), provider)]
    if transforms != [ENVELOPED, EXCLUSIVE]:
        raise BadToken(f"{provider.name} transforms what it signs in a way that is not accepted.")
    digest = only(reference, ds("DigestMethod"), provider).get("Algorithm", "")
    if digest not in {accepted.value for accepted in DIGESTS}:
        raise BadToken(f"{provider.name} signs a digest by {digest.rpartition('#')[2][:40]!r}, which is not accepted.")


def _parts(signature: etree._Element, provider: SamlProvider) -> tuple[etree._Element, etree._Element]:
    """Return SignedInfo and its one Reference. Raises BadToken."""
    known = {ds("SignedInfo"), ds("SignatureValue"), ds("KeyInfo")}
    if extra := [child for child in signature if child.tag not in known]:
        raise BadToken(f"{provider.name} sent a signature with an element {local(extra[0])}, which is not read.")
    info = only(signature, ds("SignedInfo"), provider)
    return info, only(info, ds("Reference"), provider)


def _verify(root: etree._Element, location: str, provider: SamlProvider) -> etree._Element | None:
    """Return what was signed, by the first configured certificate whose key signed it. Raises BadToken."""
    config = SignatureConfiguration(
        location=location, signature_methods=METHODS, digest_algorithms=DIGESTS, verification_time=now()
    )
    has_expired = False
    for pem in provider.certificates:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        try:
            # With a certificate given, KeyInfo of the document proves nothing and is not followed.
            result = XMLVerifier().verify(root, x509_cert=certificate, id_attribute="ID", expect_config=config)
        except InvalidCertificate:  # of a configured one: outside of its own time
            has_expired = True
            continue
        except NOT_VALID as error:
            log.info("a signature of %s is not valid: %s: %.200s", provider.key, type(error).__name__, error)
            continue
        assert not isinstance(result, list)
        return result.signed_xml
    if has_expired:
        advice = (
            "Tell the operator of this installation: SETPOINT_SAML_…_CERTIFICATES needs the provider's present one."
        )
        raise Misconfigured(
            f"A configured certificate of {provider.name} has expired, and no other signed this.", advice
        )
    raise BadToken(f"{provider.name} sent an assertion without a valid signature by a configured certificate.")
