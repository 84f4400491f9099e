"""Pages of alerts. Contexts:

notices/alerts.html     listing (of Alert), statuses, severities, rules, clusters, namespaces, why_blind
notices/alert.html      alert, members, member_count, rule (EffectiveRule or None), may_act, earlier (Alerts of the same
                        subject)
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_POST

from accounts.permissions import Role, may, restrict
from clusters.models import Cluster
from common import listing
from common.alerting import AlertRule
from common.clock import now
from common.errors import Refusal
from common.requests import UserRequest
from notices import members
from notices.alerts import alert_actions, rulebook
from notices.models import SEVERITIES, Alert, Evaluation
from notices.reports import selectors, wording

EARLIER = 10
Why = tuple[list[str], str]
HOURS = {"1": 1, "8": 8, "24": 24, "168": 168}
"""What the page offers to silence for."""


@require_GET
@login_required
def alerts(request: UserRequest) -> HttpResponse:
    rows = selectors.alerts(request.user)
    alert_list = listing.read(request, rows, selectors.AlertFilter, selectors.ALERT_ORDERS, chips="status")
    clusters = list(restrict(Cluster.objects.order_by("name"), request.user, "").values_list("pk", "name"))
    offered = rulebook.offered()
    context = {
        "listing": alert_list,
        "statuses": selectors.STATUSES,
        "severities": SEVERITIES,
        "rules": [(rule.name, rule.title) for rule in offered.values()],
        "titles": {rule.name: rule.title for rule in offered.values()},
        "clusters": [name for _, name in clusters],
        "counts": selectors.counts(rows),
        "blind": _blind(dict(clusters), offered),
    }
    return render(request, "notices/alerts.html", context)


def _blind(clusters: dict[UUID, str], offered: dict[str, AlertRule]) -> list[tuple[str, UUID, list[Why]]]:
    """(cluster, id, [(titles of rules, why)]) where rules can say nothing now."""
    blind = []
    for row in Evaluation.objects.filter(cluster__in=clusters).exclude(blind={}).order_by("cluster__name"):
        reasons: dict[str, list[str]] = {}
        for name, why in sorted(row.blind.items()):
            reasons.setdefault(why, []).append(offered[name].title if name in offered else name)
        blind.append((clusters[row.pk], row.pk, [(titles, why) for why, titles in reasons.items()]))
    return blind


@require_GET
@login_required
def alert(request: UserRequest, pk: UUID) -> HttpResponse:
    return _page(request, get_object_or_404(selectors.alerts(request.user), pk=pk))


def _page(request: UserRequest, row: Alert, refusal: Refusal | None = None) -> HttpResponse:
    earlier = Alert.objects.shown().filter(
        cluster=row.cluster, rule=row.rule, subject_kind=row.subject_kind, subject=row.subject
    )
    holding = next(
        (effective for effective in rulebook.of_cluster(row.cluster_id) if effective.rule.name == row.rule), None
    )
    context = {
        "alert": row,
        "members": list(members.shown(row.members)),
        "member_count": len(members.present(row.members)),
        "holding": holding,
        "may_act": (may_act := may(request.user, Role.OPERATOR, row.cluster.scopes)),
        "acknowledging": wording.acknowledging(row, may_act=may_act),
        "earlier": list(earlier.exclude(pk=row.pk).order_by("-opened_at", "pk")[:EARLIER]),
        "refusal": refusal,
        "note": request.POST.get("note", ""),
    }
    return render(request, "notices/alert.html", context, status=refusal.status if refusal else 200)


@require_POST
@login_required
def alert_act(request: UserRequest, pk: UUID, verb: str) -> HttpResponse:
    row = get_object_or_404(selectors.alerts(request.user), pk=pk)
    note, sent = request.POST.get("note", ""), request.POST.get("version", "")
    version = int(sent) if sent.isascii() and sent.isdecimal() else None
    try:
        if verb == "acknowledge":
            alert_actions.acknowledge(row, by=request.user, note=note, version=version)
            outcome = "Acknowledged: it no longer counts as unacknowledged."
        elif verb == "silence":
            hours = HOURS.get(request.POST.get("hours", ""), 0)
            alert_actions.silence(
                row, by=request.user, until=now() + timedelta(hours=hours), note=note, version=version
            )
            outcome = f"Silenced: nothing is sent about it for {hours} hour{'' if hours == 1 else 's'}."
        else:
            alert_actions.unsilence(row, by=request.user, version=version)
            outcome = "The silence is over."
    except Refusal as refusal:
        row.refresh_from_db()
        return _page(request, row, refusal)
    messages.success(request, outcome)
    return redirect("notices:alert", row.pk)
