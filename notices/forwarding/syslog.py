"""Audit records over syslog: RFC 5424 messages, RFC 6587 octet counting, RFC 5425 TLS.

Syslog has no acknowledgment. The nearest to one is the order of closing: a connection is opened for each batch, TLS is
closed on our side, and the batch counts as sent when the receiver closes its side without a reset, for it does that
after it has read everything before. A receiver that stores nothing of what it read loses it; `seq` shows the gap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from django.conf import settings

from clusters.kube.transport import send_and_close
from clusters.net.credentials import Credentials
from clusters.net.egress import Policy
from notices.forwarding.destinations import Destination
from notices.forwarding.entries import CHANGED, Entry, timestamp

FACILITY = 13
"""Log audit."""
CRITICAL, NOTICE = 2, 5
MOST_BYTES = 8192
"""Of one message: what RFC 5425 says that receivers should take."""
APP = "setpoint"
BOM = "\ufeff"
_PARAMETERS = ("seq", "id", "actor", "action", "target", "target_name", "cluster_id", "request_id", "seal", "integrity")
_LENGTHS = (1000, 200, 0)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def send(destination: Destination, entries: Sequence[Entry], seconds: float) -> None:
    """Waits on the network: hold no transaction. Raises FleetError, EgressRefused."""
    send_and_close(
        destination.host,
        destination.port,
        b"".join(frame(entry, destination.enterprise) for entry in entries),
        policy=Policy.of(settings.SETPOINT_ALLOW_NETWORKS),
        credentials=Credentials(
            server="", ca=destination.ca, client_certificate=destination.certificate, client_key=destination.key
        ),
        seconds=seconds,
    )


def frame(entry: Entry, enterprise: int) -> bytes:
    """`MSG-LEN SP SYSLOG-MSG`, as octet counting has it: no content can end a message early."""
    message = rendered(entry, enterprise)
    return f"{len(message)} ".encode() + message


def rendered(entry: Entry, enterprise: int) -> bytes:
    """Return the message, of at most MOST_BYTES: a longer one is shortened, and says so."""
    message = _rendered(entry, enterprise)
    for characters in _LENGTHS:
        if len(message) <= MOST_BYTES:
            break
        message = _rendered(entry.shortened(characters), enterprise)
    return message


def _rendered(entry: Entry, enterprise: int) -> bytes:
    severity = CRITICAL if entry.content["integrity"] == CHANGED else NOTICE
    header = " ".join(
        [
            f"<{FACILITY * 8 + severity}>1",
            timestamp(entry.at),
            _token(urlsplit(settings.BASE_URL).hostname or "", 255),
            APP,
            "-",  # several processes write the record, and the one that forwards it is none of them
            _token(entry.content["action"], 32),
        ]
    )
    values = {name: entry.content[name] for name in _PARAMETERS} | {"installation": settings.SETPOINT_INSTALLATION}
    if entry.content["is_shortened"]:
        values["shortened"] = "true"
    parameters = "".join(f' {name}="{_escaped(str(value))}"' for name, value in values.items() if value != "")
    data = f"[{APP}@{enterprise}{parameters}]"
    return f"{header} {data} {BOM}{_json(entry)}".encode("utf-8", "replace")


def _json(entry: Entry) -> str:
    """JSON on one line: its own escapes leave no C0 control character, and this none of the others."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", entry.text())


def _token(text: str, most: int) -> str:
    """Return text as PRINTUSASCII of 1 to `most` characters, or the nil value."""
    return "".join(character if "!" <= character <= "~" else "?" for character in text)[:most] or "-"


def _escaped(value: str) -> str:
    r"""Return a PARAM-VALUE: `"`, `\` and `]` behind a backslash; a control character could break a line."""
    return re.sub(r'(["\\\]])', r"\\\1", _CONTROL.sub("\ufffd", value))
