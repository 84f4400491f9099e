"""Pages of compliance. Each view is one URL and one template; what it shows is gathered in `compliance.reports.pages`.

compliance/fleet.html      pages.fleet(); panels: [Panel]
compliance/_fleet.html     the same context: the live part of it
compliance/nodes.html      page (of Node with `shown`, `why`, `target`), filters (NodeFilter), counts, outlier, pool
compliance/settings.html   page (of SettingState with `shown` and `rollout_number`), filters, counts, pool
compliance/changes.html    page (of SettingChange with `rollout_number`), filters, node
Each list also has asked (what the URL says), is_filtered, export (the file's name) and cluster_names.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Page, Paginator
from django.http import HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from clusters.models import Pool
from clusters.reports import selectors as cluster_selectors
from common import hooks
from common.errors import Refusal
from common.requests import UserRequest
from compliance import tasks
from compliance.hooks import panels
from compliance.models import OutlierNode
from compliance.reports import exports, filters, pages, security, selectors, shares
from compliance.services import assignments
from profiles.catalog import weakening

ROWS = 50
require_safe_or_post = require_http_methods(["GET", "HEAD", "POST"])
"""An action that is only looked at, after a log-in that interrupted it, leads back to the page it belongs to."""


# ── the fleet ─────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_GET
@login_required
def fleet(request: UserRequest) -> HttpResponse:
    context = _fleet(request)
    panels_ = sorted(hooks.compliance_panels(request, context["filters"]), key=lambda panel: panel.order)
    return render(request, "compliance/fleet.html", context | {"panels": panels_})


@require_GET
@login_required
def fleet_live(request: UserRequest) -> HttpResponse:
    return render(request, "compliance/_fleet.html", _fleet(request))


def _fleet(request: UserRequest) -> dict[str, Any]:
    params = {name: request.GET.get(name, "") for name in ("cluster", "environment", "all")}
    return pages.fleet(request.user, params)


# ── lists ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_GET
@login_required
def node_list(request: UserRequest) -> HttpResponse:
    """Filters live in the URL; a wrong one is shown and narrows nothing. Chips count what the other filters leave."""
    everything = selectors.nodes(request.user)
    filterset = filters.NodeFilter(request.GET, queryset=everything)
    counts = selectors.count(filters.NodeFilter(_without(request, "state"), queryset=everything).qs)
    weak = filters.NodeFilter(_without(request, "weakens_security"), queryset=everything).qs
    is_wrong = bool(filterset.form.errors)
    total = sum(counts[s] for s in filterset.form.cleaned_data["state"] or selectors.SHOWN) if not is_wrong else None
    # Only the keys are sorted: a row with all that it shows is wide, and thousands go before a late page.
    page = _page(request, selectors.worst_first(filterset.qs).values_list("pk", flat=True), total)
    rows = everything.in_bulk(list(page))
    page.object_list = [rows[pk] for pk in page if pk in rows]
    weak_settings = security.of_nodes(node.pk for node in page)
    for node in page:
        node.weakening = weak_settings.get(node.pk, 0)
        node.why = exports.why(node)
        node.target = selectors.target_of(node)
    outlier = None
    if (pk := filterset.form.cleaned_data.get("outlier")) is not None:
        outlier = selectors.outliers(request.user).filter(pk=int(pk)).first()
        values = OutlierNode.objects.filter(outlier=outlier, node__in=[node.pk for node in page])
        by_node = dict(values.values_list("node_id", "value"))
        for node in page:
            node.differs = by_node.get(node.pk)
    context = {
        "page": page,
        "filters": filterset,
        "counts": counts,
        "outlier": outlier,
        "pool": _pool(request, filterset),
    }
    context["weak_count"] = weak.filter(security.nodes_with(weakening.SIDES)).count()
    return render(request, "compliance/nodes.html", context | _about(request, filterset, "nodes"))


@require_GET
@login_required
def setting_list(request: UserRequest) -> HttpResponse:
    """List settings; as in the list of nodes, chips count what the other filters leave."""
    everything = selectors.settings_of(request.user)
    filterset = filters.SettingFilter(request.GET, queryset=everything)
    every = shares.by_node(request.user, request.GET)
    counts = shares.counts(every)
    weak = filters.SettingFilter(_without(request, "weakens_security"), queryset=everything).qs
    filterset.is_valid()
    chosen = shares.in_states(every, filterset.form.cleaned_data.get("state") or ())
    page = _page(request, shares.WorstSettings(filterset.qs, chosen))
    _number(page)
    context = {"page": page, "filters": filterset, "counts": counts, "pool": _pool(request, filterset)}
    context["weak_count"] = weak.filter(security.chosen(weakening.SIDES)).count()
    return render(request, "compliance/settings.html", context | _about(request, filterset, "settings"))


@require_GET
@login_required
def change_list(request: UserRequest) -> HttpResponse:
    filterset = filters.ChangeFilter(request.GET, queryset=selectors.changes(request.user))
    page = _page(request, filterset.qs.order_by("-pk"))
    _number(page)
    pk = filterset.form.cleaned_data.get("node") if filterset.is_valid() else None
    node = cluster_selectors.nodes_whole(request.user).filter(pk=int(pk)).first() if pk is not None else None
    context = {"page": page, "filters": filterset, "node": node}
    return render(request, "compliance/changes.html", context | _about(request, filterset, "changes"))


def _without(request: UserRequest, name: str) -> QueryDict:
    """Return the URL's query without one filter, for the counts of its chips."""
    others = request.GET.copy()
    others.pop(name, None)
    return others


def _page(request: UserRequest, rows: Any, total: int | None = None) -> Page[Any]:
    """`total`, where it is known already: the database need not count again."""
    paginator: Paginator[Any] = Paginator(rows, ROWS)
    if total is not None:
        paginator.__dict__["count"] = total  # where cached_property keeps it
    return paginator.get_page(request.GET.get("page"))


def _number(page: Page[Any]) -> None:
    numbers = selectors.rollout_numbers(row.rollout_id for row in page)
    for row in page:
        row.rollout_number = numbers.get(row.rollout_id)


def _pool(request: UserRequest, filterset: Any) -> Pool | None:
    pk = filterset.form.cleaned_data.get("pool")
    return cluster_selectors.pools_visible_to(request.user).filter(pk=int(pk)).first() if pk is not None else None


def _about(request: UserRequest, filterset: Any, name: str) -> dict[str, Any]:
    given = {key: value for key, value in request.GET.items() if value and key != "page"}
    return {
        "is_filtered": bool(given),
        "asked": {
            **{key: request.GET.get(key, "") for key in filterset.filters},
            **{key: request.GET.getlist(key) for key in ("state", "weakens_security")},
        },
        "sides": weakening.SIDES,
        "export": name,
        "states": [str(state) for state in selectors.RANK if state != selectors.UNASSIGNED],
        "cluster_names": cluster_selectors.clusters_visible_to(request.user).values_list("name", flat=True),
    }


@require_GET
@login_required
def export(request: UserRequest, name: str, form: str) -> HttpResponseBase:
    """The whole list under the same filters. A wrong filter is refused: ignored, it would widen the file."""
    rows: dict[str, tuple[Any, Any]] = {
        "nodes": (filters.NodeFilter, selectors.nodes),
        "settings": (filters.SettingFilter, selectors.settings_of),
        "changes": (filters.ChangeFilter, selectors.changes),
        "outliers": (filters.OutlierFilter, selectors.outliers),
    }
    filterset, visible = rows[name]
    return exports.answer(name, filters.strictly(filterset, request.GET, visible(request.user)), form)


# ── one node, one pool ────────────────────────────────────────────────────────────────────────────────────────────────
@require_GET
@login_required
def node_live(request: UserRequest, pk: int) -> HttpResponse:
    """Return the settings part of a node's page, which refreshes while the page is open."""
    node = get_object_or_404(cluster_selectors.nodes_whole(request.user), pk=pk)
    return render(request, "compliance/_node_settings.html", {"panel": panels.node_settings(request.user, node)})


@require_GET
@login_required
def cluster_weak(request: UserRequest, pk: UUID) -> HttpResponse:
    """Return the part of a cluster's page with how many of its nodes have a setting that weakens security."""
    cluster = get_object_or_404(cluster_selectors.clusters_visible_to(request.user), pk=pk)
    context = {"cluster": cluster, "weak": pages.weak_in(request.user, cluster)}
    return render(request, "compliance/_cluster_weak.html", context)


@require_safe_or_post
@login_required
def observe(request: UserRequest, pk: int) -> HttpResponse:
    """Stop repairing drift in this pool; the way back is a plan."""
    assignment = get_object_or_404(selectors.assignments(request.user), pool=pk)
    if request.method == "POST":
        try:
            assignments.weaken(assignment, by=request.user, reason=request.POST.get("reason", "")[:500])
        except Refusal as refusal:
            if refusal.status == 403:
                raise
            messages.error(request, str(refusal))
        else:
            tasks.soften_soon()
            messages.success(
                request, f"{assignment.pool} only observes drift from now on; its agents are being notified."
            )
    return redirect("clusters:cluster", assignment.pool.cluster_id)
