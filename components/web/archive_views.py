"""Pages of chart archives. What the template gets:

components/archives.html        posts an upload to its own address
    rows            [ArchiveRow: archive, component, is_tested, plans ([WorkRef]), is_used], by name, the newest first
    total, limit    how many there are, and how many are shown
    problems        {field: [message]} of a refused upload
    may_change, why_not
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from accounts.permissions import ANYWHERE, GLOBAL, Role, may, require
from common.hooks import WorkRef
from common.requests import UserRequest
from components.catalog.entry import Component
from components.charts import uploads
from components.charts.archives import BadArchive
from components.helm import kube_version
from components.models import Archive

LIMIT = 200


@dataclass(frozen=True, slots=True)
class ArchiveRow:
    archive: Archive
    component: Component | None
    is_tested: bool
    """The component's presets were checked against this version."""
    plans: Sequence[WorkRef]
    """The newest of those that this person may see."""
    is_used: bool
    """A plan names it, seen or not."""


@require_http_methods(["GET", "POST"])
@login_required
def archives(request: UserRequest) -> HttpResponse:
    require(request.user, Role.VIEWER, ANYWHERE, "see the chart archives")
    if request.method == "GET":
        return _page(request)
    uploads.may_upload(request.user)
    file = request.FILES.get("archive")
    if file is None:
        return _page(request, {"archive": ["Choose a file: a chart packed with helm package."]})
    try:
        archive, is_new = uploads.upload(file, by=request.user)
    except BadArchive as refusal:
        return _page(request, refusal.fields)
    if not is_new:
        messages.info(request, f"{archive} is stored already, byte by byte.")
    elif before := uploads.replaced(archive):
        text = f"{archive} is stored. Plans take it from now on instead of the archive {before.sha256[:12]}…"
        messages.warning(request, text)
    else:
        messages.success(request, f"{archive} is stored. Plans take it instead of asking a repository.")
    for text in kube_version.unfit(bytes(archive.content)) if is_new else ():
        messages.warning(request, text)
    return redirect("components:archives")


@require_POST
@login_required
def archive_delete(request: UserRequest, sha256: str) -> HttpResponse:
    uploads.may_upload(request.user)
    archive = get_object_or_404(uploads.known(), pk=sha256)
    uploads.delete(archive, by=request.user)
    messages.success(request, f"{archive} is deleted.")
    return redirect("components:archives")


def _page(request: UserRequest, problems: Mapping[str, Sequence[str]] | None = None) -> HttpResponse:
    shown = list(uploads.known()[:LIMIT])
    keys = [archive.pk for archive in shown]
    seen, used = uploads.uses(keys, request.user), uploads.uses(keys)
    may_change = may(request.user, Role.ADMIN, GLOBAL)
    context = {
        "rows": [_row(archive, seen.get(archive.pk, ()), is_used=archive.pk in used) for archive in shown],
        "total": len(shown) if len(shown) < LIMIT else Archive.objects.count(),
        "limit": LIMIT,
        "problems": dict(problems or {}),
        "may_change": may_change,
        "why_not": "You need the role admin in all clusters.",
    }
    return render(request, "components/archives.html", context, status=422 if problems else 200)


def _row(archive: Archive, plans: Sequence[WorkRef], *, is_used: bool) -> ArchiveRow:
    component = next(iter(uploads.components_of(archive.name)), None)
    is_tested = bool(component and component.tested(archive.version))
    return ArchiveRow(archive, component, is_tested, plans, is_used)
