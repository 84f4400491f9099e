"""Destinations of audit records as the operator of the installation set them. No Django here: settings are made of it.

They are settings, not rows: people who are audited, administrators included, must not be able to turn the audit off,
and the database holds no secret of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

SYSLOG, OTLP, WEBHOOK = "syslog", "otlp", "webhook"
KINDS = (SYSLOG, OTLP, WEBHOOK)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SYSLOG_PORT = 6514
"""RFC 5425."""
DOCUMENTATION = 32473
"""The enterprise number that RFC 5612 keeps for documentation: none is assigned to Setpoint."""
FIRST, NOW = "first", "now"
SHORTEST_SECRET = 16


@dataclass(frozen=True, slots=True)
class Destination:
    name: str
    """The cursor's key: under another name everything is sent again."""
    kind: str
    url: str
    begin: str = FIRST
    """Where a destination that is new here begins: with the first record, or with the next one."""
    ca: str = ""
    """PEM; empty: the machine's trusted roots."""
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    """Of a webhook: its body is signed with it."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Of OTLP, such as Authorization."""
    enterprise: int = DOCUMENTATION
    """Of syslog: the private enterprise number in the name of its structured data."""

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or SYSLOG_PORT

    @property
    def is_here(self) -> bool:
        """Return whether it is on this machine, where a collector beside the process may take plain HTTP."""
        return self.host in LOOPBACK


def objection(kind: str, url: str) -> str:
    """Return why this is no address for a kind, to be read after its field's name; empty when it is one."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no URL"
    if parts.username or parts.password or parts.fragment or not host:
        return "must name a host, and neither user, password nor fragment"
    if kind == SYSLOG:
        return (
            "" if parts.scheme == "tls" and not (parts.path or parts.query) else "must be tls://host or tls://host:port"
        )
    if parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK):
        is_root = kind == OTLP and parts.path in ("", "/")
        return "must have the path of logs, as in https://collector.example:4318/v1/logs" if is_root else ""
    return "must begin with https://, or with http:// on this machine"
