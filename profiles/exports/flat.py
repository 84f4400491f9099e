"""A profile document again, without `extends`: everything inherited written out, so that it needs no other."""

from __future__ import annotations

from profiles.content.content import Content
from profiles.document.document import DocumentComponent, DocumentSetting, ProfileDocument, render
from profiles.exports.parts import ExportDraft


def write(content: Content, draft: ExportDraft) -> str:
    return render(
        ProfileDocument(
            settings=tuple(
                DocumentSetting(setting.key, setting.operator, setting.value, setting.why)
                for setting in content.settings
            ),
            labels=tuple((mark.key, mark.value) for mark in content.labels),
            annotations=tuple((mark.key, mark.value) for mark in content.annotations),
            taints=tuple((taint.key, taint.effect, taint.value) for taint in content.taints),
            components=tuple(
                DocumentComponent(
                    component.name,
                    component.version,
                    component.presets or None,
                    component.values,
                    component.why,
                    component.is_gone,
                )
                for component in content.components
            ),
            policies=content.policies,
        )
    )
