"""Checks of the certificates by which SAML providers sign: settings hold them, and they expire."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from cryptography import x509
from django.conf import settings

from accounts.providers import SamlProvider
from common.clock import now
from config.doctor.findings import Finding, ok, problem, warning

SIGN_ON = "sign-on"
NOTICED = timedelta(days=30)
"""Before its end: time to have the provider's next certificate beside it."""


def configured() -> Iterator[Finding]:
    for provider in settings.SETPOINT_SAML:
        yield from _judged(provider)


def _judged(provider: SamlProvider) -> Iterator[Finding]:
    """Judge each certificate, and whether any of them verifies a log-in now."""
    variable = f"SETPOINT_SAML_{provider.key.upper()}_CERTIFICATES"
    at, usable = now(), 0
    for index, pem in enumerate(provider.certificates):
        certificate = x509.load_pem_x509_certificate(pem.encode())
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        which = f"The certificate {variable}[{index}] of {provider.name}"
        if ends <= at:
            yield warning(SIGN_ON, f"{which} expired on {ends:%Y-%m-%d}.", "Take it out.")
        elif begins > at:
            yield warning(SIGN_ON, f"{which} is valid only from {begins:%Y-%m-%d}.", "Keep the present one beside it.")
        elif ends - at <= NOTICED:
            usable += 1
            advice = "Add the provider's next certificate to it; both are accepted until you take the old one out."
            yield warning(SIGN_ON, f"{which} expires on {ends:%Y-%m-%d}.", advice)
        else:
            usable += 1
            yield ok(SIGN_ON, f"{which} is valid until {ends:%Y-%m-%d}.")
    if not usable:
        yield problem(
            SIGN_ON,
            f"No certificate of {provider.name} is valid now: its people cannot log in.",
            f"Copy X509Certificate of the provider's metadata to {variable}.",
        )
