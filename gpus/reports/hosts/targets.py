"""Match of nodes to the targets of their node exporters, in the forms that installations have.

A label that service discovery put there (`node`, `kubernetes_node`) counts most; then the host's own name, which the
exporter tells in `node_uname_info`; then an `instance` that is named after the node. The address in an `instance` says
nothing, for the API server's address of a node is not stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from common.clock import now
from gpus.reports.hosts.queries import alternatives
from gpus.telemetry.expressions import Expressions, Labels

CHUNK = 8
"""Nodes of one query: its address stays below the 8 KB that proxies allow."""
DISCOVERED = ("node", "kubernetes_node")
NAMED = ("nodename", "exported_nodename")
_BY = ("instance", "job", *DISCOVERED, *NAMED)
HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class HostName:
    """A node as its cluster calls it."""

    name: str
    hostname: str = ""
    """By the kubelet's label; empty: as the name."""

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(text.lower() for text in (self.name, self.hostname) if text))


@dataclass(frozen=True, slots=True)
class Target:
    instance: str
    job: str
    by: str
    """Label by which it was matched."""


@dataclass(frozen=True, slots=True)
class Matched:
    targets: dict[str, Target]
    """By the node's name."""
    why: dict[str, str]
    """Of the others: a sentence."""


def match(expressions: Expressions, hosts: Sequence[HostName], at: datetime | None = None) -> Matched:
    """Find the target of each as it was then, or is now. Raises Unanswered."""
    rows: list[Labels] = []
    for start in range(0, len(hosts), CHUNK):
        query = _query(hosts[start : start + CHUNK], expressions.selector)
        rows += [labels for labels, _ in expressions.at(query, at or now())]
    matched = Matched({}, {})
    for host in hosts:
        result = _of_host(host, rows)
        if isinstance(result, Target):
            matched.targets[host.name] = result
        else:
            matched.why[host.name] = result
    return matched


def nodes_of(rows: Iterable[Labels], hosts: Iterable[HostName]) -> dict[tuple[str, str], str]:
    """Return the node of each target, as (instance, job), that a whole name of the node names, not a part of one."""
    known = {name: host.name for host in hosts for name in host.names}
    named: dict[tuple[str, str], set[str | None]] = defaultdict(set)
    for labels in rows:
        given = next((labels[label] for label in DISCOVERED if labels.get(label)), None)
        instance = labels.get("instance", "")
        texts = (
            [given] if given else [*(labels.get(label, "") for label in NAMED), instance, instance.rpartition(":")[0]]
        )
        named[instance, labels.get("job", "")].add(next((known[x.lower()] for x in texts if x.lower() in known), None))
    return {key: node for key, nodes in named.items() if len(nodes) == 1 and (node := next(iter(nodes))) is not None}


def of_instances(instances: Iterable[str], selector: str) -> str:
    """Return the query for the labels by which `nodes_of` knows these targets."""
    more = f",{selector}" if selector else ""
    return f'count by ({", ".join(_BY)}) (node_uname_info{{instance=~"{alternatives(instances)}"{more}}})'


def _query(hosts: Iterable[HostName], selector: str) -> str:
    names = list(dict.fromkeys(name for host in hosts for name in host.names))
    short = list(dict.fromkeys([*names, *(name.partition(".")[0] for name in names)]))
    matchers = [f'{label}=~"(?i:{alternatives(names)})"' for label in DISCOVERED]
    matchers += [f'{label}=~"(?i:({alternatives(short)})([.].*)?)"' for label in NAMED]
    matchers.append(f'instance=~"(?i:({alternatives(names)})(:[^:]*)?)"')
    more = f",{selector}" if selector else ""
    selectors = " or ".join(f"node_uname_info{{{matcher}{more}}}" for matcher in matchers)
    return f"count by ({', '.join(_BY)}) ({selectors})"


def _of_host(host: HostName, rows: Iterable[Labels]) -> Target | str:
    by_rank: dict[int, set[tuple[str, str, str]]] = defaultdict(set)
    for labels in rows:
        ranked = _rank(host, labels)
        if ranked is not None and labels.get("instance"):
            by_rank[ranked[0]].add((labels["instance"], labels.get("job", ""), ranked[1]))
    if not by_rank:
        return (
            f"No target of the node exporter is {host.name}: none has it in the label node, in the nodename of "
            "node_uname_info or in its instance."
        )
    best = sorted(by_rank[min(by_rank)])
    places = sorted({instance.rpartition(":")[0] or instance for instance, _, _ in best})
    if len(places) > 1:
        return (
            f"{len(places)} targets are called {host.name} ({', '.join(places[:3])}): give label matchers of this "
            "cluster in the settings of the source."
        )
    return Target(*best[0])


def _rank(host: HostName, labels: Labels) -> tuple[int, str] | None:
    """Return how well a target's labels name the host, 0 the best, and by which label; None: not at all."""
    names = host.names
    for label in DISCOVERED:
        if labels.get(label):
            # Discovery names another node: nothing else about this target can make it this one.
            return (0, label) if labels[label].lower() in names else None
    for label in NAMED:
        text = labels.get(label, "").lower()
        if text in names:
            return 1, label
        if text and (_is_short(text, host.name.lower()) or _is_short(host.name.lower(), text)):
            return 3, label
    instance = labels.get("instance", "").lower()
    if instance in names or instance.rpartition(":")[0] in names:
        return 2, "instance"
    return None


def _is_short(short: str, name: str) -> bool:
    """Return whether one is the other's first part, as `uname -n` has it where the name is fully qualified."""
    return "." not in short and name.startswith(f"{short}.")
