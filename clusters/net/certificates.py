"""PEM certificates and keys in credentials: what is wrong with them, in words. Nothing here verifies a server."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import serialization

MAX_PEM = 128 * 1024
MAX_CERTIFICATES = 64


def utc(timestamp: float) -> datetime:
    return datetime.fromtimestamp(timestamp, tz=UTC)


def not_after(pem: str) -> datetime | None:
    """End of the first certificate; None if there is none that can be read."""
    try:
        return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
    except ValueError:
        return None


def last_not_after(pem: str) -> datetime | None:
    """End of the certificate of a bundle that lasts longest: until then it can be used."""
    certificates, _ = _certificates(pem) if pem else ([], "")
    return max((certificate.not_valid_after_utc for certificate in certificates), default=None)


def objection_to_ca(pem: str, now: datetime) -> str:
    """Empty when the bundle can be used; a bundle with one valid certificate can."""
    if not pem:
        return ""
    certificates, reason = _certificates(pem)
    if reason:
        return reason
    if all(c.not_valid_after_utc <= now for c in certificates):
        return f"expired at {max(c.not_valid_after_utc for c in certificates):%Y-%m-%d %H:%M} UTC"
    if all(c.not_valid_before_utc > now for c in certificates):
        return f"is not valid before {min(c.not_valid_before_utc for c in certificates):%Y-%m-%d %H:%M} UTC"
    return ""


def objections_to_client(certificate: str, key: str, now: datetime) -> list[tuple[str, str]]:
    """Pairs of `client_certificate` or `client_key` and what is wrong, possibly empty."""
    if not certificate and not key:
        return []
    if not certificate:
        return [("client_certificate", "is missing, though there is a client key")]
    if not key:
        return [("client_key", "is missing, though there is a client certificate")]
    chain, reason = _certificates(certificate)
    if reason:
        return [("client_certificate", reason)]
    own = chain[0]
    if own.not_valid_after_utc <= now:
        return [("client_certificate", f"expired at {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; make a new one")]
    if own.not_valid_before_utc > now:
        return [("client_certificate", f"is not valid before {own.not_valid_before_utc:%Y-%m-%d %H:%M} UTC")]
    return [("client_key", _bad_key(own, key))]


def _bad_key(certificate: x509.Certificate, key: str) -> str:
    try:
        private = serialization.load_pem_private_key(key.encode(), password=None)
    except TypeError:
        return "is encrypted with a passphrase; give it unencrypted, it is stored encrypted"
    except Exception:  # cryptography raises its own, ValueError and OpenSSL's, by the kind of damage
        return "is not a private key in PEM"
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        return "does not belong to the client certificate"
    return ""


def _certificates(pem: str) -> tuple[list[x509.Certificate], str]:
    if len(pem) > MAX_PEM:
        return [], f"is longer than {MAX_PEM:,} characters"
    if "PRIVATE KEY-----" in pem:
        return [], "holds a private key; only certificates belong here"
    try:
        certificates = x509.load_pem_x509_certificates(pem.encode())
    except (ValueError, x509.InvalidVersion):
        return [], "is not a certificate in PEM, or is damaged"
    if len(certificates) > MAX_CERTIFICATES:
        return [], f"holds more than {MAX_CERTIFICATES} certificates"
    return certificates, ""
