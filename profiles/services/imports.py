"""Bringing a profile in as YAML: what it would do is shown before anything is stored, and only that is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from accounts.models import User
from accounts.permissions import ANYWHERE, Role, require
from common.errors import Invalid, Stale, WrongState
from profiles.content.content import ContentDifference
from profiles.document.schema import Checked, ProfileNote
from profiles.models import Profile
from profiles.services import editing

CREATE, REPLACE, NOTHING = "create", "replace-draft", "nothing"


@dataclass(frozen=True, slots=True)
class ImportPreview:
    """Effect of storing this text under this name.

    `token` identifies both, and the state that the change was previewed against.
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

    @property
    def act(self) -> str:
        """Text of the button that stores it."""
        acts = {"create": f"Create {self.name}", "nothing": f"Go to {self.name}"}
        return acts.get(self.would, f"Replace the draft of {self.name}")

    @property
    def warnings(self) -> Sequence[ProfileNote]:
        return self.checked.warnings


def preview(*, name: str, source: str, by: User) -> ImportPreview:
    """Stores nothing. Raises Invalid, InvalidProfile, NotAllowed, WrongState."""
    require(by, Role.OPERATOR, ANYWHERE, doing="import a profile")
    profile = Profile.objects.filter(name=name).first()
    if profile is None:
        editing.check_name(name)
    elif profile.is_library:
        raise WrongState(f"{name} comes with Setpoint and changes with it; import it under another name.")
    if not source.strip():
        raise Invalid("There is nothing to import.", fields={"source": ["Is empty."]})
    checked = editing.check(source, profile=profile or Profile(name=name))
    latest = profile.latest if profile else None
    present = (profile.draft or (latest.source if latest else "")) if profile else None
    would = CREATE if profile is None else NOTHING if present == source else REPLACE
    version = profile.version if profile else 0
    token = hashlib.sha256(f"{name}\0{version}\0{source}".encode("utf-8", "replace")).hexdigest()[:32]
    return ImportPreview(
        name=name,
        would=would,
        checked=checked,
        changes=editing.diff(latest, checked.content),
        token=token,
        profile=profile,
        replaces=profile.draft if profile and profile.draft != source else "",
    )


def store(*, name: str, source: str, token: str, by: User) -> Profile:
    """Do what the preview of this token said. Raises Stale when it would be something else by now, and as `preview`."""
    seen = preview(name=name, source=source, by=by)
    if seen.token != token:
        raise Stale("What this import would do has changed since the preview. Preview again.")
    if seen.profile is None:
        return editing.create(name=name, source=source, by=by)
    if seen.would == NOTHING:
        return seen.profile
    return editing.save_draft(seen.profile, source=source, by=by, version=seen.profile.version)
