"""sysctl.d: kernel settings only, and only plain values."""

from __future__ import annotations

from contract.keys import KeyKind
from profiles.content.content import Content, WantedSetting
from profiles.exports.parts import ExportDraft, of_kind, others


def write(content: Content, draft: ExportDraft) -> str:
    for setting in others(content, KeyKind.SYSCTL):
        draft.miss(setting, "is no sysctl")
    draft.miss_marks(content, "is of the Kubernetes node, not of its kernel")
    return lines(of_kind(content, KeyKind.SYSCTL), draft)


def lines(settings: list[WantedSetting], draft: ExportDraft) -> str:
    """`vm.swappiness = 10`; what cannot be said exactly stays visible as a comment."""
    exact = {setting.key for setting in draft.exact(settings, "sysctl.d")}
    return "".join(
        f"{setting.key} = {setting.value}\n"
        if setting.key in exact
        else f"# {setting.key} = {setting.value}  (wanted {setting.operator})\n"
        for setting in settings
    )
