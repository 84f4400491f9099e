"""Circumstances of a plan: what its cluster, its pool and the pods there mean for its approvers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from clusters.connection import registry
from clusters.fleet import FleetError
from clusters.models import Cluster, Node
from common.errors import WrongState
from compliance.models import SettingState
from contract import disk_layouts, quantities
from contract.fitness import MachineSize
from jobs.diffs import evictions
from jobs.diffs.changes import Disruption
from jobs.diffs.node_diff import Target
from jobs.forecast import findings, measured_findings, taint_findings
from jobs.forecast import slots as ledger
from jobs.forecast.boot_findings import boot_findings
from jobs.forecast.disk_findings import disk_findings
from jobs.forecast.findings import PlanFinding
from jobs.forecast.isolation_findings import isolation_findings
from jobs.forecast.manager_findings import manager_findings
from jobs.forecast.strategy import MEASURED, Strategy
from jobs.models import Freeze, Slot, Step
from jobs.planning.comparison import PlanDraft


def circumstance_findings(
    cluster: Cluster,
    nodes: list[Node],
    target: Target,
    draft: PlanDraft,
    strategy: Strategy,
    *,
    has_parts: bool = False,
) -> list[PlanFinding]:
    """Everything but what a drain disturbs, which only the cluster can tell.

    `has_parts`: the plan brings components or policy objects, so it has something to do without any node.
    """
    left_out = {reason: [n.name for n in rows] for reason, rows in draft.left_out.items()}
    lacking = {key: names for key, names in draft.lacking.items() if key != disk_layouts.KEY}
    out = findings.left_out_findings(left_out) + findings.setting_findings(lacking, draft.higher)
    changes = {c.name: draft.changes[c.node_id] for c in draft.candidates}
    layout = next((value for key, _, value, _ in target.settings if key == disk_layouts.KEY), "")
    out += disk_findings(changes, layout, draft.lacking.get(disk_layouts.KEY, ()), _observed(nodes))
    out += findings.security_findings(changes) + findings.acting_label_findings(changes)
    out += findings.unusable_value_findings(changes, {node.name: _machine(node) for node in nodes}, _observed(nodes))
    out += boot_findings(changes, _observed(nodes))
    out += isolation_findings(changes, _observed(nodes), {node.name: node.kernel for node in nodes})
    out += manager_findings(changes, _observed(nodes), {node.name: node.kubelet for node in nodes})
    rebooted = {c.name for c in draft.candidates if c.worst == Disruption.REBOOT}
    out += findings.competing_file_findings(_competing_files(cluster, target, draft), rebooted)
    out += findings.reserved_key_findings((key for key, *_ in target.settings), [c.name for c in draft.candidates])
    if not draft.candidates and not has_parts:
        out.append(
            PlanFinding(
                "block", "nothing-possible", "No node can be changed now", "All of them are left out; see why.", []
            )
        )
    return out + _pool_findings(nodes, draft, strategy) + _cluster_findings(cluster, nodes, draft, strategy)


def _machine(node: Node) -> MachineSize:
    """Return what the node offers to pods, its huge pages included: a little less than it has."""
    of_memory = {name for name in node.allocatable if name == "memory" or name.startswith("hugepages-")}
    offered = {name: _count(str(node.allocatable[name])) for name in of_memory | ({"cpu"} & node.allocatable.keys())}
    memory = sum(offered[name] for name in of_memory)
    return MachineSize(memory if "memory" in offered else 0, offered.get("cpu", 0))


_count = lru_cache(maxsize=1024)(quantities.count)
"""A fleet has a few kinds of machines, whose nodes offer the same amounts."""


def _observed(nodes: list[Node]) -> dict[str, Mapping[str, str]]:
    tunings = {node.name: getattr(node, "tuning", None) for node in nodes}
    return {name: tuning.observed for name, tuning in tunings.items() if tuning}


def _competing_files(cluster: Cluster, target: Target, draft: PlanDraft) -> Mapping[tuple[str, str], list[str]]:
    """Return, by (key, `path:line`), nodes whose agent found a file that sets what this plan wants to another value."""
    names = {c.node_id: c.name for c in draft.candidates}
    rows = SettingState.objects.filter(node__cluster=cluster, key__in=[key for key, *_ in target.settings])
    out: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node_id, key, place in rows.exclude(won_by="").values_list("node_id", "key", "won_by"):
        if node_id in names:
            out[key, place].append(names[node_id])
    return out


def _pool_findings(nodes: list[Node], draft: PlanDraft, strategy: Strategy) -> list[PlanFinding]:
    out = []
    masters = [c.name for c in draft.candidates if c.is_control_plane]
    if masters:
        out.append(
            PlanFinding(
                "warn", "control-plane", "Control-plane nodes are in this pool", "They go last, one at a time.", masters
            )
        )
    kinds = {(n.architecture, n.gpu_product) for n in nodes}
    if len(kinds) > 1:
        names = ", ".join(sorted(f"{arch or 'unknown'} {gpu or 'without GPU'}" for arch, gpu in kinds))
        out.append(PlanFinding("note", "mixed", "The pool mixes kinds of nodes", f"It holds {names}.", []))
    if strategy.order == MEASURED:
        out += measured_findings.measured_order_findings(draft.candidates, strategy)
    if strategy.is_gated and not any(c.gpus for c in draft.candidates):
        why = "No reading can confirm GPU health, so each batch waits for an operator to continue."
        out.append(PlanFinding("warn", "gated-no-gpus", "None of these nodes has GPUs to watch", why, []))
    if strategy.include_joining:
        out.append(
            PlanFinding(
                "note",
                "joining",
                "Nodes that join while it runs are included",
                "Nodes that are new to the cluster and come to this pool follow as a last batch, where every change is "
                "live. What needs more than that, or was in the cluster before and is relabeled into the pool, stays "
                "pending, and a plan of its own is drafted for it.",
                [],
            )
        )
    return out


def _cluster_findings(cluster: Cluster, nodes: list[Node], draft: PlanDraft, strategy: Strategy) -> list[PlanFinding]:
    out = []
    taken = _unavailable_names(cluster) if any(c.worst.takes_slot for c in draft.candidates) else []
    if taken:
        out.append(
            PlanFinding(
                "warn",
                "budget-taken",
                ledger.out_of_service(cluster).sentence(strategy.allowed_out(cluster.budget)),
                "Nodes that others took out take places of the budget, except those that this plan, and every plan "
                "in progress with it, lists as unavailable before.",
                taken,
            )
        )
    busy = Step.objects.filter(node__in=nodes, is_live=True).select_related("rollout")
    for rollout, working in _grouped(busy).items():
        title = f"R-{rollout} works on some of these nodes"
        out.append(PlanFinding("warn", "busy", title, "This plan can start when it is done.", working))
    freeze = Freeze.standing(cluster.pk).first()
    if freeze:
        until = f" until {freeze.until:%Y-%m-%d %H:%M} UTC" if freeze.until else ""
        out.append(
            PlanFinding(
                "warn", "frozen", f"A freeze is active{until}", f"{freeze.reason} Nothing starts while it does.", []
            )
        )
    return out


def _grouped(steps: Iterable[Step]) -> Mapping[int, list[str]]:
    out: dict[int, list[str]] = defaultdict(list)
    for step in steps:
        out[step.rollout.number].append(step.node_name)
    return out


def _unavailable_names(cluster: Cluster) -> list[str]:
    slots = Slot.objects.filter(cluster=cluster).values_list("node__name", flat=True)
    out = Node.objects.unavailable().filter(cluster=cluster).values_list("name", flat=True)
    return sorted({*out, *slots})


def read_pods(cluster: Cluster) -> list[dict[str, Any]]:
    """All pods, as the cluster has them now. Raises WrongState."""
    with _pod_errors_translated(cluster):
        return registry.connect(cluster).pods()


def pod_findings(
    cluster: Cluster, draft: PlanDraft, strategy: Strategy, pods: list[dict[str, Any]] | None
) -> tuple[list[PlanFinding], int]:
    """Findings about pods on nodes that will be drained or tainted, and how many that evicts. Raises WrongState.

    `pods`: where they were read already.
    """
    changes = {c.name: draft.changes[c.node_id] for c in draft.candidates}
    drained = frozenset(c.name for c in draft.candidates if c.worst.drains)
    if not drained:
        return taint_findings.taint_effect_findings(changes, pods), 0
    if pods is None:
        pods = read_pods(cluster)
    with _pod_errors_translated(cluster):
        budgets = registry.connect(cluster).budgets()
    sparing = {
        name: evictions.new_evicting_taints(changes[name])
        for name in drained
        if evictions.spares_tolerant_pods(changes[name])
    }
    out, evicted = findings.drain_findings(
        pods,
        budgets,
        drained,
        strategy,
        spares=lambda node, pod: node in sparing and not evictions.is_evicted(pod, sparing[node]),
    )
    return taint_findings.taint_effect_findings(changes, pods) + out, evicted


@contextmanager
def _pod_errors_translated(cluster: Cluster) -> Iterator[None]:
    try:
        yield
    except FleetError as error:
        raise WrongState(
            f"The pods of {cluster} cannot be read, so what a drain disturbs is unknown: {error}"
        ) from error
