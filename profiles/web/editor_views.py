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
    loose, cautions problems and warnings that belong to no row
    unreadable      why the form cannot show this text, or nothing
    find, found     what was looked for in the catalog, and what fits
    focus           where to continue: a row's key, or FIND, TEXT, GIVEN_UP and a key
    extendable      names for `extends`

What a button's `intent` asks is in `editor_state`. All but `save` keep nothing and answer with the same page, so that
each works without JavaScript.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from profiles.editor import form_rows, presentation
from profiles.editor.component_rows import ComponentFields
from profiles.models import Profile, Revision
from profiles.services import editing
from profiles.web import editor_state
from profiles.web.editor_state import TEXT, ProfileEditor
from profiles.web.forms import DraftForm, NewProfileForm
from profiles.web.views import explain, renewed, sent

FOUND = 12
"""Results of a search that are shown; more words find fewer."""
EXTENDABLE = 200


# ── Pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_http_methods(["GET", "POST"])
@login_required
def profile_new(request: UserRequest) -> HttpResponse:
    require(request.user, Role.OPERATOR, ANYWHERE, "create a profile")
    form = NewProfileForm(sent(request))
    if request.method == "GET":
        return _page(
            request, None, form, editor_state.opened(request.GET.get("source", ""), request.GET.get("view", ""))
        )
    is_sound = form.is_valid()
    desk = editor_state.posted(request.POST, None)
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
    editing.require_editor(profile, request.user, f"edit {name}")
    editing.refuse_library(profile)
    latest = profile.latest
    text = profile.draft or (latest.source if latest else "")
    form = DraftForm(sent(request), initial={"version": profile.version})
    if request.method == "GET":
        desk = editor_state.opened(text, request.GET.get("view", ""))
        return _page(request, profile, form, editor_state.with_removal(desk, request.GET.get("gone", "")))
    is_sound = form.is_valid()
    desk = editor_state.posted(request.POST, profile)
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
    desk = editor_state.posted(request.POST, profile)
    return render(request, "profiles/_verdict.html", _context(profile, form, desk, is_live=True))


@require_GET
@login_required
def setting_search(request: UserRequest) -> HttpResponse:
    """Results of the form's search."""
    require(request.user, Role.OPERATOR, ANYWHERE, "write a profile")
    find = request.GET.get("find", "")
    return render(request, "profiles/_found.html", {"find": find.strip(), "found": _matching_settings(find)})


def _matching_settings(words: str) -> Sequence[SettingInfo]:
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
    context["found"] = _matching_settings(find)
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
        "choices": [choice for choice in choices if all(choice.name != here.name for here in desk.components or ())],
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
    known = {choice.name: choice for choice in choices}
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
