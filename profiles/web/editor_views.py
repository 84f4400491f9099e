"""The editor of drafts: one text as a form and as YAML. What its templates get:

profiles/edit.html
    profile         None for a new one
    form            NewProfileForm (name, source) or DraftForm (source, version); posts to its own address
    view            `form` or `yaml`
    page            FormPage, in the form view
    judged          Judged: the verdict on the same text in either view; `changes` against the newest revision
    latest          Revision or None
    lost            comments that saving would lose
    components      [ComponentFormRow] of the form view; `choices`: hooks.ComponentChoice that can be added
    loose, cautions problems and warnings that stand beside no row
    unreadable      why the form cannot show this text, or nothing
    find, found     what was looked for in the catalog, and what fits
    focus           where to go on: a row's key, or FIND, TEXT, GIVEN_UP and a key
    extendable      names for `extends`

A button's `intent`: save, check, form, yaml (the view to go to), for one row add:<key>, drop:<key>, giveup:<key>,
keep:<key>, and for a component want:<name>, unwant:<name>, gone:<name> (it is to be removed), back:<name>. All but
`save` keep nothing and answer with the same page, so that each works without JavaScript.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.forms import Form
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.permissions import ANYWHERE, Role, require
from common import hooks
from common.errors import Invalid, Stale
from common.requests import UserRequest
from profiles.catalog import known_settings
from profiles.catalog.known_settings import SettingInfo
from profiles.document.schema import InvalidProfile, ProfileNote
from profiles.editor import component_rows, form_data, form_rows, presentation, yaml_patch
from profiles.editor.component_rows import ComponentFields
from profiles.editor.form_data import SettingLine, Sheet
from profiles.models import Profile, Revision
from profiles.services import editing
from profiles.web.forms import DraftForm, NewProfileForm, components_of, sheet_of
from profiles.web.views import explain, renewed, sent

FOUND = 12
"""Results of a search that are shown; more words find fewer."""
EXTENDABLE = 200
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


# ── Pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_http_methods(["GET", "POST"])
@login_required
def profile_new(request: UserRequest) -> HttpResponse:
    require(request.user, Role.OPERATOR, ANYWHERE, "create a profile")
    form = NewProfileForm(sent(request))
    if request.method == "GET":
        return _page(request, None, form, _opened(request.GET.get("source", ""), request.GET.get("view", "")))
    is_sound = form.is_valid()
    desk = _desk(request, _typed(request), None)
    if request.POST.get("intent", "save") != "save":
        if not request.POST.get("name"):  # not asked for yet
            form.errors.pop("name", None)
        return _page(request, None, form, desk, 422 if desk.refusal else 200)
    if not is_sound or desk.refusal:
        return _page(request, None, form, desk, 422)
    try:
        created = editing.create(name=form.cleaned_data["name"], source=desk.written, by=request.user)
    except InvalidProfile:
        return _page(request, None, form, desk, 422)
    except Invalid as refusal:
        explain(form, refusal)
        return _page(request, None, form, desk, 422)
    messages.success(request, f"{created} is created; nothing runs with it before it is published.")
    return redirect("profiles:profile", created.name)


@require_http_methods(["GET", "POST"])
@login_required
def profile_edit(request: UserRequest, name: str) -> HttpResponse:
    require(request.user, Role.OPERATOR, ANYWHERE, f"edit {name}")
    profile = get_object_or_404(Profile, name=name)
    editing.refuse_library(profile)
    latest = profile.latest
    text = profile.draft or (latest.source if latest else "")
    form = DraftForm(sent(request), initial={"version": profile.version})
    if request.method == "GET":
        desk = _opened(text, request.GET.get("view", ""))
        return _page(request, profile, form, _asked(desk, request.GET.get("gone", "")))
    is_sound = form.is_valid()
    desk = _desk(request, _typed(request), profile)
    intent = request.POST.get("intent", "save")
    if not is_sound or desk.refusal or intent != "save":
        return _page(request, profile, form, desk, 200 if is_sound and not desk.refusal else 422)
    if not desk.written.strip():
        form.add_error(None, "There is nothing to save: a profile wants at least one setting, label or taint.")
        return _page(request, profile, form, desk, 422)
    try:
        editing.save_draft(profile, source=desk.written, by=request.user, version=form.cleaned_data["version"])
    except InvalidProfile as refusal:
        return _page(request, profile, form, desk, refusal.status)
    except Stale as refusal:
        profile.refresh_from_db()
        author = profile.draft_author or "Somebody"
        form.add_error(None, f"{author} changed it meanwhile. Your input is kept; saving again replaces theirs.")
        return _page(request, profile, renewed(form, profile), desk, refusal.status)
    messages.success(request, "The draft is saved.")
    return redirect("profiles:profile", profile.name)


@require_POST
@login_required
def verdict(request: UserRequest, name: str = "") -> HttpResponse:
    """Render the notes alone, while the user types: beside each row, and together."""
    require(request.user, Role.OPERATOR, ANYWHERE, "write a profile")
    profile = get_object_or_404(Profile, name=name) if name else None
    form = DraftForm(request.POST) if profile else NewProfileForm(request.POST)
    desk = _desk(request, _typed(request), profile)
    return render(request, "profiles/_verdict.html", _context(profile, form, desk, is_live=True))


@require_GET
@login_required
def setting_search(request: UserRequest) -> HttpResponse:
    """Results of the form's search."""
    require(request.user, Role.OPERATOR, ANYWHERE, "write a profile")
    find = request.GET.get("find", "")
    return render(request, "profiles/_found.html", {"find": find.strip(), "found": _found(find)})


# ── What was sent ─────────────────────────────────────────────────────────────────────────────────────────────────────
def _opened(source: str, view: str) -> ProfileEditor:
    """A text as it is first shown: as a form, unless that cannot show it or YAML was asked for."""
    source = source.replace("\r\n", "\n")
    if view == "yaml":
        return ProfileEditor("yaml", source, written=source)
    try:
        return ProfileEditor("form", source, form_data.read(source), source, components=_components(source))
    except form_data.Unreadable as refusal:
        return ProfileEditor("yaml", source, written=source, unreadable=str(refusal))


def _asked(desk: ProfileEditor, gone: str) -> ProfileEditor:
    """Mark a component as removed, as a link from elsewhere asks; this saves nothing."""
    if desk.components is not None and any(one.name == gone for one in hooks.component_choices()):
        desk.focus = _focus("gone", gone)
        _with_components(desk, "gone", gone)
    return desk


def _typed(request: UserRequest) -> str:
    """Return the text as it came, also where the form refuses it: the user's own text is shown again."""
    return request.POST.get("source", "").replace("\r\n", "\n")


def _desk(request: UserRequest, source: str, profile: Profile | None) -> ProfileEditor:
    """Return the state that was sent, changed as its button asks."""
    post = request.POST
    intent, _, key = post.get("intent", "save").partition(":")
    if post.get("view") != "form":
        desk = _opened(source, "" if intent == "form" else "yaml")
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
    wanted = parent.flat.setting(key) if parent else None
    info = known_settings.get(key)
    if wanted:
        line = SettingLine(key, wanted.operator, wanted.value)
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
    return rows if any(one.name == name for one in rows) else (*rows, ComponentFields(name))


def _unwant(rows: Components, name: str) -> Components:
    return tuple(one for one in rows if one.name != name)


def _to_be_gone(rows: Components, name: str) -> Components:
    """Return the rows with this component to be removed.

    It has no version, presets or values then; the reason is for the user to write.
    """
    return tuple(ComponentFields(name, is_gone=True) if one.name == name else one for one in _want(rows, name))


def _back(rows: Components, name: str) -> Components:
    return tuple(replace(one, is_gone=False) if one.name == name else one for one in rows)


_OF_COMPONENTS: dict[str, Callable[[Components, str], Components]] = {
    "want": _want,
    "unwant": _unwant,
    "gone": _to_be_gone,
    "back": _back,
}


def _found(words: str) -> Sequence[SettingInfo]:
    """Settable keys that fit, those whose name does before those whose description does."""
    wanted = words.lower().split()[:8]
    if not wanted:
        return ()
    fitting = [info for info in known_settings.search(" ".join(wanted)) if not info.observe_only]
    return sorted(fitting, key=lambda info: not all(word in info.key.lower() for word in wanted))[:FOUND]


# ── What is shown ─────────────────────────────────────────────────────────────────────────────────────────────────────
def _page(
    request: UserRequest, profile: Profile | None, form: Form, desk: ProfileEditor, status: int = 200
) -> HttpResponse:
    if desk.refusal:
        explain(form, desk.refusal)
    context = _context(profile, form, desk)
    context["find"] = find = request.POST.get("find", "").strip()[:100] if desk.focus in ("", TEXT) else ""
    context["found"] = _found(find)
    context["extendable"] = _extendable(profile)
    return render(request, "profiles/edit.html", context, status=status)


def _extendable(profile: Profile | None) -> list[str]:
    published = Profile.objects.filter(revisions__isnull=False).distinct().order_by("name")
    return list(
        (published.exclude(pk=profile.pk) if profile else published).values_list("name", flat=True)[:EXTENDABLE]
    )


def _context(profile: Profile | None, form: Form, desk: ProfileEditor, *, is_live: bool = False) -> dict[str, Any]:
    latest: Revision | None = profile.latest if profile else None
    source = desk.written.replace("\r\n", "\n")
    judged = presentation.judge(source, profile, latest)
    page = None
    loose: list[ProfileNote] = list(judged.problems)
    cautions: list[ProfileNote] = list(judged.warnings)
    if desk.view == "form" and desk.typed is not None:
        page = form_rows.page(desk.typed, judged, profile=profile, latest=latest)
        loose, cautions = form_rows.elsewhere(page, loose), form_rows.elsewhere(page, cautions)
    choices = hooks.component_choices() if page else []
    return {
        "profile": profile,
        "form": form,
        "view": desk.view,
        "source": desk.source if page else source,
        "page": page,
        "components": _component_rows(desk, judged, choices) if page and desk.components is not None else None,
        "choices": [one for one in choices if all(one.name != here.name for here in desk.components or ())],
        "judged": judged,
        "latest": latest,
        "lost": desk.lost,
        "loose": loose,
        "cautions": cautions,
        "unreadable": desk.unreadable,
        "focus": desk.focus,
        "is_live": is_live,
    }


@dataclass(frozen=True, slots=True)
class ComponentFormRow:
    """A component with its fields, what the catalog knows of it, and what is wrong with it."""

    fields: ComponentFields
    choice: hooks.ComponentChoice | None
    problems: Sequence[str]
    warnings: Sequence[tuple[str, str]]
    """(path within it, message)"""


def _component_rows(
    desk: ProfileEditor, judged: presentation.Judged, choices: Sequence[hooks.ComponentChoice]
) -> list[ComponentFormRow]:
    known = {one.name: one for one in choices}
    refused = desk.refusal.fields if desk.refusal else {}
    rows = []
    for fields in desk.components or ():
        path = f"components.{fields.name}"

        def is_here(where: str, path: str = path) -> bool:
            return where == path or where.startswith((f"{path}.", f"{path}["))

        problems = [text for where, texts in refused.items() if is_here(where) for text in texts]
        problems += [f"{note.path.removeprefix(path).lstrip('.')} {note.message}".strip() for note in judged.problems
                     if is_here(note.path)]  # fmt: skip
        warnings = [(note.path.removeprefix(path).lstrip("."), note.message) for note in judged.warnings
                    if is_here(note.path)]  # fmt: skip
        rows.append(ComponentFormRow(fields, known.get(fields.name), problems, warnings))
    return rows
