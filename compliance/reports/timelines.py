"""Timelines: what happened to one object, as a page and over REST. Rooms above show theirs through `show` and `told`.

compliance/timeline.html   name, kind, back (address of the object), days [(date, [Line])], next, asked, what
compliance/_lately.html    the newest lines, as a part of the object's page
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import groupby
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse

from accounts.models import User
from accounts.permissions import ANYWHERE, Role, require
from clusters.models import Cluster
from clusters.reports import selectors
from common import hooks, timeline
from common.errors import Invalid
from common.requests import UserRequest
from common.timeline import DRIFT, EDITS, ROLLOUTS, VERDICTS, Entry, Subject, TimelineLine
from profiles.models import Profile

ROWS = 50
FEW = 8
"""Entries on the object's own page."""


@dataclass(frozen=True, slots=True)
class About:
    """An object that has a timeline, and how its page speaks of it."""

    kind: str
    row: Any
    name: str
    back: str
    what: Sequence[str]
    """The kinds of entry that there can be."""
    targets: Sequence[str] = ()
    told: Sequence[str] = ()
    crumbs: Sequence[tuple[str, str]] = field(default_factory=list)
    """(name, address) of the pages above it."""


def read(about: About, user: User, *, limit: int, before: str = "", only: str = "") -> tuple[list[Entry], str]:
    """Entries and the cursor of the next page. Raises Invalid for a cursor that no page gave, or an unknown kind."""
    if only and only not in about.what:
        choices = ", ".join(about.what)
        raise Invalid(f"There is no {only[:40]!r} here.", fields={"what": [f"Write one of {choices}."]})
    place = timeline.read_cursor(before)
    subject = Subject(about.kind, about.row, user, limit + 1, place, only, about.targets, about.told)
    return timeline.page(hooks.timeline(subject), limit)


def show(request: UserRequest, about: About) -> HttpResponse:
    """Render the timeline; an invalid filter or cursor in the URL is reported, and the newest entries are shown."""
    params = {name: request.GET.get(name, "") for name in ("what", "before")}
    wrong = ""
    try:
        entries, following = read(about, request.user, limit=ROWS, before=params["before"], only=params["what"])
    except Invalid as refusal:
        wrong, params = str(refusal), {"what": "", "before": ""}
        entries, following = read(about, request.user, limit=ROWS)
    return render(
        request,
        "compliance/timeline.html",
        {"about": about, "days": by_day(entries), "next": following, "asked": params, "wrong": wrong},
    )


def show_few(request: UserRequest, about: About) -> HttpResponse:
    """The newest, for the object's own page, which asks for them once it is looked at."""
    entries, following = read(about, request.user, limit=FEW)
    context = {"lines": timeline.lines(entries), "has_more": bool(following), "url": about.back + "timeline/"}
    return render(request, "compliance/_lately.html", context)


def by_day(entries: Sequence[Entry]) -> list[tuple[date, list[TimelineLine]]]:
    lines = timeline.lines(entries)
    return [(day, list(of_day)) for day, of_day in groupby(lines, key=lambda line: line.entry.place.at.date())]


# ── of what lies at or below this room ────────────────────────────────────────────────────────────────────────────────
def of_cluster(user: User, pk: UUID) -> About:
    row = get_object_or_404(selectors.clusters_visible_to(user), pk=pk)
    crumbs = [("Clusters", reverse("clusters:clusters"))]
    back = reverse("clusters:cluster", args=[row.pk])
    return About("cluster", row, row.name, back, timeline.WHAT, crumbs=crumbs)


def of_node(user: User, pk: int) -> About:
    row = get_object_or_404(selectors.nodes_whole(user), pk=pk)
    back = reverse("clusters:node", args=[row.pk])
    return About("node", row, row.name, back, (EDITS, ROLLOUTS, DRIFT), [f"node:{row.pk}"], crumbs=_in(row.cluster))


def of_pool(user: User, pk: int) -> About:
    row = get_object_or_404(selectors.pools_visible_to(user), pk=pk)
    back = reverse("clusters:pool", args=[row.pk])
    return About("pool", row, row.name, back, timeline.WHAT, [f"pool:{row.pk}"], crumbs=_in(row.cluster))


def of_profile(user: User, name: str) -> About:
    require(user, Role.VIEWER, ANYWHERE, "see profiles")
    row = get_object_or_404(Profile, name=name)
    revisions = row.revisions.values_list("pk", flat=True)
    targets = [f"profile:{row.pk}", *(f"revision:{pk}" for pk in revisions)]
    crumbs = [("Profiles", reverse("profiles:profiles"))]
    back = reverse("profiles:profile", args=[row.name])
    return About("profile", row, row.name, back, (EDITS, VERDICTS, ROLLOUTS), targets, crumbs=crumbs)


def _in(cluster: Cluster) -> list[tuple[str, str]]:
    return [("Clusters", reverse("clusters:clusters")), (cluster.name, reverse("clusters:cluster", args=[cluster.pk]))]
