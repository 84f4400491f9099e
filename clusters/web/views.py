"""Pages of clusters. What each template gets:

clusters/list.html
    listing         a page of them; reaches, environments: what chips and the picker offer
    saved, query    accounts.filters.Shelf of this page, and what it is narrowed by now
    clusters        visible Clusters of this page, each with node_count, gpu_count, gpu_allocated, not_ready, cordoned
                    and `health` (nodes by healthy | degraded | unknown)
    may_connect

clusters/connect.html           posts to its own address with `intent=test` (only look) or `intent=connect`
    form            ConnectForm: name, environment, budget, kubeconfig, upload, context, server, ca, token, take_over
    verdict         PreflightResult or None: is_connectable, is_foreign, mark, version, known_as, checks [Check: name,
                    state ok|warn|bad|unknown, text, fix], permissions [Review: permission.{verb, resource, why},
                    allowed]
    tested          a test went before: connecting is offered
    apply_command   the kubectl line; the manifest itself is at clusters:manifest

clusters/rotate.html            posts to its own address with the same intents
    cluster, form   CredentialForm
    verdict, apply_command      as above

clusters/cluster.html
    cluster         with the counts and `health` of the list
    why_unknown     since when and why its nodes are unknown; empty while they are not
    equipment       dict of fleet.Equipment, or None; apply_command
    counts          of nodes: healthy, degraded, unknown, cordoned, total, gpus, gpus_allocated
    not_enrolled    nodes without a NodeTuning; cluster.enrolment_error says why if something is wrong
    pools           [PoolRow: pool, text (the selector), count, owner (a team's name)] of the owner chosen, if any is
    pool_owners, pool_owner    names of the owners of its pools, and the one chosen
    numbers         what rooms above had counted, for their panels
    compliance      nodes by compliance; assigned: how many have a target; trend, totals: for jobs/_trend.html
    tiles, leads, panels, late_panels   [Panel]: `{% include panel.template with panel=panel.context %}`, by their place
    endings_due     credentials and certificates that a person should see to before they end (connection.expiry)
    why_not         {test, refresh, update, rotate_credential, disconnect, create_pool}: empty, or why the button is off
    settings_form   ClusterForm: name, environment, budget, version; posts to clusters:update

clusters/_worst.html            fragment and answer of clusters:worst: cluster, worst (the first few nodes that need
                                attention), marks (their values on the other axes)
clusters/_verdict.html          fragment and answer of clusters:test: verdict, apply_command
clusters/disconnect.html        cluster, leaving (stays, blockers, commands), why_not; posts to its own address
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts import filters
from accounts.people.pending import Proposed
from accounts.permissions import ANYWHERE, Role, may
from clusters import tasks
from clusters.connection import expiry, registry
from clusters.connection.preflight import APPLY_COMMAND, PreflightResult
from clusters.inventory import daily_counts
from clusters.models import Cluster
from clusters.reports import selectors
from clusters.reports.node_filters import marks_of
from clusters.services import lifecycle
from clusters.web.cluster_filters import CLUSTER_ORDERS, ClusterFilter, sortable_clusters
from clusters.web.forms import SECRETS, ClusterForm, ConnectForm, CredentialForm, add_errors
from common import hooks, listing
from common.errors import Refusal
from common.requests import UserRequest
from common.yaml import MAX_BYTES

WORST = 8
LATE = 80
"""Panels of this order and later stand below nodes and pools."""


# ── clusters ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_GET
@login_required
def clusters(request: UserRequest) -> HttpResponse:
    rows = sortable_clusters(selectors.clusters_with_counts(request.user))
    cluster_list: listing.Listing[Any] = listing.read(request, rows, ClusterFilter, CLUSTER_ORDERS, chips="reach")
    for row in cluster_list.page.rows:
        row.health = selectors.health_of(row)
    context = {
        "listing": cluster_list,
        "clusters": cluster_list.page.rows,
        "reaches": Cluster.Reach.choices,
        "environments": Cluster.Environment.values,
        "may_connect": may(request.user, Role.ADMIN, ANYWHERE),
        "saved": filters.of_page("clusters", request.user),
        "query": cluster_list.query,
    }
    return render(request, "clusters/list.html", context)


@never_cache
@sensitive_post_parameters(*SECRETS)
@require_http_methods(["GET", "POST"])
@login_required
def connect(request: UserRequest) -> HttpResponse:
    """Connect a cluster. The answer to a refused or tested form repeats what was typed, secrets included; it is not
    stored."""
    lifecycle.may_try(request.user)
    form, verdict = ConnectForm(*_sent(request)), None
    if request.method == "POST" and form.is_valid():
        try:
            credential = registry.read_credentials(**form.given())
            if request.POST.get("intent") == "connect":
                cluster = lifecycle.connect_cluster(credential=credential, by=request.user, **form.wishes())
                messages.success(
                    request, f"{cluster} is connected. Its nodes appear within a minute; then create a pool."
                )
                return redirect("clusters:cluster", cluster.pk)
            verdict = lifecycle.test_connection(credential, request.user)
            lifecycle.validated(by=request.user, **form.is_to_be())
        except Refusal as refusal:
            form.refuse(refusal)
    return _judged(request, "clusters/connect.html", form, verdict)


@never_cache
@sensitive_post_parameters(*SECRETS)
@require_http_methods(["GET", "POST"])
@login_required
def rotate(request: UserRequest, pk: UUID) -> HttpResponse:
    cluster = _cluster(request, pk)
    form, verdict = CredentialForm(*_sent(request)), None
    if request.method == "POST" and form.is_valid():
        try:
            lifecycle.may_try(request.user)
            credential = registry.read_credentials(**form.given())
            if request.POST.get("intent") == "connect":
                lifecycle.rotate_credential(cluster, credential=credential, by=request.user)
                messages.success(request, f"{cluster} has a new credential.")
                return redirect("clusters:cluster", cluster.pk)
            verdict = lifecycle.test_connection(credential, request.user)
        except Refusal as refusal:
            form.refuse(refusal)
    return _judged(request, "clusters/rotate.html", form, verdict, cluster=cluster)


def _sent(request: UserRequest) -> tuple[Any, Any]:
    """Data for a bound form. An uploaded file's text moves into the field: a second click need not upload it again."""
    if request.method != "POST":
        return None, None
    data = request.POST.copy()
    upload = request.FILES.get("upload")
    if upload and not data.get("kubeconfig") and (upload.size or 0) <= MAX_BYTES:
        try:
            data["kubeconfig"] = upload.read().decode()
            return data, None
        except UnicodeDecodeError:
            upload.seek(0)
    return data, request.FILES


def _judged(
    request: UserRequest, template: str, form: CredentialForm, verdict: PreflightResult | None, **more: Any
) -> HttpResponse:
    tested = verdict is not None or request.POST.get("intent") == "connect"
    context = {"form": form, "verdict": verdict, "tested": tested, "apply_command": APPLY_COMMAND, **more}
    return render(request, template, context, status=422 if form.errors else 200)


@require_GET
@login_required
def cluster(request: UserRequest, pk: UUID) -> HttpResponse:
    row = _cluster(request, pk)
    initial = {name: getattr(row, name) for name in ("name", "environment", "budget", "version")}
    return _cluster_page(request, row, ClusterForm(initial=initial))


def _cluster_page(request: UserRequest, cluster_row: Cluster, form: ClusterForm) -> HttpResponse:
    row: Any = cluster_row
    row.health = selectors.health_of(cluster_row)
    pools, numbers = selectors.pools_of(cluster_row)
    owner = request.GET.get("owner", "")
    panels = sorted(hooks.cluster_panels(request, cluster_row), key=lambda panel: panel.order)
    axes = {axis: values for _, axis, values in hooks.cluster_counts([cluster_row])}
    compliance = axes.get("compliance", {})
    assigned = sum(compliance.values()) - compliance.get("unassigned", 0)
    context = {
        "cluster": cluster_row,
        "why_unknown": cluster_row.why_unknown,
        "endings_due": expiry.due(cluster_row, getattr(cluster_row, "helm_credential", None)),
        "equipment": cluster_row.equipment or None,
        "apply_command": APPLY_COMMAND,
        "counts": selectors.numbers_of(cluster_row),
        "not_enrolled": row.unenrolled,
        "pools": [each for each in pools if not owner or each.owner == owner],
        "pool_owners": sorted({each.owner for each in pools} - {""}),
        "pool_owner": owner,
        "numbers": numbers,
        "compliance": compliance,
        "assigned": assigned,
        "trend": daily_counts.trend([cluster_row.pk], "compliance", "compliant"),
        "totals": {"compliance": compliance, "known": assigned - compliance.get("unknown", 0)},
        "tiles": [panel for panel in panels if panel.place == "tile"],
        "leads": [panel for panel in panels if panel.place == "lead"],
        "panels": [panel for panel in panels if not panel.place and panel.order < LATE],
        "late_panels": [panel for panel in panels if not panel.place and panel.order >= LATE],
        "why_not": selectors.why_not(cluster_row, request.user),
        "settings_form": form,
    }
    return render(request, "clusters/cluster.html", context, status=422 if form.errors else 200)


@require_GET
@login_required
def worst(request: UserRequest, pk: UUID) -> HttpResponse:
    row = get_object_or_404(selectors.clusters_visible_to(request.user), pk=pk)
    rows = selectors.worst_of(selectors.nodes_visible_to(request.user).filter(cluster=row), WORST)
    return render(request, "clusters/_worst.html", {"cluster": row, "worst": rows, "marks": marks_of(rows)})


@require_POST
@login_required
def update(request: UserRequest, pk: UUID) -> HttpResponse:
    row = _cluster(request, pk)
    form = ClusterForm(request.POST)
    if form.is_valid():
        try:
            saved = lifecycle.update(row, by=request.user, **form.cleaned_data)
            waits = f"Proposed: {row} moves when another administrator consents."
            messages.success(request, waits if isinstance(saved, Proposed) else f"{saved} is saved.")
            return redirect("clusters:cluster", pk)
        except Refusal as refusal:
            add_errors(form, refusal)
    return _cluster_page(request, _cluster(request, pk), form)


@require_POST
@login_required
def test(request: UserRequest, pk: UUID) -> HttpResponse:
    verdict = lifecycle.recheck(_cluster(request, pk), by=request.user)
    return render(request, "clusters/_verdict.html", {"verdict": verdict, "apply_command": APPLY_COMMAND})


test.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test


@require_POST
@login_required
def refresh(request: UserRequest, pk: UUID) -> HttpResponse:
    row = _cluster(request, pk)
    lifecycle.may_refresh(row, request.user)
    tasks.refresh.delay(str(row.pk))
    messages.success(request, f"{row} is being refreshed.")
    return redirect("clusters:cluster", pk)


@require_http_methods(["GET", "POST"])
@login_required
def disconnect(request: UserRequest, pk: UUID) -> HttpResponse:
    row = _cluster(request, pk)
    if request.method == "POST":
        name = str(row)
        left = lifecycle.disconnect(row, by=request.user)
        messages.success(request, f"{name} is disconnected. What stays behind: {' '.join(left.stays)}")
        return redirect("clusters:clusters")
    context = {
        "cluster": row,
        "leaving": lifecycle.disconnect_preview(row),
        "why_not": selectors.why_not(row, request.user)["disconnect"],
    }
    return render(request, "clusters/disconnect.html", context)


@require_GET
def manifest(request: UserRequest) -> HttpResponse:
    """Return the manifest that a cluster needs. It holds no secret, and `kubectl apply -f` of this address works."""
    answer = HttpResponse(lifecycle.manifest(), content_type="application/yaml")
    answer["Content-Disposition"] = 'inline; filename="setpoint.yaml"'
    return answer


def _cluster(request: UserRequest, pk: UUID) -> Cluster:
    rows = selectors.clusters_with_counts(request.user).select_related("helm_credential")
    return get_object_or_404(rows.defer("helm_credential__sealed"), pk=pk)
