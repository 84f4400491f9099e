"""Component data for pages and timelines, each a fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from django.http import Http404
from django.urls import reverse
from django.utils.dateparse import parse_datetime

from accounts.models import User
from clusters.models import Cluster
from common import hooks
from common.look import appearance
from common.timeline import DRIFT, Entry, Subject, place
from compliance.checks.components import EVERY
from compliance.models import Assignment, ComponentChange, ComponentStanding
from compliance.reports import component_selectors
from components.catalog import presentation
from components.catalog.catalog import Unknown, get

SHOWN = 200
CHANGES = 20
SOURCE = "component"
_NAMED = ((ComponentStanding.Kind.COMPONENT, "components"), (ComponentStanding.Kind.POLICIES, "policy objects"))


def of_cluster(user: User, cluster: Cluster) -> dict[str, Any]:
    """Its components and policy objects, the worst first. One query."""
    rows = component_selectors.of_cluster(user, cluster)
    kinds = {row.kind for row in rows}
    named = [word for kind, word in _NAMED if kind in kinds]
    title = " and ".join(named).capitalize()
    return {"cluster": cluster, "title": title, "rows": _rows(rows), "counts": component_selectors.counted(rows)}


def everywhere(user: User, name: str) -> dict[str, Any]:
    """One component in every cluster that wants it. One query."""
    rows = component_selectors.components(user).filter(kind=ComponentStanding.Kind.COMPONENT, name=name)[:SHOWN]
    return {"cluster": None, "rows": _rows(rows), "counts": component_selectors.counted(rows)}


def _rows(rows: Iterable[component_selectors.ShownComponent]) -> list[dict[str, Any]]:
    return [
        {"row": row, "title": component_selectors.title(row), "why": component_selectors.why(row)}
        for row in component_selectors.worst_first(rows)
    ]


def component_page(user: User, cluster_id: UUID, name: str) -> dict[str, Any]:
    """Raises Http404."""
    row = component_selectors.components(user).filter(cluster=cluster_id, name=name).first()
    if row is None:
        raise Http404
    is_component = row.kind == ComponentStanding.Kind.COMPONENT
    assignment = Assignment.objects.filter(pool=row.pool_id).first() if row.pool_id else None
    work = hooks.work_of_pools([row.pool_id]) if row.pool_id else []
    brought = hooks.rollouts_named([assignment.rollout_id]) if assignment and assignment.rollout_id else []
    changes = component_selectors.changes(user).filter(cluster=cluster_id, name=name)[:CHANGES]
    return {
        "row": row,
        "title": component_selectors.title(row),
        "why": component_selectors.why(row),
        "is_component": is_component,
        "is_known": row.shown != ComponentStanding.State.UNKNOWN,
        "differences": [difference | {"at": parse_datetime(difference["at"] or "")} for difference in row.differences],
        "history": [entry | {"at": parse_datetime(entry["at"] or "")} for entry in row.history],
        "more": max(0, row.total - len(row.differences)),
        "readiness": _readiness(row) if is_component else [],
        "changes": list(changes),
        "live": next((ref for ref in work if ref.kind == "rollout"), None),
        "plan": next((ref for ref in work if ref.kind == "plan"), None),
        "brought": brought[0] if brought else None,
        "minutes": int(EVERY.total_seconds() // 60),
        "needs_repair": row.shown in ComponentStanding.WRONG or row.state == ComponentStanding.State.PENDING,
    }


def _readiness(row: ComponentStanding) -> list[Any]:
    try:
        return list(presentation.readiness(get(row.name)))
    except Unknown:  # it left the catalog, and is assigned still
        return []


# ── timelines ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def timeline(subject: Subject) -> Iterable[Entry]:
    """Yield a cluster's component changes that rollouts do not report themselves."""
    if subject.kind != "cluster" or not subject.wants(DRIFT):
        return ()
    quiet = (ComponentStanding.State.PENDING, ComponentStanding.State.UNKNOWN)
    rows = ComponentChange.objects.filter(cluster=subject.row).exclude(state__in=quiet)
    return _entries(subject.rows(rows, SOURCE))


def _entries(rows: Iterable[ComponentChange]) -> Iterator[Entry]:
    for row in rows:
        seen = appearance("component", row.state)
        words = seen.word[:1].lower() + seen.word[1:]
        yield Entry(
            place(row.at, SOURCE, row.pk),
            DRIFT,
            f"{row.name} {'is as approved' if row.state == ComponentStanding.State.COMPLIANT else words}",
            seen.icon,
            seen.css,
            url=reverse("compliance:component", args=[row.cluster_id, row.name]),
            detail=row.sentence,
        )
