"""The form editor's rows: each setting with what is known of it, what is wrong with it, and what it replaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contract import keys
from profiles.catalog import known_settings
from profiles.catalog.known_settings import SettingInfo, Shape
from profiles.content.content import Content, WantedSetting
from profiles.document import schema, setting_check
from profiles.document.document import InvalidProfile, ProfileNote
from profiles.editor import cluster_scope, form_data, yaml_patch
from profiles.editor.cluster_scope import ClusterPart
from profiles.editor.form_data import MarkLine, SettingLine, Sheet, TaintLine
from profiles.editor.presentation import Judged
from profiles.models import Profile, Revision
from profiles.services import editing

FAMILIES: Mapping[str, tuple[str, str]] = {
    "cmdline": ("Kernel arguments", "a reboot; the node is drained first"),
    "kubelet-managers": ("Kubelet, resource managers", "the node is drained, and the kubelet restarts"),
    "disks": ("Layout of local disks", "empty disks are formatted, which no revert undoes; the node is drained first"),
    "services": ("Limits of services", "the service restarts; for containerd's the node is drained first"),
    "kubelet": ("Kubelet", "the kubelet restarts; pods keep running"),
    "hugepages": ("Huge pages", "the kubelet restarts to see them"),
    "modules": ("Kernel modules", "loaded at once, and at every boot"),
    "cpu": ("Processors", "live"),
    "memory": ("Memory", "live"),
    "thp": ("Transparent huge pages", "live, for new mappings"),
    "network": ("Network", "live, or for pods created afterwards"),
    "filesystem": ("Files", "live"),
    "block": ("Disks", "live"),
    "kernel": ("Kernel", "live"),
    "readonly": ("Observed only", "cannot be set"),
    "": ("Not in the catalog", "must be fixed or removed"),
}
"""(title, what a change needs), most disturbing first."""


@dataclass(frozen=True, slots=True)
class SettingFormRow:
    line: SettingLine
    info: SettingInfo | None
    problems: tuple[ProfileNote, ...] = ()
    warnings: tuple[ProfileNote, ...] = ()
    is_changed: bool = False
    """Against the newest revision."""
    replaces: WantedSetting | None = None
    """The inherited setting that this one overrides."""

    @property
    def apply_class(self) -> str:
        return str(self.info.apply_class) if self.info else ""

    @property
    def operators(self) -> tuple[str, ...]:
        """Operators that mean something, and the one that was typed, even if it means nothing."""
        known = tuple(str(operator) for operator in (self.info.operators if self.info else ("=", ">=", "<=")))
        return known if self.line.operator in known else (*known, self.line.operator)

    @property
    def choices(self) -> tuple[str, ...]:
        """Choices of a setting with a fixed set of words; the typed one stays in the list."""
        if not self.info or self.info.shape is not Shape.CHOICE:
            return ()
        chosen = self.line.value
        return self.info.choices if chosen in self.info.choices else (chosen, *self.info.choices)

    @property
    def means(self) -> str:
        """The number that the kernel is told, where something else was typed: `512Mi` is 536870912."""
        if not self.info or self.problems:
            return ""
        try:
            parsed = setting_check.ask(self.info.key, self.line.value, self.line.operator)
        except setting_check.SettingRefused:
            return ""
        return parsed.value if parsed.value != self.line.value.strip() else ""


@dataclass(frozen=True, slots=True)
class SettingFormGroup:
    title: str
    meaning: str
    rows: tuple[SettingFormRow, ...]


@dataclass(frozen=True, slots=True)
class MarkRow:
    """A label, an annotation or a taint; `number` counts from 1, as text, and names its fields."""

    number: str
    row: MarkLine | TaintLine
    problems: tuple[ProfileNote, ...] = ()
    warnings: tuple[ProfileNote, ...] = ()


@dataclass(frozen=True, slots=True)
class Inherited:
    wanted: WantedSetting
    info: SettingInfo | None


@dataclass(frozen=True, slots=True)
class FormPage:
    sheet: Sheet
    groups: list[SettingFormGroup]
    labels: list[MarkRow]
    annotations: list[MarkRow]
    taints: list[MarkRow]
    parent: Revision | None
    inherited: list[Inherited] = field(default_factory=list)
    """Settings of the parent that stay as they are."""
    removed: list[tuple[str, str]] = field(default_factory=list)
    """(name, the inherited value that is given up)"""
    cluster: ClusterPart | None = None
    """What it wants of the cluster, with what is inherited: shown here, edited as YAML. None: nothing, or not known."""
    kept: list[str] = field(default_factory=list)
    """Names of what the text itself wants of the cluster, where `cluster` cannot be told before problems are mended."""

    @property
    def rows(self) -> list[SettingFormRow]:
        return [row for group in self.groups for row in group.rows]


def page(typed: Sheet, judged: Judged, *, profile: Profile | None, latest: Revision | None) -> FormPage:
    """Everything the form shows of what was typed; `judged` is the verdict on the same as YAML."""
    parent = parent_of(typed, profile)
    above = parent.flat if parent else Content()
    own = {_canonical(line.key) for line in typed.settings}
    return FormPage(
        sheet=typed,
        groups=_groups(typed, judged, above, latest.flat if latest else None),
        labels=_marks("labels", typed.labels, judged),
        annotations=_marks("annotations", typed.annotations, judged),
        taints=_taints(typed.taints, judged),
        parent=parent,
        inherited=[
            Inherited(setting, known_settings.get(setting.key))
            for setting in above.settings
            if setting.key not in own and setting.key not in typed.remove
        ],
        removed=[(name, _value_of(above, name)) for name in typed.remove],
        cluster=cluster_scope.part(judged.checked.content, editing.DRAFT) if judged.checked else None,
        kept=[] if judged.checked else _kept(judged),
    )


def _kept(judged: Judged) -> list[str]:
    try:
        return [name for name, values in form_data.read(judged.source).kept.items() if values]
    except form_data.Unreadable:
        return []


def parent_of(typed: Sheet, profile: Profile | None) -> Revision | None:
    """The revision that would be extended now, or None where there is none or no such one."""
    if not typed.extends:
        return None
    try:
        return editing.parent(schema.parse(yaml_patch.write(Sheet(extends=typed.extends)).source), profile)
    except InvalidProfile:
        return None


def _value_of(content: Content, name: str) -> str:
    if setting := content.setting(name):
        return f"{setting.operator} {setting.value}"
    part, _, rest = name.partition(".")
    marks = {"labels": content.labels, "annotations": content.annotations}.get(part, ())
    values = {mark.key: f"= {mark.value}" for mark in marks}
    if part == "taints":
        values = {taint.name: f"= {taint.value}" for taint in content.taints}
    elif part == "components":
        values = {component.name: component.facts[component.name] for component in content.components}
    elif part == "policies":
        values = {policy.title: policy.api_version for policy in content.policies}
    return values.get(rest, "")


def _canonical(key: str) -> str:
    try:
        return keys.normalize(key)
    except keys.BadKey:
        return key


def _groups(typed: Sheet, judged: Judged, above: Content, before: Content | None) -> list[SettingFormGroup]:
    rows: dict[str, list[SettingFormRow]] = {family: [] for family in FAMILIES}
    for line in typed.settings:
        key = _canonical(line.key)
        info = known_settings.get(key)
        was = before.setting(key) if before else None
        row = SettingFormRow(
            line,
            info,
            problems=notes_at(judged.problems, "settings", line.key, key),
            warnings=notes_at(judged.warnings, "settings", line.key, key),
            is_changed=not was or (was.operator, was.value, was.why) != _meaning(key, line),
            replaces=above.setting(key),
        )
        rows[info.family if info else ""].append(row)
    return [
        SettingFormGroup(*FAMILIES[family], tuple(sorted(family_rows, key=lambda row: row.line.key)))
        for family, family_rows in rows.items()
        if family_rows
    ]


def _meaning(key: str, line: SettingLine) -> tuple[str, str, str]:
    try:
        parsed = setting_check.ask(key, line.value, line.operator)
    except setting_check.SettingRefused:
        return (line.operator, line.value, line.why)
    return (parsed.operator, parsed.value, line.why)


def notes_at(notes: Sequence[ProfileNote], part: str, *names: str) -> tuple[ProfileNote, ...]:
    """Those about this entry or a field of it."""
    paths = {f"{part}.{name.encode('unicode_escape').decode()}"[:200] for name in names}
    ends = tuple(f"{path}.{leaf}" for path in paths for leaf in ("value", "operator", "why"))
    return tuple(note for note in notes if note.path in paths or note.path in ends)


def _marks(part: str, rows: Sequence[MarkLine], judged: Judged) -> list[MarkRow]:
    return [
        MarkRow(
            str(number),
            row,
            notes_at(judged.problems, part, row.key),
            notes_at(judged.warnings, part, row.key),
        )
        for number, row in enumerate(rows, start=1)
    ]


def _taints(rows: Sequence[TaintLine], judged: Judged) -> list[MarkRow]:
    """The text's order of taints is its own: each note's number is looked up there."""
    try:
        written: Sequence[TaintLine] = form_data.read(judged.source).taints
    except form_data.Unreadable:
        written = ()

    def notes(row: TaintLine, among: Sequence[ProfileNote]) -> tuple[ProfileNote, ...]:
        places = {f"taints[{index}]" for index, other in enumerate(written) if other == row}
        return tuple(note for note in among if note.path in places)

    return [
        MarkRow(str(number), row, notes(row, judged.problems), notes(row, judged.warnings))
        for number, row in enumerate(rows, start=1)
    ]


def elsewhere(shown: FormPage, notes: Sequence[ProfileNote]) -> list[ProfileNote]:
    """Those that belong to no row."""
    rows: list[Any] = [*shown.rows, *shown.labels, *shown.annotations, *shown.taints]
    beside = {id(note) for row in rows for note in (*row.problems, *row.warnings)}
    return [note for note in notes if id(note) not in beside]
