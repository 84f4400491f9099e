"""Pages of the catalog. What each template gets:

components/list.html
    components      [Component], by title, or what matches
    query           what was searched for
    total           how many there are

components/component.html
    component       Component, with chart, versions, hazards, decisions, usual, crds
    presets         [PresetView: preset, lines, yaml, wish, asks]
    readiness       [ReadinessView: sentence, why, unless]
    fights          [ConflictView: other, why, is_block, settled_by]
    base            [ValueLine] of the catalog's own values
    examples        [(Example, yaml)]
    hazards         [(heading, icon, class, [Hazard])]
    before, behind  [Component]: components that come before it when wanted, and behind it
    graph           Graph: boxes, edges, width, height, sentence
    wish
    panels          [Panel] of rooms above: where it is installed
    may_edit        whether this person may write profiles; else `why_not` says why
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.models import User
from accounts.permissions import ANYWHERE, Role, may, require
from common import hooks
from common.requests import UserRequest
from components.catalog import catalog, graph, presentation


def may_see(user: User) -> None:
    require(user, Role.VIEWER, ANYWHERE, "see the components")


@require_GET
@login_required
def components(request: UserRequest) -> HttpResponse:
    may_see(request.user)
    query = request.GET.get("q", "").strip()[:100]
    everything = catalog.all()
    matching = catalog.search(query) if query else sorted(everything, key=lambda entry: entry.title.casefold())
    context = {"components": matching, "query": query, "total": len(everything)}
    return render(request, "components/list.html", context)


@require_GET
@login_required
def component(request: UserRequest, name: str) -> HttpResponse:
    may_see(request.user)
    entry = catalog.get(name)
    everything = catalog.all()
    context = {
        "component": entry,
        "presets": presentation.presets(entry),
        "readiness": presentation.readiness(entry),
        "fights": presentation.fights(entry),
        "base": presentation.lines(entry.values),
        "examples": [(example, presentation.as_yaml(example.body)) for example in entry.examples],
        "hazards": presentation.hazards(entry),
        "before": [other for other in everything if other.name in graph.before(entry)],
        "behind": [other for other in everything if entry.name in graph.before(other)],
        "graph": graph.around(entry.name),
        "wish": presentation.wish(entry),
        "may_edit": may(request.user, Role.OPERATOR, ANYWHERE),
        "why_not": "You need the role operator.",
        "panels": sorted(hooks.component_panels(request, entry.name), key=lambda panel: panel.order),
    }
    return render(request, "components/component.html", context)
