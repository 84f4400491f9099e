"""Pages of pools and nodes. What each template gets:

clusters/pool.html              cluster, pool (None for a new one), form PoolForm, preview (Preview or None: count,
                                total, names, warning), owner (a team's name or None), why_not_change (of an owned
                                pool), why_not_delete; posts to itself with `intent=preview` or
                                `intent=save`; deleting posts to clusters:pool_delete
clusters/nodes.html
    listing         a page of Node with cluster and tuning, worst first unless the URL sorts otherwise
    marks           {node: {axis: NodeMark}} of the axes compliance and operation
    filters, query  what the URL asks for, by name and as text; errors {name: why it is none}
    counts          {axis: {value: n}} of health and compliance, "cordoned": n, "total": n
    cluster_names, pool (Pool or None), is_filtered
    saved           accounts.filters.Shelf: what is kept under a name for this page
clusters/node.html
    node, tuning (or None), observed [(key, value)], disks, gpu_pods, is_gone
    replaced_by     the node that has its name now, or None
    silent_since    when the agent was last heard, once that is too long ago; or None
    may_refresh, panels
"""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts import filters as saved
from accounts.people import owners
from accounts.permissions import Role, may
from clusters.models import Cluster, Node, NodeTuning, Pool
from clusters.reports import node_filters, selectors
from clusters.services import lifecycle, nodes, pools
from clusters.web.forms import PoolForm, add_errors
from common import hooks, keyset
from common.errors import Refusal, WrongState
from common.listing import Listing
from common.requests import UserRequest
from contract import disks

ROWS = 50


# ── pools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_http_methods(["GET", "POST"])
@login_required
def pool_new(request: UserRequest, pk: UUID) -> HttpResponse:
    cluster = get_object_or_404(selectors.clusters_visible_to(request.user), pk=pk)
    initial = {"selector": request.GET.get("selector", "")}
    form = PoolForm(request.POST or None, initial=initial, owners=_owner_choices(request, cluster, None))
    return _pool_page(request, cluster, None, form)


@require_http_methods(["GET", "POST"])
@login_required
def pool(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(selectors.pools_visible_to(request.user), pk=pk)
    initial = {"selector": pools.text_of(row)} | {
        name: getattr(row, name) for name in ("name", "description", "hold_minutes", "version")
    }
    initial |= {"owner": owners.shown(row.owner_team) or ""}
    form = PoolForm(request.POST or None, initial=initial, owners=_owner_choices(request, row.cluster, row))
    return _pool_page(request, row.cluster, row, form)


def _owner_choices(request: UserRequest, cluster: Cluster, row: Pool | None) -> list[tuple[str, str]] | None:
    """Return the teams that may own it; None: this person may not say who does, or there is no team."""
    if not may(request.user, Role.ADMIN, cluster.scopes):
        return None
    choices = owners.choices(row.owner_team if row else None)
    return choices if len(choices) > 1 else None


def _pool_page(request: UserRequest, cluster: Cluster, row: Pool | None, form: PoolForm) -> HttpResponse:
    preview = _first_preview(cluster, row, form)
    if form.is_bound and form.is_valid():
        data = dict(form.cleaned_data)
        version = data.pop("version")
        try:
            preview = pools.preview(cluster, data["selector"])
            _hold_to(request.POST.get("count", ""), preview)
            if request.POST.get("intent") == "save":
                if row:
                    lifecycle.update_pool(row, by=request.user, version=version, **data)
                else:
                    lifecycle.create_pool(cluster, by=request.user, **data)
                messages.success(request, f"The pool {data['name']} is saved.")
                return redirect("clusters:cluster", cluster.pk)
        except Refusal as refusal:
            add_errors(form, refusal)
    why_not_change = pools.reason_against(row, request.user) if row and row.owner_team else ""
    context = {
        "cluster": cluster,
        "pool": row,
        "form": form,
        "preview": preview,
        "owner": owners.shown(row.owner_team) if row else None,
        "why_not_change": why_not_change,
        "why_not_delete": why_not_change or ("; ".join(hooks.pool_blockers(row.pk)) if row else ""),
    }
    return render(request, "clusters/pool.html", context, status=422 if form.errors else 200)


def _first_preview(cluster: Cluster, row: Pool | None, form: PoolForm) -> pools.Preview | None:
    """Return the preview of a pool as it is, or of the selector in a link; None if there is nothing to show."""
    if row:
        return pools.preview(cluster, row.selector)
    try:
        return pools.preview(cluster, form.initial["selector"]) if form.initial["selector"] else None
    except Refusal:
        return None  # it stays in its field, and saving says what is wrong with it


def _hold_to(count: str, preview: pools.Preview) -> None:
    """The number that the page showed is what was agreed to. Raises WrongState when it is another by now."""
    if count.isascii() and count.isdigit() and count != str(preview.count):
        raise WrongState(
            f"You previewed {count} nodes; the selector matches {preview.count} now. Preview again, then save."
        )


@require_POST
@login_required
def pool_delete(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(selectors.pools_visible_to(request.user), pk=pk)
    lifecycle.delete_pool(row, by=request.user)
    messages.success(request, f"The pool {row.name} is deleted.")
    return redirect("clusters:cluster", row.cluster_id)


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_GET
@login_required
def node_list(request: UserRequest) -> HttpResponse:
    narrowed = node_filters.read(request.GET.dict(), request.user)
    counts = selectors.counts_of(narrowed.without["health"])
    order = node_filters.ORDERS.chosen(request.GET.get("ordering", ""))
    after, before = request.GET.get("after", ""), request.GET.get("before", "")
    page = keyset.page(selectors.nodes_ranked(narrowed.rows), order, after=after, before=before, size=ROWS)
    context = {
        "listing": Listing(page, order, node_filters.ORDERS),
        "marks": node_filters.marks_of(page.rows),
        "filters": narrowed.asked,
        "query": narrowed.query,
        "errors": narrowed.errors,
        "counts": {
            "health": {name: counts[name] for name in selectors.HEALTH},
            "cordoned": counts["cordoned"],
            "total": counts["total"],
            **node_filters.counts(narrowed),
        },
        "cluster_names": selectors.clusters_visible_to(request.user).values_list("name", flat=True),
        "pool": narrowed.pool,
        "is_filtered": narrowed.is_filtered,
        "saved": saved.of_page("nodes", request.user),
    }
    return render(request, "clusters/nodes.html", context, status=422 if narrowed.errors else 200)


@require_GET
@login_required
def node(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(selectors.nodes_whole(request.user), pk=pk)
    tuning: NodeTuning | None = getattr(row, "tuning", None)
    namesake = Node.objects.present().filter(cluster=row.cluster_id, name=row.name).exclude(pk=row.pk).first()
    context = {
        "node": row,
        "tuning": tuning,
        "observed": sorted(tuning.observed.items()) if tuning else [],
        "disks": disks.of_node(tuning.observed) if tuning else [],
        "gpu_pods": selectors.gpu_pods_on(row),
        "is_gone": row.gone_at is not None,
        "replaced_by": namesake if row.gone_at else None,
        "silent_since": tuning.silence(row.cluster) if tuning else None,
        "may_refresh": selectors.cluster_permissions(row.cluster, request.user)["refresh"],
        "panels": sorted(hooks.node_panels(request, row), key=lambda panel: panel.order),
    }
    return render(request, "clusters/node.html", context)


@require_POST
@login_required
def node_refresh(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(selectors.nodes_whole(request.user), pk=pk)
    nodes.refresh(row, by=request.user)
    messages.success(request, f"{row.name} was refreshed.")
    return redirect("clusters:node", pk)
