"""Components of a revision as releases of Helm for a file of another tool, and what of them no file carries."""

from __future__ import annotations

from dataclasses import dataclass

from common import hooks
from common.hooks import ComponentRelease
from profiles.content.content import Content
from profiles.exports.parts import ExportDraft, MissingPart


@dataclass(frozen=True, slots=True)
class ToolWords:
    """Words of one tool for what its file leaves to people."""

    removes: str
    """Why a component that is to be removed is not in the file."""
    completes: str
    """How a value that is missing is given: `give it set`."""


def of(content: Content, draft: ExportDraft, words: ToolWords) -> list[ComponentRelease]:
    """Return the releases that a file can hold, in the profile's order; the others and their secrets are missed."""
    known = {release.name: release for release in hooks.component_releases(content)}
    out = []
    for component in content.components:
        release = known.get(component.name)
        if component.is_gone:
            _miss(draft, component.name, "removed", words.removes)
        elif release is None:
            _miss(draft, component.name, component.version, "the catalog of components does not know it")
        elif release.problem:
            _miss(draft, component.name, component.version, release.problem)
        else:
            out.append(release)
            for path in release.secrets:
                why = f"a secret's value is no part of a file; {words.completes}"
                _miss(draft, f"{release.name}.values.{path}", "a secret", why)
            for path in release.decisions:
                why = f"its value depends on the cluster; {words.completes}"
                _miss(draft, f"{release.name}.values.{path}", "to be decided", why)
    return out


def _miss(draft: ExportDraft, key: str, wanted: str, why: str) -> None:
    draft.missing.append(MissingPart("components", key, wanted, why))
