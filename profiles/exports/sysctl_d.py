"""sysctl.d: kernel settings only, and only plain values."""

from __future__ import annotations

from contract.keys import KeyKind
from profiles.content.content import Content, WantedSetting
from profiles.exports.parts import ExportDraft, of_kind, others


def write(content: Content, draft: ExportDraft) -> str:
    for wanted in others(content, KeyKind.SYSCTL):
        draft.miss(wanted, "is no sysctl")
    draft.miss_marks(content, "is of the Kubernetes node, not of its kernel")
    return lines(of_kind(content, KeyKind.SYSCTL), draft)


def lines(settings: list[WantedSetting], draft: ExportDraft) -> str:
    """`vm.swappiness = 10`; what cannot be said exactly stays visible as a comment."""
    exact = {wanted.key for wanted in draft.exact(settings, "sysctl.d")}
    return "".join(
        f"{wanted.key} = {wanted.value}\n"
        if wanted.key in exact
        else f"# {wanted.key} = {wanted.value}  (wanted {wanted.operator})\n"
        for wanted in settings
    )
