"""/healthz: this process answers. /readyz: it can do its work, and so can the others.

A web process that cannot reach the database is not ready (503). A broker that is away, which slows rollouts and stops
none, and a silent sealer, beat or watch are reported too ("degraded", 200): taking the pages away would not help then.
`manage.py doctor` (config.doctor) asks the same.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from audit.models import Chain
from clusters.models import Cluster
from common import hooks
from common.clock import now
from config import sending
from config.celery import app
from jobs.engine import sweeping

SILENT = timedelta(seconds=60)
"""Beat, sealer and watch show themselves every few seconds; after a minute an administrator should look."""


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    checks = {"database": database()}
    if checks["database"] == "ok":
        checks |= {"broker": broker(), "sealer": sealer(), "watch": watch()}
        if hooks.unconfirmed_restores():
            checks["restore"] = "not confirmed: an administrator lifts its freeze"
    is_ready = checks["database"] == "ok"
    is_whole = all(verdict == "ok" for verdict in checks.values())
    word = "ready" if is_whole else "degraded" if is_ready else "not ready"
    return JsonResponse({"status": word, "checks": checks}, status=200 if is_ready else 503)


def database() -> str:
    """Return the state of this process's connection to the database."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return "unreachable"
    return "ok"


def broker() -> str:
    """Return whether messages arrive over the broker; while they do not, workers find what is due by themselves."""
    if settings.CELERY_BROKER_URL.startswith("memory:"):
        return "ok"
    in_its_place = sweeping.without_broker()
    since = _since(in_its_place.since) if in_its_place else ""
    if not sending.answers(app):
        return f"away{since}: slower"
    return f"brings no sweep{since}: slower" if in_its_place else "ok"


def sealer() -> str:
    """Return the state of the sealer, and so of the beat: the sealer runs every second, and notes it every few."""
    seen, broken = Chain.objects.values_list("checked_at", "broken").first() or (None, "")
    if broken:
        return f"seals nothing: {broken}"
    return "ok" if seen and seen > now() - SILENT else f"silent{_since(seen)}"


def watch() -> str:
    """Return the state of the watch: whether each cluster has a process that watches it."""
    late = now() - SILENT
    is_unwatched = Q(watch_lease_until=None) | Q(watch_lease_until__lt=late)
    unwatched = Cluster.objects.filter(is_unwatched, created_at__lt=late).count()
    return "ok" if not unwatched else f"{unwatched} clusters are not watched"


def _since(instant: datetime | None) -> str:
    return f" since {instant:%Y-%m-%d %H:%M:%S} UTC" if instant else ""
