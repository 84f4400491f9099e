"""Pages of the site's own catalog entries. What each template gets:

components/site.html            the list, and the way to a new one
    rows            [EntryRow: row, component, problem]
    archives        [Archive] that an entry can be made from
    error           why none could be drafted
    archive, url    what the refused draft was asked for; empty: nothing was
    may_change, why_not

components/site_entry.html      one entry, or a new one
    row             SiteEntry; None: a new one
    text            what the form holds
    component       Component as the catalog has it; None: it is left out, or new
    problem         why it is left out
    error           why the text was refused
    notes           what a draft from a chart could not know
    classes         [(what, class, why)] that the text states
    may_change, why_not, why_not_classify
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.permissions import ANYWHERE, Role, require
from common import yaml
from common.errors import Invalid, Refusal, Stale
from common.requests import UserRequest
from components.catalog import catalog, loader, site_entries
from components.catalog.catalog import BadCatalog
from components.catalog.entry import Component
from components.charts import uploads
from components.helm.errors import HelmError
from components.importer import chart_draft
from components.models import SiteEntry

ARCHIVES = 200
"""The first by name, as the page of archives shows them."""


@dataclass(frozen=True, slots=True)
class EntryRow:
    row: SiteEntry
    component: Component | None
    problem: str


@require_GET
@login_required
def entries(request: UserRequest) -> HttpResponse:
    require(request.user, Role.VIEWER, ANYWHERE, "see the catalog")
    return _list(request)


def _list(
    request: UserRequest, *, archive: str = "", url: str = "", error: str = "", status: int = 200
) -> HttpResponse:
    there = catalog.installed()
    rows = [
        EntryRow(row, _own(row.name), there.problems.get(row.name, "")) for row in site_entries.known().defer("text")
    ]
    why_not = site_entries.reason_not_to_change(request.user)
    context = {
        "rows": rows,
        "archives": [] if why_not else uploads.known()[:ARCHIVES],
        "archive": archive,
        "url": url,
        "error": error,
        "may_change": not why_not,
        "why_not": why_not,
    }
    return render(request, "components/site.html", context, status=status)


@require_http_methods(["GET", "POST"])
@login_required
def entry_new(request: UserRequest) -> HttpResponse:
    site_entries.may_change(request.user)
    if request.method == "GET":
        return _page(request, None, "")
    text = _text(request)
    try:
        row = site_entries.create(text, by=request.user)
    except Invalid as refusal:
        return _page(request, None, _shown(text), error=str(refusal), status=422)
    messages.success(request, f"The entry {row} is stored. It is untested until another administrator classifies it.")
    return redirect("components:site_entry", row.pk)


@require_POST
@login_required
def entry_draft(request: UserRequest) -> HttpResponse:
    """Draft an entry from a stored archive: shown in the form of a new one, and stored only from there."""
    site_entries.may_change(request.user)
    archive, url = request.POST.get("archive", ""), request.POST.get("url", "").strip()
    try:
        made = chart_draft.from_archive(archive, url=url)
    except (Refusal, HelmError) as error:
        return _list(request, archive=archive, url=url, error=str(error), status=422)
    return _page(request, None, made.text, notes=made.notes)


@require_http_methods(["GET", "POST"])
@login_required
def entry(request: UserRequest, name: str) -> HttpResponse:
    require(request.user, Role.VIEWER, ANYWHERE, "see the catalog")
    row = get_object_or_404(site_entries.known(), pk=name)
    if request.method == "GET":
        return _page(request, row, row.text)
    site_entries.may_change(request.user)
    text = _text(request)
    try:
        saved = site_entries.update(row, text, by=request.user, version=_version(request))
    except (Invalid, Stale) as refusal:
        return _page(request, row, _shown(text), error=str(refusal), status=refusal.status)
    if saved.version == row.version:
        messages.info(request, f"The text of {row} is as it was.")
    else:
        messages.success(request, f"The entry {row} is changed, and untested again.")
    return redirect("components:site_entry", row.pk)


@require_POST
@login_required
def entry_classify(request: UserRequest, name: str) -> HttpResponse:
    row = get_object_or_404(site_entries.known(), pk=name)
    site_entries.classify(row, by=request.user, version=_version(request))
    messages.success(request, f"{row} is classified: plans take the classes that it states.")
    return redirect("components:site_entry", row.pk)


@require_POST
@login_required
def entry_delete(request: UserRequest, name: str) -> HttpResponse:
    row = get_object_or_404(site_entries.known(), pk=name)
    site_entries.delete(row, by=request.user, version=_version(request))
    messages.success(request, f"The entry {row} is deleted.")
    return redirect("components:site_entries")


@require_GET
@login_required
def entry_file(request: UserRequest, name: str) -> HttpResponse:
    """The text to the byte, as a file that can be uploaded again, here or elsewhere."""
    require(request.user, Role.VIEWER, ANYWHERE, "see the catalog")
    row = get_object_or_404(site_entries.known(), pk=name)
    answer = HttpResponse(row.text.encode(), content_type="application/yaml")
    answer["Content-Disposition"] = f'attachment; filename="{row.name}.yaml"'
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def _text(request: UserRequest) -> str | bytes:
    """Return a file as it is; else what was typed, whose lines a browser ends otherwise than a file does."""
    if file := request.FILES.get("file"):
        return bytes(file.read(yaml.MAX_BYTES + 1))
    return request.POST.get("text", "").replace("\r\n", "\n")


def _shown(text: str | bytes) -> str:
    return text if isinstance(text, str) else text[: yaml.MAX_BYTES].decode("utf-8", "replace")


def _version(request: UserRequest) -> int:
    version = request.POST.get("version", "")
    return int(version) if version.isascii() and version.isdecimal() and len(version) < 10 else 0


def _own(name: str) -> Component | None:
    component = catalog.installed().components.get(name)
    return component if component and component.entry else None


def _classes(row: SiteEntry | None) -> list[tuple[str, str, str]]:
    """Return the effects that the stored text states, which a classifier vouches for, whether they count or not."""
    if row is None:
        return []
    try:
        stated = loader.parse(row.text, file=row.name).effects
    except BadCatalog:
        return []
    changes = [(f"{c.kind} {', '.join((*c.names, *c.paths))}".strip(), c.worst, c.why) for c in stated.changes]
    return [
        ("Install", stated.install.worst, stated.install.why),
        ("Removal", stated.remove.worst, stated.remove.why),
        *changes,
        ("Any other change", stated.unknown, "What the entry does not list."),
    ]


def _page(
    request: UserRequest,
    row: SiteEntry | None,
    text: str,
    *,
    error: str = "",
    notes: Sequence[str] = (),
    status: int = 200,
) -> HttpResponse:
    why_not = site_entries.reason_not_to_change(request.user)
    context = {
        "row": row,
        "text": text,
        "component": _own(row.name) if row else None,
        "problem": catalog.installed().problems.get(row.name, "") if row else "",
        "error": error,
        "notes": notes,
        "classes": _classes(row),
        "may_change": not why_not,
        "why_not": why_not,
        "why_not_classify": site_entries.reason_not_to_classify(row, request.user) if row else "",
    }
    return render(request, "components/site_entry.html", context, status=status)
