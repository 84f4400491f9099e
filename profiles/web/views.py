"""Pages of profiles. What each template gets:

profiles/list.html
    page_obj        a Page of Profile, each with newest_number, newest_id, newest_digest, newest_at, revision_count
    rows            [(profile, its owner's name or None)] of that page
    query, owner    what was searched for, and the name of the team chosen; teams {key: name}
    may_edit        whether "New profile" works; else `why_not` says why

profiles/profile.html
    profile, latest (Revision or None), revisions (a Page of Revision, newest first)
    groups          [SettingGroup: apply_class, title, meaning, rows]; SettingRow: wanted (key, operator, value,
                    origin), info (SettingInfo: title, unit, range_text, risk, sources, platforms, or None),
                    is_inherited, why
    content         Content of the latest revision, or None: labels, annotations (key, value, origin), taints
    cluster         ClusterPart of it, or None: components, objects
    draft           Judged or None: source, is_valid, problems, warnings, changes, digest
    publish_form    PublishForm: message, version (hidden); posts to profiles:profile_publish
    extendable      whether this person may make a profile that extends it
    owner           a team's name or None
    owner_form      OwnerForm: owner, version (hidden), posts to profiles:profile_owner; None for those who may not
    may_edit, may_publish, may_discard    else `why_not_edit`, `why_not_publish` say why

profiles/revision.html
    revision, profile, groups, content, cluster, authors, chain (Revisions that it extends, nearest first)
    against         Revision or None: what `changes` compares with (?against=<number>, default the one before)
    others          Revisions of this profile to compare with
    is_latest
"""

from __future__ import annotations

from typing import TypeVar

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Q
from django.forms import Form
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_POST

from accounts.models import User
from accounts.people import owners
from accounts.permissions import ANYWHERE, GLOBAL, Role, may, require
from common import hooks
from common.errors import Invalid, Refusal
from common.hooks import RevisionUse
from common.requests import UserRequest
from profiles.editor import cluster_scope, presentation
from profiles.models import Profile, Revision
from profiles.services import editing, platforms
from profiles.web.forms import OwnerForm, PublishForm, VersionForm

F = TypeVar("F", bound=Form)
ROWS = 50
USED = 500
"""Of so many of the newest revisions a profile's page tells where they are used."""


def may_see(user: User) -> None:
    require(user, Role.VIEWER, ANYWHERE, "see profiles")


def sent(request: UserRequest) -> QueryDict | None:
    """Return the data that a form is bound to: an empty POST too, which `or None` would take for a first visit."""
    return request.POST if request.method == "POST" else None


def _why_not(user: User, profile: Profile | None = None) -> str:
    """Explain why this user cannot write this profile; empty: they can."""
    if not may(user, Role.OPERATOR, ANYWHERE):
        return "You need the role operator."
    if profile and profile.is_library:
        return f"{profile} comes with Setpoint and changes with it; make a profile that extends it."
    return owners.reason_against(user, profile.owner_team, GLOBAL) if profile else ""


@require_GET
@login_required
def profiles(request: UserRequest) -> HttpResponse:
    may_see(request.user)
    query = request.GET.get("q", "").strip()[:100]
    rows = Profile.objects.with_newest().order_by("name")
    if query:
        rows = rows.filter(Q(name__icontains=query) | Q(description__icontains=query))
    names = owners.team_names()
    owner = request.GET.get("owner", "")
    if owner:
        rows = rows.filter(owner_team=next((pk for pk, name in names.items() if name == owner), -1))
    page = Paginator(rows, ROWS).get_page(request.GET.get("page"))
    context = {
        "page_obj": page,
        "rows": [(row, owners.shown(row.owner_team, {"team_names": names})) for row in page],
        "query": query,
        "teams": names,
        "owner": owner,
        "may_edit": not _why_not(request.user),
        "why_not": _why_not(request.user),
    }
    return render(request, "profiles/list.html", context)


@require_GET
@login_required
def profile(request: UserRequest, name: str) -> HttpResponse:
    may_see(request.user)
    return _profile_page(request, get_object_or_404(Profile, name=name))


def _profile_page(
    request: UserRequest, profile: Profile, form: PublishForm | None = None, status: int = 200
) -> HttpResponse:
    latest = profile.revisions.select_related("profile", "extends__profile", "published_by").order_by("-number").first()
    content = latest.flat if latest else None
    draft = presentation.judge(profile.draft, profile, latest) if profile.draft else None
    why_not = _why_not(request.user, profile)
    why_not_publish = why_not or _unpublishable(latest, draft)
    history = profile.revisions.select_related("profile", "published_by").order_by("-number")
    context = {
        "profile": profile,
        "owner": owners.shown(profile.owner_team),
        "owner_form": _owner_form(request, profile),
        "latest": latest,
        "content": content,
        "uses": uses_of(request.user, profile),
        "platforms": platforms.platform_reports(content) if content else [],
        "groups": presentation.groups(content, str(latest)) if content else [],
        "cluster": cluster_scope.part(content, str(latest)) if content else None,
        "revisions": Paginator(history, ROWS).get_page(request.GET.get("page")),
        "draft": draft,
        "publish_form": form or PublishForm(initial={"version": profile.version}),
        "may_edit": not why_not,
        "why_not_edit": why_not,
        "extendable": bool(latest) and not _why_not(request.user),
        "may_publish": not why_not_publish,
        "why_not_publish": why_not_publish,
        "may_discard": bool(draft) and not why_not,
        "panels": sorted(hooks.profile_panels(request, profile), key=lambda panel: panel.order),
    }
    return render(request, "profiles/profile.html", context, status=status)


def _owner_form(request: UserRequest, profile: Profile) -> OwnerForm | None:
    if profile.is_library or not may(request.user, Role.ADMIN, GLOBAL):
        return None
    initial = {"owner": owners.shown(profile.owner_team) or "", "version": profile.version}
    return OwnerForm(initial=initial, owners=owners.choices(profile.owner_team))


def uses_of(user: User, profile: Profile) -> list[tuple[RevisionUse, int]]:
    """List the uses of this profile's newest revisions, each with that revision's number."""
    numbers = dict(profile.revisions.order_by("-number").values_list("pk", "number")[:USED])
    return [(use, numbers[use.revision_id]) for use in hooks.revision_uses(user, list(numbers))] if numbers else []


def _unpublishable(latest: Revision | None, draft: presentation.Judged | None) -> str:
    if draft is None:
        return "There is no draft."
    if draft.checked is None:
        count = len(draft.problems)
        return f"{count} problem{'s' if count > 1 else ''} must be fixed first."
    if draft.checked.content.is_empty:
        return "The draft wants nothing."
    if latest and latest.digest == draft.digest:
        return f"Nothing would change: the draft means the same as {latest}."
    return ""


@require_POST
@login_required
def profile_publish(request: UserRequest, name: str) -> HttpResponse:
    profile = get_object_or_404(Profile, name=name)
    form = PublishForm(request.POST)
    if not form.is_valid():
        return _profile_page(request, profile, form, 422)
    try:
        revision = editing.publish(profile, **form.cleaned_data, by=request.user)
    except Refusal as refusal:
        explain(form, refusal)
        profile = get_object_or_404(Profile, name=name)
        return _profile_page(request, profile, renewed(form, profile), refusal.status)
    messages.success(request, f"{revision} is published. Make a plan to bring it to nodes.")
    return redirect("profiles:revision", name, revision.number)


@require_POST
@login_required
def profile_owner(request: UserRequest, name: str) -> HttpResponse:
    profile = get_object_or_404(Profile, name=name)
    form = OwnerForm(request.POST, owners=owners.choices(profile.owner_team))
    if not form.is_valid():
        raise Invalid("The form is incomplete.", fields={key: list(map(str, form.errors[key])) for key in form.errors})
    editing.set_owner(profile, by=request.user, **form.cleaned_data)
    messages.success(request, f"{profile} belongs to {form.cleaned_data['owner'] or 'no team'}.")
    return redirect("profiles:profile", name)


@require_POST
@login_required
def profile_discard(request: UserRequest, name: str) -> HttpResponse:
    profile = get_object_or_404(Profile, name=name)
    form = VersionForm(request.POST)
    if not form.is_valid():
        raise Invalid("The form is incomplete.", fields={"version": ["Is missing; reload the page."]})
    editing.discard_draft(profile, by=request.user, version=form.cleaned_data["version"])
    messages.success(request, "The draft is gone.")
    return redirect("profiles:profile", name)


def renewed(form: F, profile: Profile) -> F:
    """The same form, based on the version the page now shows: sent again, it is meant."""
    form.data = {**dict(form.data.items()), "version": str(profile.version)}
    return form


def explain(form: Form, refusal: Refusal) -> None:
    """Each complaint beside its field; one without a field is shown above the form."""
    for name, complaints in refusal.fields.items():
        form.add_error(name if name in form.fields else None, list(complaints))
    if not refusal.fields:
        form.add_error(None, str(refusal))


@require_GET
@login_required
def revision(request: UserRequest, name: str, number: int) -> HttpResponse:
    may_see(request.user)
    row = get_object_or_404(
        Revision.objects.select_related("profile", "extends__profile", "published_by"),
        profile__name=name,
        number=number,
    )
    others = row.profile.revisions.select_related("profile").exclude(pk=row.pk).order_by("-number")
    against_number = request.GET.get("against", "")
    if against_number.isascii() and against_number.isdigit() and len(against_number) < 10:
        against: Revision | None = get_object_or_404(others, number=int(against_number))
    else:
        against = row.previous
    content = row.flat
    context = {
        "revision": row,
        "profile": row.profile,
        "content": content,
        "uses": hooks.revision_uses(request.user, [row.pk]),
        "platforms": platforms.platform_reports(content),
        "groups": presentation.groups(content, str(row)),
        "cluster": cluster_scope.part(content, str(row)),
        "authors": list(row.authors.all()),
        "chain": editing.ancestry(row)[1:],
        "against": against,
        "changes": editing.diff(against, row),
        "others": others[:ROWS],
        "is_latest": not others.filter(number__gt=row.number).exists(),
    }
    return render(request, "profiles/revision.html", context)
