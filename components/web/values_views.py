"""Pages of the values that hold for one cluster. What each template gets:

components/cluster_values.html
    cluster
    rows            [ComponentValuesRow: component, row (ClusterValues or None), count (of its own keys), is_near,
                    problems]

components/values_edit.html     posts to its own address, with the intents save, check, fetch, form and yaml
    cluster, component, here (cluster_values.ComponentInCluster)
    view            `form` or `yaml`; `source`: the YAML, in the form view that of keys without a row
    rows            [ValueRow], in the form view
    loose           [LocatedFinding] that belong to no row; `others`: those that the layers below bring
    lines           [LayeredValue]: every key that helm is given
    version         of the row that what is typed began with, which is sent back; `row`: as it is by now
    error           why it was not saved; empty while nothing was
    unfetched       why the chart could not be fetched; empty while it was not requested
    may_change, why_not; may_remove: the profile's editor can be opened to ask for the component's removal
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.models import User
from accounts.people import owners
from accounts.permissions import ANYWHERE, GLOBAL, Role, may
from clusters.models import Cluster
from clusters.reports import selectors
from common.errors import Invalid, Stale
from common.requests import UserRequest
from components.catalog import catalog, presentation, values_check
from components.catalog.entry import Component
from components.catalog.layering import leaves
from components.charts.archives import BadArchive
from components.charts.fetching import Unfetchable
from components.cluster_values import form, overrides
from components.cluster_values.form import ParsedInput
from components.cluster_values.overrides import ComponentInCluster, ValuesFinding
from components.models import ClusterValues
from components.values.paths import at
from profiles.models import Revision

WHY_NOT = "You need the role operator here."


# ── All components of a cluster ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class ComponentValuesRow:
    component: Component
    row: ClusterValues | None
    count: int
    """Keys that hold for this cluster only."""
    is_near: bool
    """A target of the cluster, or an open plan, wants it."""


@require_GET
@login_required
def cluster_components(request: UserRequest, pk: UUID) -> HttpResponse:
    cluster = _cluster(request, pk)
    return render(request, "components/cluster_values.html", {"cluster": cluster, "rows": rows_of(cluster)})


def rows_of(cluster: Cluster) -> list[ComponentValuesRow]:
    """Those that are wanted here first, then those that have values of their own."""
    kept = {row.component: row for row in ClusterValues.objects.filter(cluster=cluster)}
    near = {
        component.name
        for revision in Revision.objects.filter(pk__in=overrides.near_revisions(cluster)).only("content")
        for component in revision.flat.components
    }
    rows = []
    for component in catalog.all():
        row = kept.get(component.name)
        count = sum(1 for _ in leaves(row.values)) if row else 0
        rows.append(ComponentValuesRow(component, row, count, component.name in near))
    return sorted(rows, key=lambda row: (not row.is_near, not row.count))


# ── One of them ───────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class ValueRow:
    path: str
    what: str
    is_required: bool
    example: str
    typed: str
    below: str
    """What holds without a value here, and `origin`, where that comes from."""
    origin: str
    problems: Sequence[str]
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True)
class LocatedFinding:
    finding: ValuesFinding
    line: int
    """In the YAML on the page; 0: not in it."""


@dataclass(slots=True)
class ValuesEditor:
    """State of the editor."""

    view: str
    typed: dict[str, str]
    source: str
    read: ParsedInput


@require_http_methods(["GET", "POST"])
@login_required
def cluster_component(request: UserRequest, pk: UUID, name: str) -> HttpResponse:
    cluster, component = _cluster(request, pk), catalog.get(name)
    here = overrides.component_in_cluster(
        cluster, component, _number(request.POST.get("revision", request.GET.get("revision")))
    )
    if request.method == "GET":
        return _page(request, here, _opened(here, here.own, request.GET.get("view", "form")))
    overrides.may_change(request.user, cluster, component)
    desk, intent = _sent(request.POST, here), request.POST.get("intent", "save")
    version = _number(request.POST.get("version")) or 0
    if intent in ("form", "yaml") and not desk.read.problems:
        desk = _opened(here, desk.read.values, intent)
    if intent == "fetch":
        return _fetched(request, here, desk, version)
    if intent != "save" or desk.read.problems:
        return _page(request, here, desk, version, status=422 if desk.read.problems else 200)
    try:
        saved = overrides.save(here, desk.read.values, by=request.user, version=version)
    except Invalid as refusal:
        return _page(request, here, desk, version, status=refusal.status)
    except Stale as refusal:
        error = f"{refusal} Your input is kept; saving again replaces theirs."
        fresh = overrides.component_in_cluster(cluster, component, here.wish.revision.pk if here.wish else None)
        return _page(request, fresh, desk, status=refusal.status, error=error)
    messages.success(
        request,
        f"The values of {component.title} for {cluster} are saved as version {saved.version}. "
        "Nothing changed in the cluster: the next plan that brings it carries them out.",
    )
    return redirect(_address(here))


def _fetched(request: UserRequest, here: ComponentInCluster, desk: ValuesEditor, version: int) -> HttpResponse:
    """The same page, checked against the chart where it came; what is typed stays."""
    try:
        overrides.fetch_chart(here, by=request.user)
    except (Unfetchable, BadArchive) as refusal:
        return _page(request, here, desk, version, status=refusal.status, unfetched=str(refusal))
    revision = here.wish.revision.pk if here.wish else 0
    fresh = overrides.component_in_cluster(here.cluster, here.component, revision)
    return _page(request, fresh, desk, version, status=422 if desk.read.problems else 200)


def _address(here: ComponentInCluster) -> str:
    address = reverse("components:cluster_component", args=[here.cluster.pk, here.component.name])
    return f"{address}?revision={here.wish.revision.pk}" if here.wish and not here.wish.is_target else address


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None


def _opened(here: ComponentInCluster, own: Any, view: str) -> ValuesEditor:
    """Stored values as they are first shown."""
    shown = overrides.hidden(own)
    if view == "yaml":
        source = form.as_yaml(shown)
        return ValuesEditor("yaml", {}, source, form.of_text(source))
    typed, rest = form.split(shown, form.paths(here.component, here.presets))
    source = form.as_yaml(rest)
    return ValuesEditor("form", typed, source, form.of_rows(typed.items(), source))


def _sent(post: QueryDict, here: ComponentInCluster) -> ValuesEditor:
    source = post.get("source", "").replace("\r\n", "\n")
    if post.get("view") != "form":
        return ValuesEditor("yaml", {}, source, form.of_text(source))
    typed = dict(zip(post.getlist("path"), post.getlist("value"), strict=False))
    return ValuesEditor("form", typed, source, form.of_rows(typed.items(), source))


def _page(
    request: UserRequest,
    here: ComponentInCluster,
    desk: ValuesEditor,
    version: int | None = None,
    *,
    status: int = 200,
    error: str = "",
    unfetched: str = "",
) -> HttpResponse:
    """`version`: what the person saw when they began; None: what is shown to them now."""
    read = desk.read
    own = _own(desk)
    findings = overrides.judge(here, own)
    rows = _rows(here, desk, findings) if desk.view == "form" else []
    beside = {row.path for row in rows}
    shown = [LocatedFinding(finding, read.line(finding.path)) for finding in findings if finding.path not in beside]
    may_change = may(request.user, Role.OPERATOR, here.cluster.scopes)
    context = {
        "cluster": here.cluster,
        "component": here.component,
        "here": here,
        "view": desk.view,
        "source": desk.source,
        "unreadable": read.problems.get("", ""),
        "rows": rows,
        "loose": [located for located in shown if located.finding.is_own],
        "others": [located for located in shown if not located.finding.is_own],
        "is_sound": not read.problems
        and not any(finding.is_own and finding.severity == values_check.BLOCK for finding in findings),
        "lines": [] if read.problems else [(line, _text(line.value)) for line in overrides.lines(here, own)],
        "version": version if version is not None else here.version_of_row,
        "row": here.row,
        "error": error,
        "unfetched": unfetched,
        "may_change": may_change,
        "may_remove": _may_remove(request.user, here),
        "why_not": "" if may_change else WHY_NOT,
    }
    return render(request, "components/values_edit.html", context, status=status)


def _may_remove(user: User, here: ComponentInCluster) -> bool:
    """The profile's editor is open to this person, and the profile is no part of the library."""
    if here.wish is None or not may(user, Role.OPERATOR, ANYWHERE):
        return False
    profile = here.wish.revision.profile
    return not profile.is_library and not owners.reason_against(user, profile.owner_team, GLOBAL)


def _rows(here: ComponentInCluster, desk: ValuesEditor, findings: Sequence[ValuesFinding]) -> list[ValueRow]:
    component, below = here.component, here.layered({})
    decisions = {decision.path: decision for decision in component.decisions}
    still_open = {decision.path for decision in component.open_decisions(here.presets, here.layered(_own(desk)).values)}
    known = form.paths(component, here.presets)
    out = []
    for path in [*known, *(path for path in desk.typed if path not in known)]:
        decision = decisions.get(path)
        notes = [
            finding
            for finding in findings
            if finding.path == path and (finding.code != "decision" or path not in decisions)
        ]
        problems = [note.message for note in notes if note.is_own and note.severity == values_check.BLOCK]
        if path in desk.read.problems:
            problems.append(desk.read.problems[path])
        out.append(
            ValueRow(
                path,
                _sentence(decision.question if decision else component.usual.get(path, "")),
                is_required=bool(decision and decision.is_required and path in still_open),
                example=decision.example if decision else "",
                typed=desk.typed.get(path, ""),
                below=_below(here, below.values, path),
                origin=below.origins.get(path, "" if here.chart is None else "the chart"),
                problems=problems,
                warnings=[note.message for note in notes if not (note.is_own and note.severity == values_check.BLOCK)],
            )
        )
    return out


def _own(desk: ValuesEditor) -> dict[str, Any]:
    return desk.read.values if isinstance(desk.read.values, dict) else {}


def _sentence(text: str) -> str:
    return text if not text or text[-1] in ".?!" else f"{text}."


def _below(here: ComponentInCluster, layers: dict[str, Any], path: str) -> str:
    steps = tuple(path.split("."))
    for given in (values_check.masked(layers), here.chart.values if here.chart else {}):
        try:
            return _text(at(given, steps))
        except (KeyError, TypeError):
            continue
    return ""


def _text(value: Any) -> str:
    """Short enough for a row; a secret is words already."""
    text = presentation.one_line(value)
    return text if len(text) <= presentation.LONGEST else f"{text[: presentation.LONGEST]}…"


def _cluster(request: UserRequest, pk: UUID) -> Cluster:
    return get_object_or_404(selectors.clusters_visible_to(request.user), pk=pk)
