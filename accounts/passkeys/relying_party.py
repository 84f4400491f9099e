"""The site that passkeys are for: origin and RP ID, both from the configured address (SETPOINT_URL).

The Host header of a request has no part in it: an attacker who makes a browser send another one gains nothing by it.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from django.conf import settings

_DEFAULT_PORTS = {"http": 80, "https": 443}
NAME = "Setpoint"


def rp_id() -> str:
    """Return the host name of the installation, as browsers compare it; empty where the address has none."""
    try:
        return (urlsplit(settings.BASE_URL).hostname or "").encode("idna").decode().lower()
    except ValueError:
        return ""


def origin() -> str:
    """Return scheme, host and port of the installation, as browsers write them into what is signed."""
    parts = urlsplit(settings.BASE_URL)
    is_default = parts.port in (None, _DEFAULT_PORTS.get(parts.scheme))
    return f"{parts.scheme}://{rp_id()}{'' if is_default else f':{parts.port}'}"


def reason_without() -> str:
    """Return the reason why no browser makes a passkey for this address; empty where it does."""
    parts, host = urlsplit(settings.BASE_URL), rp_id()
    if not host or _is_address(host):
        return f"Passkeys need an address with a host name; SETPOINT_URL is {settings.BASE_URL}."
    is_loopback = host == "localhost" or host.endswith(".localhost")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback):
        return f"Passkeys need https; SETPOINT_URL is {settings.BASE_URL}."
    return ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
