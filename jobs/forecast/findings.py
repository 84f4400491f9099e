"""Findings that a person must read before deciding: blocks, warnings and notes of a plan, each with its nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from clusters import objects
from clusters.sharing import gpu_groups
from contract import fitness, key_lists
from contract.fitness import MachineSize
from jobs.diffs.changes import ChangeKind, Changes
from jobs.forecast import rule_facts
from jobs.forecast.strategy import Strategy
from profiles.catalog import known_labels, weakening

SHOWN = 20
"""Nodes listed in a finding; the count tells the rest."""

ORDER = {"block": 0, "warn": 1, "note": 2}
SEVERITIES = {"block": "block", "warn": "warn", "info": "note"}
"""Of a note from below (components.plans.prepared) as a finding."""


@dataclass(slots=True)
class PlanFinding:
    severity: str
    """block: the plan cannot be approved; warn; note."""
    code: str
    title: str
    detail: str
    nodes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "severity": self.severity,
            "code": self.code,
            "title": self.title,
            "detail": self.detail,
            "nodes": sorted(self.nodes)[:SHOWN],
            "count": len(self.nodes),
        }


def ranked(findings: Iterable[PlanFinding]) -> list[dict[str, Any]]:
    return [f.to_json() for f in sorted(findings, key=lambda f: (ORDER[f.severity], -len(f.nodes), f.code, f.title))]


def blocks(findings: Iterable[PlanFinding]) -> bool:
    return any(finding.severity == "block" for finding in findings)


def left_out_findings(left_out: Mapping[str, Sequence[str]]) -> list[PlanFinding]:
    """Nodes that the plan does not touch, grouped by why."""
    for_one = "It stays as it is and shows as pending; retry it from the rollout, or plan again."
    for_many = "They stay as they are and show as pending; retry them from the rollout, or plan again."
    return [
        PlanFinding(
            "warn",
            "left-out",
            f"{node_count(len(names))} left out",
            f"{reason} {for_one if len(names) == 1 else for_many}",
            list(names),
        )
        for reason, names in left_out.items()
    ]


def setting_findings(lacking: Mapping[str, list[str]], higher: Mapping[str, list[str]]) -> list[PlanFinding]:
    out = [
        PlanFinding(
            "warn",
            "key-missing",
            f"{key} does not exist on {node_count(len(names))}",
            "The kernel has no such key, so nothing is written for it. Keys differ between kernel versions.",
            names,
        )
        for key, names in lacking.items()
    ]
    out += [
        PlanFinding(
            "note",
            "already-higher",
            f"{key} is already beyond what is asked, and stays",
            "The setting only raises (or only lowers), so the node's own value is kept.",
            names,
        )
        for key, names in higher.items()
    ]
    return out


def _distinct(changes: Mapping[str, Changes]) -> Iterable[Changes]:
    """Return each of the Changes once: many nodes share one, and to compare two by what they hold takes longer."""
    return {id(each): each for each in changes.values()}.values()


def acting_label_findings(changes: Mapping[str, Changes]) -> list[PlanFinding]:
    """Labels that another program acts upon: by node name what changes there. Of taints, see jobs.diffs.evictions."""
    nodes: dict[str, list[str]] = defaultdict(list)
    acting = {
        id(each): [c.key for c in each.items if c.kind == ChangeKind.LABEL and known_labels.get(c.key)]
        for each in _distinct(changes)
    }
    for name, of_node in changes.items():
        for key in acting[id(of_node)]:
            nodes[key].append(name)
    out = []
    for key, names in sorted(nodes.items()):
        known = known_labels.KNOWN[key]
        title = f"{key} changes what runs on {node_count(len(names))}"
        detail = f"{known.effect} Class {known.disruption}: the node is drained first, under the budget."
        out.append(PlanFinding("warn", "label-acts", title, detail, names))
    return out


def security_findings(changes: Mapping[str, Changes]) -> list[PlanFinding]:
    nodes: dict[tuple[str, str], list[str]] = defaultdict(list)
    weakened = {id(each): rule_facts.weakened_keys(each) for each in _distinct(changes)}
    for name, of_node in changes.items():
        for key, why in weakened[id(of_node)].items():
            nodes[key, why].append(name)
    return [
        PlanFinding(
            "warn", weakening.CODE, f"{key} weakens the security of {node_count(len(names))}", f"With it {why}.", names
        )
        for (key, why), names in sorted(nodes.items())
    ]


def _unfit_values(changes: Changes, machine: MachineSize) -> list[tuple[str, str]]:
    """Return (key, why) of the values that a machine of this size cannot take."""
    settings = [(c.key, c.operator, c.value) for c in changes.items if c.kind == ChangeKind.SETTING]
    judged = [(key, fitness.unfit(key, op, value, machine)) for key, op, value in settings if value is not None]
    return [(key, why) for key, why in judged if why]


def _desired(changes: Changes) -> dict[str, tuple[str, str]]:
    """Return operator and value by key, of settings and of originals that go back."""
    return {c.key: (c.operator, c.value) for c in changes.settings() if c.value is not None}


def unusable_value_findings(
    changes: Mapping[str, Changes], machines: Mapping[str, MachineSize], observed: Mapping[str, Mapping[str, str]]
) -> list[PlanFinding]:
    """Values that would leave a node unusable, by its own memory and cores: no approval makes them right.

    By node: what is changed, what it has, and what its agent reports.
    """
    nodes: dict[str, list[tuple[str, str]]] = defaultdict(list)
    unfit: dict[tuple[int, MachineSize], list[tuple[str, str]]] = {}
    desired = {id(each): _desired(each) for each in _distinct(changes)}
    for name, of_node in changes.items():
        machine = machines.get(name, MachineSize())
        if (id(of_node), machine) not in unfit:
            unfit[id(of_node), machine] = _unfit_values(of_node, machine)
        for key, why in unfit[id(of_node), machine]:
            nodes[key].append((name, why))
        if why := fitness.after(desired[id(of_node)], observed.get(name, {}), machine):
            nodes["hugepages"].append((name, why))
    return [
        PlanFinding(
            "block",
            "unusable",
            f"{key} would leave {node_count(len(rows))} unusable",
            f"On {rows[0][0]}: {rows[0][1]}.",
            [name for name, _ in rows],
        )
        for key, rows in sorted(nodes.items())
    ]


OWN_FILE = "99-zz-setpoint.conf"
"""As the agent names its file in sysctl.d; a test holds both together."""
READ_LAST = "/etc/sysctl.conf"


def competing_file_findings(places: Mapping[tuple[str, str], Sequence[str]], rebooted: Set[str]) -> list[PlanFinding]:
    """Files that the agents found to set a planned key to another value.

    `rebooted`: nodes that this plan reboots. Files are read in the order of their names, so one that comes after
    Setpoint's has the last word at every boot.
    """
    out = []
    for (key, place), names in sorted(places.items()):
        path = place.rpartition(":")[0]
        if path != READ_LAST and path.rpartition("/")[2] < OWN_FILE:
            severity, why = (
                "note",
                "Applying that file by itself undoes this plan; a boot reads Setpoint's file later.",
            )
        elif again := rebooted & set(names):
            severity = "warn"
            why = (
                f"A boot reads it after Setpoint's own file, so the reboot that this plan asks for loses the value "
                f"again on {node_count(len(again))}. Take the line out of that file first."
            )
        else:
            severity = "warn"
            why = "A boot reads it after Setpoint's own file, so the value is lost with the next one."
        title = f"{place} sets {key} to another value on {node_count(len(names))}"
        out.append(PlanFinding(severity, "fought", title, why, list(names)))
    return out


def reserved_key_findings(target_keys: Iterable[str], names: list[str]) -> list[PlanFinding]:
    return [
        PlanFinding(
            "warn",
            "kubelet-owned",
            f"{key} belongs to the kubelet",
            "With protectKernelDefaults a mismatch stops the kubelet from starting; "
            "Setpoint allows only the kubelet's own value.",
            list(names),
        )
        for key in target_keys
        if key in key_lists.KUBELET_OWNED
    ]


def drain_findings(
    pods: Iterable[Mapping[str, Any]],
    budgets: Sequence[Mapping[str, Any]],
    drained: frozenset[str],
    strategy: Strategy,
    *,
    spares: Callable[[str, Mapping[str, Any]], bool] = lambda node, pod: False,
) -> tuple[list[PlanFinding], int]:
    """Findings about pods on nodes that will be drained, and how many pods that evicts.

    `spares`: whether the drain of this node leaves this pod.
    """
    blocked: dict[str, list[tuple[str, str]]] = defaultdict(list)
    bare: dict[str, list[str]] = defaultdict(list)
    empty_dir: dict[str, list[str]] = defaultdict(list)
    slow: dict[str, list[str]] = defaultdict(list)
    evicted = 0
    for pod in pods:
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        if node not in drained or objects.stays(pod) or spares(node, pod):
            continue
        evicted += 1
        name = f"{objects.meta(pod).get('namespace')}/{objects.meta(pod).get('name')}"
        for budget in blocking_budgets(pod, budgets):
            blocked[budget].append((node, name))
        if not objects.controller(pod)[0] and not gpu_groups.is_reservation(pod):
            bare[node].append(name)
        if objects.has_empty_dir(pod):
            empty_dir[node].append(name)
        if _grace(pod) >= strategy.drain_timeout_seconds:
            slow[node].append(name)
    out = [_budget_finding(budget, rows, strategy) for budget, rows in blocked.items()]
    return [*out, *_costs(bare, empty_dir, slow, strategy)], evicted


def _costs(
    bare: Mapping[str, list[str]], empty_dir: Mapping[str, list[str]], slow: Mapping[str, list[str]], strategy: Strategy
) -> list[PlanFinding]:
    """List what a drain costs the pods of these nodes: each argument has pods' names by node."""
    out = []
    if bare:
        out.append(
            _consent(
                "bare-pods",
                bare,
                strategy.delete_unmanaged_pods,
                "without a controller that recreates them",
                "delete_unmanaged_pods",
            )
        )
    if empty_dir:
        out.append(
            _consent(
                "empty-dir",
                empty_dir,
                strategy.delete_empty_dir_data,
                "with data in emptyDir volumes, which eviction deletes",
                "delete_empty_dir_data",
            )
        )
    if slow:
        out.append(
            PlanFinding(
                "warn",
                "long-grace",
                f"{_pods(slow)} may take longer to stop than the drain is given",
                f"Their grace period is {strategy.drain_timeout_seconds} s or more; raise drain_timeout_seconds. "
                f"For example {_example(slow)}.",
                list(slow),
            )
        )
    return out


def blocking_budgets(pod: Mapping[str, Any], budgets: Sequence[Mapping[str, Any]]) -> list[str]:
    """`namespace/name` of the PodDisruptionBudgets that allow no disruption of this pod now."""
    namespace, labels = objects.meta(pod).get("namespace"), objects.meta(pod).get("labels") or {}
    return [
        f"{namespace}/{objects.meta(b).get('name')}"
        for b in budgets
        if objects.meta(b).get("namespace") == namespace
        and objects.selects((b.get("spec") or {}).get("selector"), labels)
        and int((b.get("status") or {}).get("disruptionsAllowed") or 0) < 1
    ]


def _grace(pod: Mapping[str, Any]) -> int:
    """Seconds it may take to stop; 30 is the API server's default, and 0 is a wish like any other."""
    given = (pod.get("spec") or {}).get("terminationGracePeriodSeconds")
    return 30 if given is None else int(given)


def _budget_finding(budget: str, rows: list[tuple[str, str]], strategy: Strategy) -> PlanFinding:
    minutes = max(1, strategy.drain_timeout_seconds // 60)
    return PlanFinding(
        "warn",
        "pdb",
        f"The PodDisruptionBudget {budget} allows no disruption",
        f"It covers {rows[0][1]} on {rows[0][0]}. The drain waits up to {minutes} min for it, then the step is held. "
        "Ask the owner to add a replica first.",
        sorted({node for node, _ in rows}),
    )


def _consent(code: str, rows: Mapping[str, list[str]], given: bool, what: str, field_name: str) -> PlanFinding:
    if given:
        return PlanFinding(
            "warn",
            code,
            f"{_pods(rows)} {what}",
            f"Consented to in this plan. For example {_example(rows)}.",
            list(rows),
        )
    return PlanFinding(
        "block",
        code,
        f"{_pods(rows)} {what}",
        f"Set {field_name} in the strategy to consent, or move them first. For example {_example(rows)}.",
        list(rows),
    )


def _pods(rows: Mapping[str, list[str]]) -> str:
    count = sum(len(names) for names in rows.values())
    return f"{count} pod{'s' if count != 1 else ''}"


def _example(rows: Mapping[str, list[str]]) -> str:
    node, names = next(iter(rows.items()))
    return f"{names[0]} on {node}"


def node_count(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
