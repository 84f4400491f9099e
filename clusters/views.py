"""Pages of clusters, nodes and pools. What each template gets:

clusters/list.html
    clusters        visible Clusters, each with node_count, gpu_count, gpu_allocated, not_ready, cordoned and `health`
                    (nodes by healthy | degraded | unknown)
    may_connect

clusters/connect.html           posts to its own address with `intent=test` (only look) or `intent=connect`
    form            ConnectForm: name, environment, budget, kubeconfig, upload, context, server, ca, token, take_over
    verdict         Verdict or None: is_connectable, is_foreign, mark, version, known_as, checks [Check: name,
                    state ok|warn|bad|unknown, text, fix], permissions [Review: permission.{verb, resource, why},
                    allowed]
    apply_command   the kubectl line; the manifest itself is at clusters:manifest

clusters/rotate.html            posts to its own address with the same intents
    cluster, form   CredentialForm
    verdict, apply_command      as above

clusters/cluster.html
    cluster         with the counts and `health` of the list
    why_unknown     since when and why its nodes are unknown; empty while they are not
    equipment       dict of fleet.Equipment, or None; apply_command
    counts          of nodes: healthy, degraded, unknown, cordoned, total, gpus, gpus_allocated
    worst           the first few nodes that need attention
    not_enrolled    nodes without a NodeTuning; cluster.enrolment_error says why if something is wrong
    pools           [PoolRow: pool, text (the selector), count]
    panels          [Panel: template, context]: `{% include panel.template with panel=panel.context %}`
    why_not         {test, refresh, update, rotate_credential, disconnect, create_pool}: empty, or why the button is off
    settings_form   ClusterForm: name, environment, budget, version; posts to clusters:update

clusters/_verdict.html          fragment and answer of clusters:test: verdict, apply_command
clusters/disconnect.html        cluster, leaving (stays, blockers, commands), why_not; posts to its own address
clusters/pool.html              cluster, pool (None for a new one), form PoolForm, preview (Preview or None: count,
                                total, names, warning), why_not_delete; posts to itself with `intent=preview` or
                                `intent=save`; deleting posts to clusters:pool_delete
clusters/nodes.html
    page            a Page of Node with cluster and tuning, worst first
    filters         what the URL asks for: q, cluster (name), pool (id), health, cordoned, gpu_product
    counts          {"health": {degraded, unknown, healthy}, "cordoned": n, "total": n} without the health filter
    cluster_names, pool (Pool or None), is_filtered
clusters/node.html
    node, tuning (or None), observed [(key, value)], gpu_pods, is_gone
    replaced_by     the node that has its name now, or None
    is_silent       the agent's last Lease is too old to be trusted
    may_refresh, panels
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.permissions import ANYWHERE, Role, may
from clusters import connections, nodes, pools, selectors, services, tasks
from clusters.forms import SECRETS, ClusterForm, ConnectForm, CredentialForm, PoolForm, add_errors
from clusters.models import Cluster, Node, NodeTuning, Pool
from clusters.verdicts import APPLY_COMMAND, Verdict
from common import hooks
from common.clock import now
from common.errors import Refusal
from common.requests import UserRequest
from common.yaml import MAX_BYTES

ROWS = 50
WORST = 8


# ── clusters ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_GET
@login_required
def clusters(request: UserRequest) -> HttpResponse:
    rows: list[Any] = list(selectors.clusters_with_counts(request.user))
    for row in rows:
        row.health = selectors.health_of(row)
    context = {"clusters": rows, "may_connect": may(request.user, Role.ADMIN, ANYWHERE)}
    return render(request, "clusters/list.html", context)


@never_cache
@sensitive_post_parameters(*SECRETS)
@require_http_methods(["GET", "POST"])
@login_required
def connect(request: UserRequest) -> HttpResponse:
    """What was typed comes back in the answer to a refused or tested form, secrets included, and is kept nowhere."""
    services.may_try(request.user)
    form, verdict = ConnectForm(*_sent(request)), None
    if request.method == "POST" and form.is_valid():
        try:
            credential = connections.read_credentials(**form.given())
            if request.POST.get("intent") == "connect":
                cluster = services.connect_cluster(credential=credential, by=request.user, **form.wishes())
                messages.success(request, f"{cluster} is connected. Its nodes appear within a minute.")
                return redirect("clusters:cluster", cluster.pk)
            verdict = services.test_connection(credential)
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
            services.may_try(request.user)
            credential = connections.read_credentials(**form.given())
            if request.POST.get("intent") == "connect":
                services.rotate_credential(cluster, credential=credential, by=request.user)
                messages.success(request, f"{cluster} has a new credential.")
                return redirect("clusters:cluster", cluster.pk)
            verdict = services.test_connection(credential)
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
    request: UserRequest, template: str, form: CredentialForm, verdict: Verdict | None, **more: Any
) -> HttpResponse:
    context = {"form": form, "verdict": verdict, "apply_command": APPLY_COMMAND, **more}
    return render(request, template, context, status=422 if form.errors else 200)


@require_GET
@login_required
def cluster(request: UserRequest, pk: UUID) -> HttpResponse:
    found = _cluster(request, pk)
    initial = {name: getattr(found, name) for name in ("name", "environment", "budget", "version")}
    return _cluster_page(request, found, ClusterForm(initial=initial))


def _cluster_page(request: UserRequest, found: Cluster, form: ClusterForm) -> HttpResponse:
    row: Any = found
    row.health = selectors.health_of(found)
    here = selectors.nodes_visible_to(request.user).filter(cluster=found)
    panels = sorted(hooks.cluster_panels(request, found), key=lambda panel: panel.order)
    context = {
        "cluster": found,
        "why_unknown": found.why_unknown,
        "equipment": found.equipment or None,
        "apply_command": APPLY_COMMAND,
        "counts": selectors.counts_of(here),
        "worst": selectors.nodes_worst_first(here)[:WORST],
        "not_enrolled": here.filter(tuning=None).count(),
        "pools": selectors.pools_of(found),
        "panels": panels,
        "why_not": selectors.why_not(found, request.user),
        "settings_form": form,
    }
    return render(request, "clusters/cluster.html", context, status=422 if form.errors else 200)


@require_POST
@login_required
def update(request: UserRequest, pk: UUID) -> HttpResponse:
    found = _cluster(request, pk)
    form = ClusterForm(request.POST)
    if form.is_valid():
        try:
            services.update(found, by=request.user, **form.cleaned_data)
            messages.success(request, "Saved.")
            return redirect("clusters:cluster", pk)
        except Refusal as refusal:
            add_errors(form, refusal)
    return _cluster_page(request, _cluster(request, pk), form)


@require_POST
@login_required
def test(request: UserRequest, pk: UUID) -> HttpResponse:
    verdict = services.recheck(_cluster(request, pk), by=request.user)
    return render(request, "clusters/_verdict.html", {"verdict": verdict, "apply_command": APPLY_COMMAND})


test.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test


@require_POST
@login_required
def refresh(request: UserRequest, pk: UUID) -> HttpResponse:
    found = _cluster(request, pk)
    services.may_refresh(found, request.user)
    tasks.refresh.delay(str(found.pk))
    messages.success(request, f"{found} is being read anew.")
    return redirect("clusters:cluster", pk)


@require_http_methods(["GET", "POST"])
@login_required
def disconnect(request: UserRequest, pk: UUID) -> HttpResponse:
    found = _cluster(request, pk)
    if request.method == "POST":
        name = str(found)
        left = services.disconnect(found, by=request.user)
        messages.success(request, f"{name} is disconnected. What stays behind: {' '.join(left.stays)}")
        return redirect("clusters:clusters")
    context = {
        "cluster": found,
        "leaving": services.farewell(found),
        "why_not": selectors.why_not(found, request.user)["disconnect"],
    }
    return render(request, "clusters/disconnect.html", context)


@require_GET
def manifest(request: UserRequest) -> HttpResponse:
    """What a cluster needs. It holds no secret, and `kubectl apply -f` of this address should just work."""
    answer = HttpResponse(services.manifest(), content_type="application/yaml")
    answer["Content-Disposition"] = 'inline; filename="setpoint.yaml"'
    return answer


def _cluster(request: UserRequest, pk: UUID) -> Cluster:
    return get_object_or_404(selectors.clusters_with_counts(request.user), pk=pk)


# ── pools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_http_methods(["GET", "POST"])
@login_required
def pool_new(request: UserRequest, pk: UUID) -> HttpResponse:
    return _pool_page(request, _cluster(request, pk), None, PoolForm(request.POST or None))


@require_http_methods(["GET", "POST"])
@login_required
def pool(request: UserRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(selectors.pools_visible_to(request.user), pk=pk)
    initial = {"selector": pools.text_of(found)} | {
        name: getattr(found, name) for name in ("name", "description", "version")
    }
    return _pool_page(request, found.cluster, found, PoolForm(request.POST or None, initial=initial))


def _pool_page(request: UserRequest, cluster: Cluster, found: Pool | None, form: PoolForm) -> HttpResponse:
    preview = pools.preview(cluster, found.selector) if found else None
    if form.is_bound and form.is_valid():
        data = dict(form.cleaned_data)
        version = data.pop("version")
        try:
            preview = pools.preview(cluster, data["selector"])
            if request.POST.get("intent") == "save":
                if found:
                    services.update_pool(found, by=request.user, version=version, **data)
                else:
                    services.create_pool(cluster, by=request.user, **data)
                messages.success(request, f"The pool {data['name']} is saved.")
                return redirect("clusters:cluster", cluster.pk)
        except Refusal as refusal:
            add_errors(form, refusal)
    context = {
        "cluster": cluster,
        "pool": found,
        "form": form,
        "preview": preview,
        "why_not_delete": "; ".join(hooks.pool_blockers(found.pk)) if found else "",
    }
    return render(request, "clusters/pool.html", context, status=422 if form.errors else 200)


@require_POST
@login_required
def pool_delete(request: UserRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(selectors.pools_visible_to(request.user), pk=pk)
    services.delete_pool(found, by=request.user)
    messages.success(request, f"The pool {found.name} is deleted.")
    return redirect("clusters:cluster", found.cluster_id)


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_GET
@login_required
def node_list(request: UserRequest) -> HttpResponse:
    asked = {name: request.GET.get(name, "") for name in _FILTERS}
    chosen = (
        get_object_or_404(selectors.pools_visible_to(request.user), pk=asked["pool"]) if _is_id(asked["pool"]) else None
    )
    rows = _filtered(selectors.nodes_visible_to(request.user), asked, chosen)
    counts = selectors.counts_of(rows)
    if asked["health"] in selectors.HEALTH:
        rows = selectors.in_health(rows, asked["health"])
    context = {
        "page": Paginator(selectors.nodes_worst_first(rows), ROWS).get_page(request.GET.get("page")),
        "filters": asked,
        "counts": {
            "health": {name: counts[name] for name in selectors.HEALTH},
            "cordoned": counts["cordoned"],
            "total": counts["total"],
        },
        "cluster_names": selectors.clusters_visible_to(request.user).values_list("name", flat=True),
        "pool": chosen,
        "is_filtered": any(asked.values()),
    }
    return render(request, "clusters/nodes.html", context)


_FILTERS = ("q", "cluster", "pool", "health", "cordoned", "gpu_product")


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 16


def _filtered(rows: QuerySet[Node], asked: dict[str, str], chosen: Pool | None) -> QuerySet[Node]:
    """All filters but health, whose chips count what the others leave."""
    if asked["q"]:
        rows = rows.filter(name__icontains=asked["q"])
    if asked["cluster"]:
        rows = rows.filter(cluster__name=asked["cluster"])
    if asked["pool"]:
        rows = nodes.in_pool(rows, chosen)
    if asked["cordoned"]:
        rows = rows.filter(is_cordoned=asked["cordoned"] == "yes")
    if asked["gpu_product"]:
        rows = rows.filter(gpu_product=asked["gpu_product"])
    return rows


@require_GET
@login_required
def node(request: UserRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(selectors.nodes_whole(request.user), pk=pk)
    tuning = NodeTuning.objects.filter(node=found).first()
    namesake = Node.objects.present().filter(cluster=found.cluster_id, name=found.name).exclude(pk=found.pk).first()
    silent_before = now() - timedelta(seconds=settings.SETPOINT_AGENT_SILENT_SECONDS)
    context = {
        "node": found,
        "tuning": tuning,
        "observed": sorted(tuning.observed.items()) if tuning else [],
        "gpu_pods": selectors.gpu_pods_on(found),
        "is_gone": found.gone_at is not None,
        "replaced_by": namesake if found.gone_at else None,
        "is_silent": not (tuning and tuning.lease_renewed_at and tuning.lease_renewed_at > silent_before),
        "may_refresh": selectors.cluster_permissions(found.cluster, request.user)["refresh"],
        "panels": sorted(hooks.node_panels(request, found), key=lambda panel: panel.order),
    }
    return render(request, "clusters/node.html", context)


@require_POST
@login_required
def node_refresh(request: UserRequest, pk: int) -> HttpResponse:
    nodes.refresh(get_object_or_404(selectors.nodes_whole(request.user), pk=pk), by=request.user)
    return redirect("clusters:node", pk)
