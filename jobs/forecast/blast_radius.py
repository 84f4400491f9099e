"""Blast radius of a plan's components and policy objects, put together with what is done to its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import ceil
from typing import Any

from clusters.models import Cluster, GpuPod, Node
from components.plans.hits import Blast, Hit
from jobs.diffs import cluster_scope
from jobs.diffs.changes import Disruption, most_disruptive
from jobs.forecast import schedule
from jobs.forecast.findings import PlanFinding
from jobs.forecast.schedule import SECONDS_EACH, Candidate
from jobs.models import PlanComponent


def blast_columns(blast: Blast | None) -> dict[str, Any]:
    """Return the fields of PlanComponent that store the blast radius beside `prepared`."""
    if blast is None:
        return {}
    return {"worst_class": blast.worst, "hit": list(blast.nodes), "places": blast.places}


def columns_agree(row: PlanComponent, blast: Blast | None) -> bool:
    """Return whether the columns still say what the approved content does (law 2)."""
    kept = {"worst_class": row.worst_class, "hit": row.hit, "places": row.places}
    return kept == (blast_columns(blast) or {"worst_class": "", "hit": [], "places": 0})


def worst_of(rows: Iterable[PlanComponent]) -> Disruption:
    return most_disruptive(row.worst_class for row in rows if row.worst_class)


def seconds_of(row: PlanComponent) -> float:
    """Return the seconds that the nodes hit take, one after another, beyond helm's own run."""
    blast = cluster_scope.read_prepared(row).blast
    if blast is None:
        return 0.0
    slow = [hit for hit in blast.hits if hit.count and hit.at_once and Disruption(hit.worst).takes_slot]
    return max((ceil(hit.count / hit.at_once) * SECONDS_EACH[Disruption(hit.worst)] for hit in slow), default=0.0)


def over_budget_findings(rows: Iterable[PlanComponent], budget: int) -> list[PlanFinding]:
    """Operators that may take more nodes out at once than the budget has: they would not ask Setpoint (law 1)."""
    out = []
    for row in rows:
        if row.places > budget:
            where = ", ".join(dict.fromkeys(hit.limit for hit in _reserving(row))) or "its operator's settings"
            title = f"{row.component} may take {row.places} nodes out at once, and the budget is {budget}"
            detail = f"It takes nodes out by itself and knows no budget. Lower {where}, or raise the budget."
            out.append(PlanFinding("block", "operator-budget", title, detail, list(row.hit)))
        for hit in _rolling(row, budget):
            title = f"{hit.what} restarts on {hit.at_once} nodes at once, and the budget is {budget}"
            detail = (
                f"{hit.why} Kubernetes restarts its pods by itself and knows no budget. Lower {hit.limit} in the "
                f"values of {row.component}, or raise the budget."
            )
            out.append(PlanFinding("block", "operator-budget", title, detail, list(hit.nodes)))
    return out


def never_begins_reason(row: PlanComponent, budget: int) -> str:
    """Explain, in a sentence, why the component cannot begin even if the whole budget is free; empty where it can."""
    if row.places > budget:
        return f"{row.component} may take {row.places} nodes out at once by itself, and the budget is {budget}."
    for hit in _rolling(row, budget):
        return f"{hit.what} restarts on {hit.at_once} nodes at once by itself, and the budget is {budget}."
    return ""


def _rolling(row: PlanComponent, budget: int) -> list[Hit]:
    """DaemonSets of nodes' network that restart on more nodes at once than the budget has places."""
    if not row.worst_class or not Disruption(row.worst_class).takes_slot:
        return []
    blast = cluster_scope.read_prepared(row).blast
    return [hit for hit in blast.rolling if hit.at_once > budget] if blast else []


def seconds_at_work(row: PlanComponent) -> float:
    """Return the seconds that an operator may need for all of its nodes, by the columns alone: twice the forecast."""
    if not row.places:
        return 0.0
    return 2 * ceil(len(row.hit) / row.places) * SECONDS_EACH[Disruption(row.worst_class)]


def _reserving(row: PlanComponent) -> list[Any]:
    blast = cluster_scope.read_prepared(row).blast
    return [hit for hit in blast.hits if hit.reserves and hit.at_once == row.places] if blast else []


def add_to_summary(
    summary: dict[str, Any],
    rows: Sequence[PlanComponent],
    candidates: Sequence[Candidate],
    cluster: Cluster,
    at: datetime,
) -> dict[str, Any]:
    """The summary of a plan with what its components and policy objects do besides. Node settings and components use
    the same budget, so what is out at once is the larger of the two, never the sum."""
    blasts = [blast for row in rows if (blast := cluster_scope.read_prepared(row).blast)]
    if not any(blast.hits for blast in blasts):
        return summary
    hit = sorted({name for blast in blasts for name in blast.nodes})
    ended = frozenset(name for blast in blasts for name in blast.interrupted)
    draining = [
        hit_of_blast
        for blast in blasts
        for hit_of_blast in blast.hits
        if Disruption(hit_of_blast.worst).rank >= Disruption.DRAIN.rank
    ]
    # Of a node that both reach, everything counts: the plan's own drain may leave pods that tolerate its taint.
    both = [c for c in candidates if c.worst.drains and c.name not in ended] + _pods(cluster, ended)
    gpus = dict(Node.objects.present().filter(cluster=cluster, name__in=hit).values_list("name", "gpu_count"))
    lost = sum(
        gpus.get(name, 0) * SECONDS_EACH[Disruption(first_hit.worst)]
        for blast in blasts
        for first_hit in blast.hits[:1]
        for name in first_hit.nodes
    )
    return summary | {
        "nodes_hit": len(hit),
        "gpus_hit": sum(gpus.values()),
        "nodes_hit_at_once": max(blast.nodes_at_once for blast in blasts),
        "gpus_out_at_once": max([summary["gpus_out_at_once"], *(blast.gpus_at_once for blast in blasts)]),
        "gpu_jobs": len({job for c in both for job in c.jobs}),
        "gpu_pods": sum(len(c.ends) for c in both),
        "gpu_hours": round(summary["gpu_hours"] + lost / 3600, 1),
        "operators_drain": len({name for drain in draining for name in drain.nodes}),
        "namespaces": schedule.affected_namespaces(both, at),
        "parts_class": str(worst_of(rows)),
    }


def _pods(cluster: Cluster, names: Iterable[str]) -> list[Candidate]:
    """Nodes of the cluster as the forecast counts them, with the pods there that hold GPUs."""
    by_node: dict[str, list[Mapping[str, Any]]] = {}
    fields = ("node_name", "namespace", "name", "gpus", "owner_kind", "owner_name", "started_at")
    for pod in (
        GpuPod.objects.filter(cluster=cluster, node_name__in=set(names)).order_by("namespace", "name").values(*fields)
    ):
        by_node.setdefault(pod.pop("node_name"), []).append(pod)
    return [Candidate(0, name, Disruption.GPU_PODS, False, 0, pods) for name, pods in sorted(by_node.items())]
