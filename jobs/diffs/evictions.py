"""NoExecute taints of a plan: which pods they evict, by what each pod tolerates. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clusters import objects, tolerations
from clusters.tolerations import EVICTS
from jobs.diffs.changes import ChangeKind, Changes, Disruption
from jobs.diffs.node_diff import Pods, Target

Raw = Mapping[str, Any]


def new_evicting_taints(changes: Changes, *, is_revert: bool = False) -> list[Raw]:
    """The NoExecute taints that a node gets, forwards or on the way back; a change of value counts."""
    out: list[Raw] = []
    for change in changes.taints:
        key, _, effect = change.key.rpartition(":")
        value = change.expect if is_revert else change.value
        if effect == EVICTS and value is not None:
            out.append({"key": key, "value": value, "effect": effect})
    return out


def spares_tolerant_pods(changes: Changes) -> bool:
    """Return whether the node is drained because of such taints alone: pods that tolerate them stay."""
    if not changes.taints:
        return False
    others = (Disruption(change.apply_class) for change in changes.items if change.kind != ChangeKind.TAINT)
    return changes.worst_class.drains and not any(worst.drains for worst in others)


def can_be_evicted(pod: Raw) -> bool:
    """Return whether a taint can end the pod; a mirror pod tolerates every NoExecute taint, as the kubelet lets it."""
    return not (objects.is_mirror(pod) or objects.is_finished(pod))


def is_evicted(pod: Raw, taints: Iterable[Raw]) -> bool:
    """Return whether the taint manager evicts the pod, at once or once its time is over."""
    return can_be_evicted(pod) and tolerations.lasts(tolerations.of_pod(pod), taints) is not None


def needs_pods(target: Target, nodes: Iterable[Sequence[Raw]]) -> bool:
    """Return whether such a taint is new to any of these nodes, given by each one's taints: pods must be read."""
    wanted = {(key, value) for key, value, effect in target.taints if effect == EVICTS}
    return any(
        wanted - {(str(t.get("key")), str(t.get("value") or "")) for t in there if t.get("effect") == EVICTS}
        for there in nodes
        if wanted
    )


def tolerations_by_node(pods: Iterable[Raw]) -> dict[str, Pods]:
    """Return what the pods of each node tolerate, of those that a taint can end."""
    out: dict[str, list[Sequence[Raw]]] = defaultdict(list)
    for pod in pods:
        name = (pod.get("spec") or {}).get("nodeName")
        if name and can_be_evicted(pod):
            out[str(name)].append(tolerations.of_pod(pod))
    return dict(out)


def ending_pods(pods: Sequence[Raw], changes: Changes) -> Sequence[Raw]:
    """Those of a node's GPU pods, as rows keep them, that end with these changes."""
    if not spares_tolerant_pods(changes):
        return pods
    taints = new_evicting_taints(changes)
    return [pod for pod in pods if tolerations.lasts(pod["tolerations"], taints) is not None]
