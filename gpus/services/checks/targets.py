"""Targets of a check of the network: names that it resolves, and host:port that it connects to, judged in one place."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from common.errors import Invalid
from gpus.services.checks.catalog import Check

MOST = 8
LONGEST = 260
"""A name of 253 characters and a port."""
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"({_LABEL}\.)+[a-z]([a-z0-9-]{{0,61}}[a-z0-9])?")
"""With a full stop, and not ending in a number: an address is none."""


def judged(check: Check, targets: Sequence[str]) -> list[str]:
    """Return each target once, as the program takes it. Raises Invalid."""
    if targets and not check.takes_targets:
        raise _invalid([f"{check.title} takes no targets."])
    out = list(dict.fromkeys(text.strip().lower().removesuffix(".") for text in targets))
    if len(out) > MOST:
        raise _invalid([f"Name at most {MOST} targets."])
    if wrong := [why for why in map(_objection, out) if why]:
        raise _invalid(wrong)
    return out


def _invalid(reasons: list[str]) -> Invalid:
    return Invalid(reasons[0], fields={"targets": reasons})


def _objection(target: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in target[:80])
    host, colon, port = target.rpartition(":")
    if not colon:
        is_named = len(target) <= 253 and _NAME.fullmatch(target)
        return "" if is_named else f"“{shown}”: write a whole DNS name, or host:port with IPv6 addresses in brackets."
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535 and port[0] != "0"):
        return f"“{shown}”: a port is 1 to 65535."
    if len(host) <= 253 and _NAME.fullmatch(host):
        return ""
    is_bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ipaddress.ip_address(host[1:-1] if is_bracketed else host)
    except ValueError:
        return f"“{shown}”: write a whole DNS name, or host:port with IPv6 addresses in brackets."
    if (address.version == 6) != is_bracketed or "%" in host:
        return f"“{shown}”: write IPv6 addresses in brackets, without a zone, and others without."
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return f"“{shown}”: this address is the pod's or the node's own."
    return ""
