"""States of components, for pages and the API alike, never merged with the separate axis of node states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import Case, CharField, F, Q, QuerySet, Value, When

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import STALE_AFTER, Cluster
from common.clock import now
from compliance.checks.components import EVERY
from compliance.models import ComponentChange, ComponentStanding

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    from compliance.reports.selectors import Shown

    ShownComponent = WithAnnotations[ComponentStanding, Shown]
else:
    ShownComponent = ComponentStanding

State = ComponentStanding.State
STALE = EVERY * 3
"""After so long without a look, the state counts as unknown."""
MOST = 200
"""Of one cluster; there are some ten in the catalog."""
RANK: dict[str, int] = {
    State.MISSING: 0,
    State.FOREIGN: 1,
    State.DRIFTED: 2,
    State.NOT_READY: 3,
    State.UNKNOWN: 4,
    State.PENDING: 5,
    State.COMPLIANT: 6,
}


def current() -> Q:
    """Return the condition that a standing is current: its cluster is observed and it was checked lately."""
    return Q(
        cluster__reach=Cluster.Reach.REACHABLE,
        cluster__observed_at__gt=now() - STALE_AFTER,
        checked_at__gt=now() - STALE,
    )


def components(user: User) -> QuerySet[ShownComponent]:
    """Return components with `shown`: unknown where it cannot be known now, regardless of the last check."""
    shown = Case(When(current(), then=F("state")), default=Value(State.UNKNOWN.value), output_field=CharField())
    rows = ComponentStanding.objects.annotate(shown=shown).select_related("cluster", "pool", "revision__profile")
    return restrict(rows.defer("revision__content", "revision__source"), user)


def of_cluster(user: User, cluster: Cluster) -> list[ShownComponent]:
    """Those of one cluster, read once for all parts of a page: kept on the row as it was read."""
    row: Any = cluster
    if not hasattr(row, "component_standings"):
        row.component_standings = list(components(user).filter(cluster=cluster)[:MOST])
    standings: list[ShownComponent] = row.component_standings
    return standings


def wrong(user: User, clusters: Sequence[Cluster], most: int = 100) -> list[ShownComponent]:
    """Return what needs attention in these clusters, the worst first.

    One query; for one cluster, that of `of_cluster`.
    """
    if len(clusters) == 1:
        wrong_here = [row for row in of_cluster(user, clusters[0]) if row.shown in ComponentStanding.WRONG]
        return worst_first(sorted(wrong_here, key=lambda row: (row.since, row.pk))[:most])
    rows = components(user).filter(cluster__in=clusters, state__in=ComponentStanding.WRONG)
    return worst_first(rows.filter(current()).order_by("since", "pk")[:most])


def worst_first(rows: Iterable[ShownComponent]) -> list[ShownComponent]:
    return sorted(rows, key=lambda row: (RANK.get(row.shown, 0), row.name, row.cluster.name))


def why(row: ShownComponent) -> str:
    """One sentence for what is shown; empty where all is well."""
    if row.shown != State.UNKNOWN or row.state == State.UNKNOWN:
        return row.sentence or ("Not checked yet." if row.checked_at is None else "")
    if not row.cluster.is_current:
        return f"{row.cluster.why_unknown or 'Nothing is heard of its cluster.'} Before: {row.get_state_display()}."
    minutes = int(STALE / timedelta(minutes=1))
    return f"Not checked for {minutes} minutes: is a worker running? Before: {row.get_state_display()}."


def title(row: ComponentStanding) -> str:
    """Return the display name."""
    return "Policy objects" if row.kind == ComponentStanding.Kind.POLICIES else row.name


def counted(rows: Iterable[Any]) -> dict[str, int]:
    counts = Counter(row.shown for row in rows)
    return {str(state): counts[state] for state in RANK if counts[state]}


def changes(user: User) -> QuerySet[ComponentChange]:
    return restrict(ComponentChange.objects.select_related("cluster"), user)
