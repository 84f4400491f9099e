"""State of the editor of drafts: the text, the fields over it, and what its buttons change.

A button's `intent`: save, check, form, yaml (the view to go to), for one row add:<key>, drop:<key>, giveup:<key>,
keep:<key>, and for a component want:<name>, unwant:<name>, gone:<name> (it is to be removed), back:<name>.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from django.http import QueryDict

from common import hooks
from common.errors import Invalid
from profiles.catalog import known_settings
from profiles.catalog.known_settings import SettingInfo
from profiles.editor import component_rows, form_data, form_rows, yaml_patch
from profiles.editor.component_rows import ComponentFields
from profiles.editor.form_data import SettingLine, Sheet
from profiles.models import Profile
from profiles.web.forms import components_of, sheet_of

FIND, TEXT, GIVEN_UP = "find", "text", "given-up:"
"""Places of `focus` that are no row: the search, the YAML, the button that takes a setting again."""


@dataclass(slots=True)
class ProfileEditor:
    """State of the editor: a text, and in the form view the fields read from it or typed over it."""

    view: str
    source: str
    """The text that the fields are written into: as it came, so that its comments are still there."""
    typed: Sheet | None = None
    written: str = ""
    """`source` with the fields in it: what is judged and saved."""
    lost: tuple[str, ...] = ()
    unreadable: str = ""
    focus: str = ""
    refusal: Invalid | None = None
    components: tuple[ComponentFields, ...] | None = None
    """Of the form view; None where no field can show them."""


def opened(source: str, view: str) -> ProfileEditor:
    """A text as it is first shown: as a form, unless that cannot show it or YAML was asked for."""
    source = source.replace("\r\n", "\n")
    if view == "yaml":
        return ProfileEditor("yaml", source, written=source)
    try:
        return ProfileEditor("form", source, form_data.read(source), source, components=_components(source))
    except form_data.Unreadable as refusal:
        return ProfileEditor("yaml", source, written=source, unreadable=str(refusal))


def with_removal(desk: ProfileEditor, gone: str) -> ProfileEditor:
    """Mark a component as removed, as a link from elsewhere asks; this saves nothing."""
    if desk.components is not None and any(choice.name == gone for choice in hooks.component_choices()):
        desk.focus = _focus("gone", gone)
        _with_components(desk, "gone", gone)
    return desk


def posted(post: QueryDict, profile: Profile | None) -> ProfileEditor:
    """Return the state that was sent, changed as its button asks."""
    source = _source(post)
    intent, _, key = post.get("intent", "save").partition(":")
    if post.get("view") != "form":
        desk = opened(source, "" if intent == "form" else "yaml")
        desk.focus = (FIND if desk.view == "form" else TEXT) if intent == "form" else ""
        return desk
    desk = ProfileEditor("form", source)
    try:
        desk.typed = sheet_of(post)
        desk.components = components_of(post)
    except Invalid as refusal:
        return ProfileEditor("yaml", source, written=source, refusal=refusal)
    if act := _ACTS.get(intent):
        desk.typed = act(desk.typed, key[:200], profile)
    if act or intent in _OF_COMPONENTS:
        desk.focus = _focus(intent, key)
    try:
        written = yaml_patch.write(desk.typed, source)
    except Invalid as refusal:
        desk.written, desk.refusal = source, refusal
        return desk
    desk.written, desk.lost = written.source, written.lost
    _with_components(desk, intent, key[:200])
    if desk.refusal:
        return desk
    if intent == "yaml":
        return ProfileEditor("yaml", desk.written, written=desk.written, lost=desk.lost, focus=TEXT)
    return desk


def _components(source: str) -> tuple[ComponentFields, ...] | None:
    try:
        return component_rows.read(source)
    except component_rows.Unshowable:
        return None


def _with_components(desk: ProfileEditor, intent: str, name: str) -> None:
    """The fields of components written into the text, too, after what the button asks of them."""
    if desk.components is None:  # none were sent: they stay as they stand
        desk.components = _components(desk.written)
        return
    if (act := _OF_COMPONENTS.get(intent)) and name:
        desk.components = act(desk.components, name)
    before = desk.written
    try:
        desk.written = component_rows.write(before, desk.components)
    except Invalid as refusal:
        desk.refusal = refusal
        return
    gone = Counter(yaml_patch.comments(before)) - Counter(yaml_patch.comments(desk.written))
    desk.lost = (*desk.lost, *gone.elements())


def _focus(intent: str, key: str) -> str:
    """Return the field that gets the focus after a button: the button pressed is gone."""
    if intent in ("want", "gone", "back"):
        return f"component:{key}"
    return key if intent == "add" else GIVEN_UP + key if intent == "giveup" else FIND


def _add(typed: Sheet, key: str, profile: Profile | None) -> Sheet:
    """A row for this key: with the inherited value, else without one. Nothing when there is one already."""
    if typed.line(key) or not key:
        return typed
    parent = form_rows.parent_of(typed, profile)
    inherited = parent.flat.setting(key) if parent else None
    info = known_settings.get(key)
    if inherited:
        line = SettingLine(key, inherited.operator, inherited.value)
    else:
        line = SettingLine(key, str(info.suggested_operator) if info else "=", _first_value(info))
    return replace(typed, settings=(*typed.settings, line), remove=tuple(name for name in typed.remove if name != key))


def _first_value(info: SettingInfo | None) -> str:
    """Return the first choice, which the list shows as chosen; empty for a number, which the user types."""
    return info.choices[0] if info and info.choices and not info.is_number else ""


def _drop(typed: Sheet, key: str, profile: Profile | None) -> Sheet:
    return replace(typed, settings=tuple(line for line in typed.settings if line.key != key))


def _give_up(typed: Sheet, key: str, profile: Profile | None) -> Sheet:
    without = _drop(typed, key, profile)
    return without if key in typed.remove or not key else replace(without, remove=(*typed.remove, key))


def _keep(typed: Sheet, key: str, profile: Profile | None) -> Sheet:
    return replace(typed, remove=tuple(name for name in typed.remove if name != key))


_ACTS: dict[str, Callable[[Sheet, str, Profile | None], Sheet]] = {
    "add": _add,
    "drop": _drop,
    "giveup": _give_up,
    "keep": _keep,
}


Components = tuple[ComponentFields, ...]


def _want(rows: Components, name: str) -> Components:
    return rows if any(row.name == name for row in rows) else (*rows, ComponentFields(name))


def _unwant(rows: Components, name: str) -> Components:
    return tuple(row for row in rows if row.name != name)


def _to_be_gone(rows: Components, name: str) -> Components:
    """Return the rows with this component to be removed.

    It has no version, presets or values then; the reason is for the user to write.
    """
    return tuple(ComponentFields(name, is_gone=True) if row.name == name else row for row in _want(rows, name))


def _back(rows: Components, name: str) -> Components:
    return tuple(replace(row, is_gone=False) if row.name == name else row for row in rows)


_OF_COMPONENTS: dict[str, Callable[[Components, str], Components]] = {
    "want": _want,
    "unwant": _unwant,
    "gone": _to_be_gone,
    "back": _back,
}


def _source(post: QueryDict) -> str:
    """Return the text as it came, also where the form refuses it: the user's own text is shown again."""
    return post.get("source", "").replace("\r\n", "\n")
