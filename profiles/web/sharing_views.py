"""Pages that compare revisions and carry them out of Setpoint and into it. What each template gets:

profiles/compare.html
    form            CompareForm: before, after, as `training r3` or an id
    before, after   Revision or None
    changes         [ContentDifference]
    names           of the newest revisions, to choose from

profiles/export.html
    revision, profile
    formats         [Format]; `export`: the one shown, with its text and what is missing; `is_fixed`

profiles/import.html
    form            ImportForm: name, format, source, token (hidden; of what was looked at)
    preview         imports.ImportPreview or None: nothing is stored before it was shown
    problems, warnings    [(Note, the text of its line)]; of another tool's file, of the draft made of it
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from accounts.permissions import ANYWHERE, Role, require
from common.errors import Missing, Refusal
from common.requests import UserRequest
from profiles import exports
from profiles.document.schema import InvalidProfile, ProfileNote
from profiles.editor import presentation
from profiles.models import Revision
from profiles.services import editing, imports
from profiles.web.forms import CompareForm, ImportForm
from profiles.web.views import explain, may_see, sent

_NAMED = re.compile(r"([a-z0-9-]{1,63})(?: r([1-9][0-9]{0,8}))?")
OFFERED = 200
"""Revisions offered to choose from; others can be typed."""


@require_GET
@login_required
def compare(request: UserRequest) -> HttpResponse:
    may_see(request.user)
    form = CompareForm(request.GET) if request.GET.get("after") else CompareForm(initial=request.GET.dict())
    before = after = None
    if form.is_valid():
        before, after = named(form.cleaned_data["before"]), named(form.cleaned_data["after"])
        for name, side in (("before", before), ("after", after)):
            if side is None:
                form.add_error(name, "There is no such revision: write training r3, or training for its newest.")
    newest = Revision.objects.select_related("profile").order_by("-pk")[:OFFERED]
    context = {
        "form": form,
        "before": before,
        "after": after,
        "changes": editing.diff(before, after) if before and after else [],
        "names": [str(revision) for revision in newest],
    }
    return render(
        request, "profiles/compare.html", context, status=200 if not form.is_bound or form.is_valid() else 422
    )


def named(text: str) -> Revision | None:
    """`training r3`, `training` (its newest), an id or a digest."""
    revisions = Revision.objects.select_related("profile")
    if match := revisions.named(text).first():
        return match
    if not (parts := _NAMED.fullmatch(text)):
        return None
    revisions = revisions.filter(profile__name=parts[1])
    return (revisions.filter(number=parts[2]) if parts[2] else revisions.order_by("-number")).first()


def _exported(request: UserRequest, revision: Revision, to: str) -> exports.Export:
    if to not in exports.FORMATS:
        raise Missing(f"There is no format {to[:40]}; there are {', '.join(exports.FORMATS)}.")
    return exports.export(
        revision.flat,
        to,
        name=revision.profile.name,
        revision=str(revision),
        digest=revision.digest,
        is_fixed=request.GET.get("fixed") == "1",
    )


def _revision(name: str, number: int) -> Revision:
    return get_object_or_404(Revision.objects.select_related("profile"), profile__name=name, number=number)


@require_GET
@login_required
def export(request: UserRequest, name: str, number: int) -> HttpResponse:
    may_see(request.user)
    revision = _revision(name, number)
    context = {
        "revision": revision,
        "profile": revision.profile,
        "formats": exports.FORMATS.values(),
        "export": _exported(request, revision, request.GET.get("to", "profile")),
    }
    return render(request, "profiles/export.html", context)


@require_GET
@login_required
def export_file(request: UserRequest, name: str, number: int, to: str) -> HttpResponse:
    may_see(request.user)
    exported = _exported(request, _revision(name, number), to)
    return HttpResponse(
        exported.text,
        content_type=f"{exported.format.media_type}; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{exported.filename}"',
            "X-Content-Type-Options": "nosniff",
        },
    )


@require_http_methods(["GET", "POST"])
@login_required
def profile_import(request: UserRequest) -> HttpResponse:
    require(request.user, Role.OPERATOR, ANYWHERE, "import a profile")
    form = ImportForm(sent(request), request.FILES or None)
    if request.method == "GET":
        return render(request, "profiles/import.html", {"form": form})
    preview, status = None, 422
    problems: Sequence[ProfileNote] = ()
    if form.is_valid():
        sent_import = {name: form.cleaned_data[name] for name in ("name", "format", "source")}
        try:
            if request.POST.get("intent") == "store":
                stored = imports.store(**sent_import, token=form.cleaned_data["token"], by=request.user)
                messages.success(request, f"{stored} has it as its draft. Publish it to be able to plan with it.")
                return redirect("profiles:profile", stored.name)
            preview, status = imports.preview(**sent_import, by=request.user), 200
        except InvalidProfile as refusal:
            problems, status = refusal.problems, refusal.status
        except Refusal as refusal:
            explain(form, refusal)
            status = refusal.status
    source = form.data.get("source", "").replace("\r\n", "\n")
    context = {
        "form": form,
        "preview": preview,
        "problems": presentation.beside(problems, source),
        "warnings": presentation.beside(preview.warnings, preview.source) if preview else [],
    }
    return render(request, "profiles/import.html", context, status=status)
