"""Cause of a drift, parsed from an agent's report: pure, because reports are untrusted input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from compliance.models import Cause
from contract.nodetuning import SettingStatus

_FILE = re.compile(r"(?<![\w/])(/[\w./@+-]{1,255}):(\d{1,7}) sets it")
"""The agent names the file as `/etc/sysctl.d/99-site.conf:4 sets it to another value`."""
_CLAUSE = re.compile(r"; " + _FILE.pattern.removeprefix(r"(?<![\w/])") + r" to another value")
_BY_STATE = {
    SettingStatus.CONTENDED: Cause.CONTENDED,
    SettingStatus.MOVED: Cause.MOVED,
    SettingStatus.NOT_EFFECTIVE: Cause.KERNEL,
    SettingStatus.FAILED: Cause.REFUSED,
    SettingStatus.DENIED: Cause.REFUSED,
    SettingStatus.UNSUPPORTED: Cause.REFUSED,
}


class FoundCause(NamedTuple):
    cause: Cause
    won_by: str
    """`path:line`, or empty."""


def why(report: Mapping[str, Any] | None) -> FoundCause:
    """Return the cause of a drifted setting. Without a report nothing is known."""
    report = report or {}
    match = _FILE.search(str(report.get("reason", "")))
    won_by = f"{match[1]}:{match[2]}" if match else ""
    state = report.get("state", "")
    if state in _BY_STATE:
        return FoundCause(_BY_STATE[SettingStatus(state)], won_by)
    if won_by:
        return FoundCause(Cause.FILE, won_by)
    return FoundCause(Cause.HAND if state == SettingStatus.DRIFTED else Cause.NONE, "")


def without_file(reason: str) -> str:
    """The reason without the clause that names the file, for where `won_by` is shown beside it."""
    return _CLAUSE.sub("", reason)
