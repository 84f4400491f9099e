"""Revisions and drafts as pages show them: grouped, explained, each problem beside its line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from contract.keys import ApplyClass
from profiles.catalog import known_settings
from profiles.catalog.known_settings import SettingInfo
from profiles.content.content import Content, ContentDifference, WantedSetting, digest
from profiles.document.schema import Checked, InvalidProfile, ProfileNote
from profiles.models import Profile, Revision
from profiles.services import editing

CLASS_TITLES = {
    ApplyClass.REBOOT: ("Reboot", "the node is drained and rebooted"),
    ApplyClass.DRAIN: ("Drain", "the node is drained; the kubelet restarts where the setting is its own"),
    ApplyClass.CONTAINERD_RESTART: ("Containerd restart", "containerd restarts, pods are recreated"),
    ApplyClass.KUBELET_RESTART: ("Kubelet restart", "the kubelet restarts, pods keep running"),
    ApplyClass.NEW_PODS: ("New pods", "counts for pods created afterwards"),
    ApplyClass.LIVE: ("Live", "at once, nothing restarts"),
}
"""(title, what it means), most disturbing first."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    wanted: WantedSetting
    info: SettingInfo | None
    """None: this key has left the catalog since the revision was published."""
    is_inherited: bool

    @property
    def why(self) -> str:
        """The profile's own reason, else what the setting does."""
        return self.wanted.why or (self.info.effect if self.info else "")


@dataclass(frozen=True, slots=True)
class SettingGroup:
    apply_class: str
    title: str
    meaning: str
    rows: tuple[SettingRow, ...]


def groups(content: Content, own: str) -> list[SettingGroup]:
    """Settings by apply class, most disturbing first; `own` is the name that makes a row not inherited."""
    out: list[SettingGroup] = []
    for apply_class, (title, meaning) in CLASS_TITLES.items():
        rows = tuple(
            SettingRow(setting, known_settings.get(setting.key), setting.origin != own)
            for setting in content.settings
            if setting.apply_class == apply_class
        )
        if rows:
            out.append(SettingGroup(str(apply_class), title, meaning, rows))
    return out


MAX_SHOWN = 160


def beside(notes: Sequence[ProfileNote], source: str) -> list[tuple[ProfileNote, str]]:
    """Each note with the text of its line, shortened; without one when the line is not there."""
    lines = source.split("\n") if notes else []
    return [(note, lines[note.line - 1].strip()[:MAX_SHOWN] if note.line <= len(lines) else "") for note in notes]


@dataclass(frozen=True, slots=True)
class Judged:
    """Meaning of a text, or the reasons why it has none."""

    source: str
    checked: Checked | None = None
    problems: tuple[ProfileNote, ...] = ()
    changes: list[ContentDifference] = field(default_factory=list)
    """Against the newest revision."""

    @property
    def is_valid(self) -> bool:
        return self.checked is not None

    @property
    def warnings(self) -> tuple[ProfileNote, ...]:
        return self.checked.warnings if self.checked else ()

    @property
    def problems_in_text(self) -> list[tuple[ProfileNote, str]]:
        return beside(self.problems, self.source)

    @property
    def warnings_in_text(self) -> list[tuple[ProfileNote, str]]:
        return beside(self.warnings, self.source)

    @property
    def digest(self) -> str:
        return digest(self.checked.content) if self.checked else ""


def judge(source: str, profile: Profile | None, latest: Revision | None) -> Judged:
    """Never raises: a text that cannot be published is shown with its problems."""
    try:
        checked = editing.check(source, profile=profile)
    except InvalidProfile as error:
        return Judged(source, problems=error.problems)
    return Judged(source, checked, changes=editing.diff(latest, checked.content))
