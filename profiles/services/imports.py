"""Bringing a profile in, as YAML or as another tool's file: what it would do is shown before anything is stored.

Only that is stored, and of another tool's file the draft that was made of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from accounts.models import User
from accounts.permissions import ANYWHERE, Role, require
from common.errors import Invalid, Stale, WrongState
from profiles.content.content import ContentDifference
from profiles.document.schema import Checked, InvalidProfile, ProfileNote
from profiles.imports import formats
from profiles.imports.draft import LineNotTaken
from profiles.imports.formats import ImportFormat
from profiles.models import Profile
from profiles.services import editing

CREATE, REPLACE, NOTHING = "create", "replace-draft", "nothing"


@dataclass(frozen=True, slots=True)
class ImportPreview:
    """Effect of storing this text under this name.

    `token` identifies both, the draft made of the text, and the state that the change was previewed against.
    """

    name: str
    would: str
    checked: Checked
    changes: Sequence[ContentDifference]
    """Against the newest revision of that name."""
    token: str
    profile: Profile | None = None
    replaces: str = field(default="", repr=False)
    """The draft that would be lost."""
    format: ImportFormat = formats.FORMATS[formats.PROFILE]
    """The format that the text was read as."""
    source: str = field(default="", repr=False)
    """The profile's YAML that would be stored."""
    not_taken: tuple[LineNotTaken, ...] = ()
    """Lines of another tool's file that are not in it."""

    @property
    def is_translated(self) -> bool:
        return self.format.read is not None

    @property
    def reasons(self) -> list[tuple[str, list[LineNotTaken]]]:
        """Return what was not taken, grouped by reason."""
        out: dict[str, list[LineNotTaken]] = {}
        for entry in self.not_taken:
            out.setdefault(entry.reason, []).append(entry)
        return list(out.items())

    @property
    def act(self) -> str:
        """Text of the button that stores it."""
        acts = {"create": f"Create {self.name}", "nothing": f"Go to {self.name}"}
        return acts.get(self.would, f"Replace the draft of {self.name}")

    @property
    def warnings(self) -> Sequence[ProfileNote]:
        return self.checked.warnings


def preview(*, name: str, source: str, by: User, format: str = formats.PROFILE) -> ImportPreview:
    """Stores nothing. Raises Invalid, InvalidProfile, NotAllowed, WrongState."""
    require(by, Role.OPERATOR, ANYWHERE, doing="import a profile")
    profile = Profile.objects.filter(name=name).first()
    if profile is not None:
        editing.require_editor(profile, by, f"import {name}")
    if profile is None:
        editing.check_name(name)
    elif profile.is_library:
        raise WrongState(f"{name} comes with Setpoint and changes with it; import it under another name.")
    if not source.strip():
        raise Invalid("There is nothing to import.", fields={"source": ["Is empty."]})
    read_as = _format(format, source)
    translated = formats.translate(source, read_as)
    text = translated.source if translated else source
    checked = _checked(text, profile or Profile(name=name), is_translated=translated is not None)
    latest = profile.latest if profile else None
    present = (profile.draft or (latest.source if latest else "")) if profile else None
    version = profile.version if profile else 0
    meant = f"{name}\0{version}\0{read_as.key}\0{source}\0{text}"
    return ImportPreview(
        name=name,
        would=CREATE if profile is None else NOTHING if present == text else REPLACE,
        checked=checked,
        changes=editing.diff(latest, checked.content),
        token=hashlib.sha256(meant.encode("utf-8", "replace")).hexdigest()[:32],
        profile=profile,
        replaces=profile.draft if profile and profile.draft != text else "",
        format=read_as,
        source=text,
        not_taken=translated.not_taken if translated else (),
    )


def _format(key: str, source: str) -> ImportFormat:
    if key == formats.AUTOMATIC:
        return formats.recognize(source)
    if key not in formats.FORMATS:
        known = ", ".join((formats.AUTOMATIC, *formats.FORMATS))
        raise Invalid("There is no such format.", fields={"format": [f"Must be one of {known}."]})
    return formats.FORMATS[key]


def _checked(text: str, profile: Profile, *, is_translated: bool) -> Checked:
    """Judge the draft. Of another tool's file, problems have no line that its author knows."""
    try:
        return editing.check(text, profile=profile)
    except InvalidProfile as refusal:
        if not is_translated:
            raise
        messages = [f"{note.path}: {note.message}" for note in refusal.problems]
        raise Invalid(str(refusal), fields={"source": messages}) from refusal


def store(*, name: str, source: str, token: str, by: User, format: str = formats.PROFILE) -> Profile:
    """Do what the preview of this token said. Raises Stale when it would be something else by now, and as `preview`."""
    seen = preview(name=name, source=source, by=by, format=format)
    if seen.token != token:
        raise Stale("What this import would do has changed since the preview. Preview again.")
    if seen.profile is None:
        return editing.create(name=name, source=seen.source, by=by)
    if seen.would == NOTHING:
        return seen.profile
    return editing.save_draft(seen.profile, source=seen.source, by=by, version=seen.profile.version)
