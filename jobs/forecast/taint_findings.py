"""Findings that a person must read about a plan's taints: pods evicted, pods that stay, and pods kept away later."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusters import objects, tolerations
from clusters.tolerations import EVICTS
from jobs.diffs.changes import ChangeKind, Changes
from jobs.diffs.evictions import can_be_evicted, new_evicting_taints
from jobs.forecast.findings import PlanFinding

Raw = Mapping[str, Any]


@dataclass(slots=True)
class _TaintEffect:
    """Effects of one new taint."""

    nodes: list[str] = field(default_factory=list)
    evicted: set[str] = field(default_factory=set)
    """Nodes from which it evicts pods."""
    gone: list[str] = field(default_factory=list)
    """`namespace/name` of pods that end."""
    daemons: list[str] = field(default_factory=list)
    stay: int = 0
    soonest: int = 0
    """The longest time that a pod tolerates it, in seconds, though not for good."""
    later: int = 0


def taint_effect_findings(changes: Mapping[str, Changes], pods: Iterable[Raw] | None) -> list[PlanFinding]:
    """`changes`: by node name. `pods`: of the cluster; None where no such taint comes to any node."""
    effects: dict[tuple[str, str], _TaintEffect] = defaultdict(_TaintEffect)
    coming: dict[str, list[Raw]] = {}
    for name, each in changes.items():
        for taint in (taints := new_evicting_taints(each)):
            effects[_key(taint)].nodes.append(name)
        if taints:
            coming[name] = taints
    for pod in pods or () if coming else ():
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        for taint in coming.get(node, ()) if can_be_evicted(pod) else ():
            _count(effects[_key(taint)], node, pod, taint)
    out = [_of_coming(key, value, effect) for (key, value), effect in sorted(effects.items())]
    for (key, value), effect in sorted(effects.items()):
        out += _of_daemons(key, value, effect)
    return out + _of_others(changes)


def _key(taint: Raw) -> tuple[str, str]:
    return taint["key"], taint["value"]


def _count(effect: _TaintEffect, node: str, pod: Raw, taint: Raw) -> None:
    seconds = tolerations.lasts(tolerations.of_pod(pod), [taint])
    if seconds is None:
        effect.stay += 1
        return
    effect.evicted.add(node)
    name = f"{objects.meta(pod).get('namespace')}/{objects.meta(pod).get('name')}"
    (effect.daemons if objects.is_daemon(pod) else effect.gone).append(name)
    effect.later += seconds > 0
    effect.soonest = max(effect.soonest, seconds)


def _of_coming(key: str, value: str, effect: _TaintEffect) -> PlanFinding:
    name = f"{key}={value}:{EVICTS}" if value else f"{key}:{EVICTS}"
    stay = (
        f" {_pods(effect.stay)} tolerate{'s' if effect.stay == 1 else ''} it and stay{'s' if effect.stay == 1 else ''}."
    )
    stay = stay if effect.stay else ""
    if not effect.evicted:
        title = f"The taint {name} evicts no pod from {_nodes(len(effect.nodes))}"
        detail = f"{stay} New pods come there only if they tolerate it. Where one comes before, the step is held."
        return PlanFinding("note", "taint-spares", title, detail.strip(), effect.nodes)
    count = len(effect.gone) + len(effect.daemons)
    later = f" {effect.later} of them tolerate it for a while, {effect.soonest} s at most, and count all the same."
    example = (effect.gone or effect.daemons)[0]
    detail = (
        f"Pods that do not tolerate it end, {example} for example.{later if effect.later else ''}"
        f"{stay} The node is cordoned and these pods are evicted before it, under the budget."
    )
    title = f"The taint {name} evicts {_pods(count)} from {_nodes(len(effect.evicted))}"
    return PlanFinding("warn", "taint-evicts", title, detail, sorted(effect.evicted))


def _of_daemons(key: str, value: str, effect: _TaintEffect) -> list[PlanFinding]:
    if not effect.daemons:
        return []
    name = f"{key}={value}:{EVICTS}" if value else f"{key}:{EVICTS}"
    title = f"The taint {name} ends {_pods(len(effect.daemons))} of DaemonSets"
    detail = (
        f"{effect.daemons[0]} for example. They are ended by the API server's taint manager, which asks no disruption "
        "budget, and do not come back while the taint is there: give their DaemonSets a toleration first."
    )
    return [PlanFinding("warn", "taint-daemons", title, detail, sorted(effect.evicted))]


def _of_others(changes: Mapping[str, Changes]) -> list[PlanFinding]:
    """Taints that are taken away, and taints that keep new pods away."""
    gone: dict[str, list[str]] = defaultdict(list)
    kept: dict[str, list[str]] = defaultdict(list)
    for name, of_node in changes.items():
        for change in (c for c in of_node.items if c.kind == ChangeKind.TAINT):
            if change.value is None:
                gone[change.key].append(name)
            elif change.key.rpartition(":")[2] == "NoSchedule":
                kept[change.key].append(name)
    out = []
    for key, names in sorted(gone.items()):
        title = f"Taking the taint {key} away interrupts nothing on {_nodes(len(names))}"
        again = " A revert sets it again only where it evicts no pod." if key.endswith(f":{EVICTS}") else ""
        out.append(PlanFinding("note", "taint-removed", title, f"Pods that it kept away may come there.{again}", names))
    for key, names in sorted(kept.items()):
        title = f"New pods come to {_nodes(len(names))} only if they tolerate {key}"
        out.append(PlanFinding("note", "taint-new-pods", title, "Pods that run there stay.", names))
    return out


def _pods(count: int) -> str:
    return f"{count:,} pod{'' if count == 1 else 's'}"


def _nodes(count: int) -> str:
    return f"{count:,} node{'' if count == 1 else 's'}"
