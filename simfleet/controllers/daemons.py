"""DaemonSets that came through the API: where they run, and which pod goes next when they are updated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simfleet.apiserver.store import Raw, Stored
from simfleet.controllers import placing
from simfleet.controllers.budgets import is_ready
from simfleet.controllers.placing import node_of

TOLERATED = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists"}
    for key in ("not-ready", "unreachable", "unschedulable", "disk-pressure", "memory-pressure", "pid-pressure")
)


@dataclass(frozen=True, slots=True)
class Decision:
    end: Sequence[Stored]
    make: Sequence[str]
    """Nodes."""
    status: Raw


def tolerations(pod_spec: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Return tolerations with those that every DaemonSet pod has: a cordon or a dead kubelet does not keep it away."""
    return [*(pod_spec.get("tolerations") or ()), *TOLERATED]


def runs_on(daemon_set: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    spec = daemon_set["spec"]["template"]["spec"]
    return placing.selects(spec, node) and placing.tolerates(tolerations(spec), node)


def decide(
    daemon_set: Mapping[str, Any], pods: Sequence[Stored], nodes: set[str], current: str, label: str
) -> Decision:
    """One step: pods where none should be go, missing ones come, stale ones go within maxUnavailable."""
    living = {node_of(p.raw): p for p in pods if "deletionTimestamp" not in p.raw["metadata"]}
    leaving = {node_of(p.raw) for p in pods} - living.keys()
    astray = [p for node, p in living.items() if node not in nodes]
    here = {node: p for node, p in living.items() if node in nodes}
    fresh = {n for n, p in here.items() if p.raw["metadata"]["labels"].get(label) == current}
    ready = {n for n, p in here.items() if is_ready(p.raw)}
    stale = [p for n, p in sorted(here.items()) if n not in fresh]
    strategy = daemon_set["spec"].get("updateStrategy") or {}
    going: list[Stored] = []
    if strategy.get("type") != "OnDelete":
        allowed = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        if isinstance(allowed, str):
            allowed = max(1, -(-int(allowed.rstrip("%")) * len(nodes) // 100))
        broken = [p for p in stale if node_of(p.raw) not in ready]
        sound = [p for p in stale if node_of(p.raw) in ready]
        going = broken + sound[: max(0, allowed - (len(nodes) - len(ready)))]
    status: Raw = {
        "desiredNumberScheduled": len(nodes),
        "currentNumberScheduled": len(here),
        "numberMisscheduled": len(astray),
        "numberReady": len(ready),
        "numberAvailable": len(ready),
        "numberUnavailable": len(nodes) - len(ready),
        "updatedNumberScheduled": len(fresh),
    }
    return Decision([*astray, *going], sorted(nodes - here.keys() - leaving), status)
