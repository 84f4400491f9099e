"""What this room adds to the pages of clusters and nodes, through `common.hooks`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from django.db.models import Exists, OuterRef
from django.http import HttpRequest

from clusters.models import Cluster, Node
from common.hooks import Panel
from compliance.models import Assignment, NodeExpectation, SettingState

State = SettingState.State
WORST_FIRST = (State.DRIFTED, State.UNKNOWN, State.PENDING, State.COMPLIANT)


def of_node(request: HttpRequest, node: Node) -> Iterable[Panel]:
    """Each setting's desired, written, effective and original value. Two queries."""
    expectation = (
        NodeExpectation.objects.filter(node=node).select_related("revision__profile", "previous__profile").first()
    )
    rank = {state: place for place, state in enumerate(WORST_FIRST)}
    rows = sorted(SettingState.objects.filter(node=node), key=lambda row: (rank[State(row.state)], row.key))
    yield Panel(
        "compliance/_node_settings.html",
        {
            "revision": expectation.revision if expectation else None,
            "since": expectation.since if expectation else None,
            "settings": rows,
            "counts": Counter(row.state for row in rows),
            "is_current": node.cluster.is_current,
        },
        order=10,
    )


def of_cluster(request: HttpRequest, cluster: Cluster) -> Iterable[Panel]:
    """Nodes by compliance, and each pool's target. Two queries."""
    assignments = Assignment.objects.filter(pool__cluster=cluster).select_related("pool", "revision__profile", "set_by")
    counts = nodes_by_compliance(cluster)
    yield Panel(
        "compliance/_cluster_compliance.html",
        {
            "counts": counts,
            "assigned": sum(counts.values()) - counts.get("unassigned", 0),
            "assignments": assignments.order_by("pool__name"),
        },
        order=20,
    )


def nodes_by_compliance(cluster: Cluster) -> dict[str, int]:
    """Present nodes by the worst state of their settings, in one query. What is not current is unknown."""
    states = SettingState.objects.filter(node=OuterRef("pk"))
    flags = {f"is_{state}": Exists(states.filter(state=state)) for state in WORST_FIRST[:-1]}
    rows = Node.objects.present().filter(cluster=cluster).annotate(**flags)
    out: Counter[str] = Counter()
    for expected, *found in rows.values_list("expectation__revision", *flags):
        if expected is None:
            out["unassigned"] += 1
        elif not cluster.is_current:
            out[State.UNKNOWN] += 1
        else:
            worst = next((s for s, is_so in zip(WORST_FIRST, found, strict=False) if is_so), State.COMPLIANT)
            out[worst] += 1
    return {str(state): count for state, count in out.items()}
