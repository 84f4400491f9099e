"""Pods that kubelets evicted, from their own counters, by the signal that crossed its threshold.

The counter of a signal appears with its first eviction, and is gone after a restart of the kubelet: a rate would miss
the first one, which may be the only one. So the counts at both ends are compared, and `kubelet_node_name`, which each
kubelet exports always, tells a kubelet without evictions from one that is not scraped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from gpus.reports.hosts.queries import alternatives
from gpus.reports.hosts.targets import CHUNK
from gpus.telemetry.expressions import Expressions

Evictions = Mapping[str, int]
"""Pods by signal, as `memory.available`."""
_NODE = ("node", "exported_node")
"""`node` is the node's name in both; the second where service discovery has a `node` of its own."""


def evictions(expressions: Expressions, names: Sequence[str], start: datetime, end: datetime) -> dict[str, Evictions]:
    """Return what each node's kubelet evicted between the two. Raises Unanswered.

    A node is left out whose kubelet was not scraped at both, or is not the only one of its name. After a restart of a
    kubelet those of before it are missing: the numbers are the least that can be.
    """
    counted: dict[str, Evictions] = {}
    for first in range(0, len(names), CHUNK):
        instances = _instances(expressions, names[first : first + CHUNK], end)
        before, after = (_counts(expressions, instances.values(), at) for at in (start, end))
        for name, instance in instances.items():
            if instance in before and instance in after:
                counted[name] = _risen(before[instance], after[instance])
    return counted


def _instances(expressions: Expressions, names: Iterable[str], at: datetime) -> dict[str, str]:
    """Return the target of each node that has exactly one; jobs may scrape it several times."""
    wanted = alternatives(names)
    selectors = " or ".join(_selector(expressions, "kubelet_node_name", f'{label}=~"{wanted}"') for label in _NODE)
    instances: dict[str, set[str]] = defaultdict(set)
    for labels, _ in expressions.at(f"max by (instance, {', '.join(_NODE)}) ({selectors})", at):
        for name in {labels.get(label, "") for label in _NODE} - {""}:
            instances[name].add(labels.get("instance", ""))
    return {name: targets.pop() for name, targets in instances.items() if len(targets) == 1 and "" not in targets}


def _counts(expressions: Expressions, instances: Iterable[str], at: datetime) -> dict[str, dict[str, float]]:
    """Return the counters of each kubelet that was scraped then."""
    matcher = f'instance=~"{alternatives(instances)}"'
    selectors = " or ".join(
        _selector(expressions, metric, matcher) for metric in ("kubelet_node_name", "kubelet_evictions")
    )
    counts: dict[str, dict[str, float]] = defaultdict(dict)
    for labels, points in expressions.at(f"max by (instance, eviction_signal) ({selectors})", at):
        of_kubelet = counts[labels.get("instance", "")]
        if labels.get("eviction_signal") and points:
            of_kubelet[labels["eviction_signal"]] = points[-1][1]
    return counts


def _selector(expressions: Expressions, metric: str, matcher: str) -> str:
    return f"{metric}{{{','.join(part for part in (matcher, expressions.selector) if part)}}}"


def _risen(before: Mapping[str, float], after: Mapping[str, float]) -> Evictions:
    risen = {}
    for signal, count in after.items():
        earlier = before.get(signal, 0.0)
        more = round(count - earlier if count >= earlier else count)
        if more > 0:
            risen[signal] = more
    return dict(sorted(risen.items()))
