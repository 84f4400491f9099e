"""The formats that can be imported, and which of them a text is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from common import yaml
from profiles.imports import nodewright, openshift_tuned, performance_profile, sysctl_d, tuned
from profiles.imports.draft import ImportedDraft, invalid

PROFILE = "profile"
"""Setpoint's own format, which needs no translation."""
AUTOMATIC = "auto"
"""In place of a format's key: the one that the text looks like."""


@dataclass(frozen=True, slots=True)
class ImportFormat:
    key: str
    title: str
    read: Callable[[str], ImportedDraft] | None
    """None: it is a profile already."""
    kinds: tuple[str, ...] = ()
    """Kinds of Kubernetes objects by which it is recognized."""


def _kinds(pairs: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(kind for _, kind in pairs)


FORMATS: dict[str, ImportFormat] = {
    format.key: format
    for format in (
        ImportFormat(PROFILE, "Profile (YAML)", None),
        ImportFormat("sysctl.d", "sysctl.d", sysctl_d.read),
        ImportFormat("tuned", "TuneD profile", tuned.read),
        ImportFormat("openshift-tuned", "OpenShift Tuned", openshift_tuned.read, _kinds(openshift_tuned.KINDS)),
        ImportFormat(
            "performance-profile",
            "OpenShift PerformanceProfile",
            performance_profile.read,
            _kinds(performance_profile.KINDS),
        ),
        ImportFormat("nodewright", "NodeWright (Skyhook)", nodewright.read, _kinds(nodewright.KINDS)),
    )
}

_SECTION = re.compile(r"^[ \t]*\[[^\]\n]+\][ \t]*$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"-?[A-Za-z0-9_./*?\[\]-]+[ \t]*=.*")
_EXCLUSION = re.compile(r"-[A-Za-z0-9_./-]+")


def recognize(text: str) -> ImportFormat:
    """Return the format that a text looks like; Setpoint's own where it looks like none, whose reader then says why."""
    try:
        data = yaml.load(text).data
    except yaml.BadYaml:
        data = None
    if isinstance(data, dict):
        kind = data.get("kind")
        return next((format for format in FORMATS.values() if kind in format.kinds), FORMATS[PROFILE])
    lines = [line.strip() for line in text.split("\n")]
    written = [line for line in lines if line and line[0] not in "#;"]
    if _SECTION.search(text):
        return FORMATS["tuned"]
    rest = [line for line in written if not _ASSIGNMENT.fullmatch(line)]
    if len(rest) < len(written) and all(_EXCLUSION.fullmatch(line) for line in rest):
        return FORMATS["sysctl.d"]
    return FORMATS[PROFILE]


def translate(text: str, format: ImportFormat) -> ImportedDraft | None:
    """Return the draft of another tool's text; None for a profile. Raises Invalid."""
    if format.read is None:
        return None
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > yaml.MAX_BYTES:
        raise invalid(f"Is {size:,} bytes long; at most {yaml.MAX_BYTES:,} are read.")
    draft = format.read(text)
    if not draft.document.settings:
        shown = [str(entry) for entry in draft.not_taken[:SHOWN]]
        more = [f"and {len(draft.not_taken) - SHOWN} more"] if len(draft.not_taken) > SHOWN else []
        message = f"Nothing of this {format.title} can be taken."
        refusal = invalid(message)
        refusal.fields["source"] = [message, *shown, *more]
        raise refusal
    return draft


SHOWN = 20
"""Lines named where nothing could be taken."""
