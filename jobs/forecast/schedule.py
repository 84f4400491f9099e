"""Batches, time and blast radius of a plan: arithmetic over its nodes, without a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

from jobs.diffs.changes import Disruption
from jobs.forecast import randomization
from jobs.forecast.strategy import MEASURED, Strategy

SECONDS_EACH: Mapping[Disruption, float] = {
    # A live write is one patch and the agent's answer: under 2 s (docs/performance.md).
    Disruption.LIVE: 2,
    Disruption.NEW_PODS: 2,
    # systemctl restart kubelet, and the node Ready again at its next heartbeat (10 s by default).
    Disruption.KUBELET_RESTART: 30,
    # A judgment: the network agent of a node is back within its probes' first minute.
    Disruption.NETWORK: 60,
    # A judgment: most pods end within their default 30 s grace, a few PDBs wait for a replacement.
    Disruption.DRAIN: 180,
    Disruption.CONTAINERD_RESTART: 240,
    # A judgment: GPU pods end as in a drain, then the driver or the device plugin starts again.
    Disruption.GPU_PODS: 300,
    # Bare-metal GPU reboots are reported at 15 to 30 minutes (NVSentinel issue 126).
    Disruption.REBOOT: 900,
}


FROZEN_BATCHES = 2
"""Canary and the batch after it are approved node by node; later ones are made again as they open."""


@dataclass(slots=True)
class Candidate:
    """One node that will change, with what orders and costs it."""

    node_id: int
    name: str
    worst: Disruption
    is_control_plane: bool
    gpus: int
    gpu_pods: Sequence[Mapping[str, Any]]
    """{namespace, name, gpus, owner_kind, owner_name, started_at}"""
    signal: float = 0.0
    """From jobs.models.Signal, kind order: lower goes first."""
    kind: str = ""
    """The GPU's model, or empty: a control is drawn of each."""
    is_control: bool = False
    domain: str = ""
    """Value of the label that the strategy names as failure domain; empty without such a label."""
    ending: Sequence[Mapping[str, Any]] | None = None
    """Of `gpu_pods`, those that end where it is drained; None: all of them."""
    batch: int = 0
    position: int = 0

    @property
    def ends(self) -> Sequence[Mapping[str, Any]]:
        return self.gpu_pods if self.ending is None else self.ending

    @property
    def jobs(self) -> set[tuple[str, str, str]]:
        """Owners of the pods that end."""
        return {(p["namespace"], p["owner_kind"] or "Pod", p["owner_name"] or p["name"]) for p in self.ends}


def arrange_batches(candidates: list[Candidate], strategy: Strategy) -> list[list[Candidate]]:
    """Order the nodes and cut them into batches: canary first, control-plane nodes last, each in a batch of its own.

    The control of the order `measured` comes after all other workers, in batches of its own. With a failure domain in
    the strategy, no batch has nodes of two, and all workers of one come before those of the next.
    """
    by_order: Callable[[Candidate], Any] = {
        "name": lambda c: (c.name,),
        "idle-first": lambda c: idle_first_key(c.name, {c.name: c.gpu_pods}, c.signal),
        MEASURED: lambda c: randomization.lot(strategy.seed, c.name),
    }[strategy.order]
    workers = sorted((c for c in candidates if not c.is_control_plane), key=by_order)
    masters = sorted((c for c in candidates if c.is_control_plane), key=by_order)
    size = strategy.batch_size(len(workers)) if workers else 1
    batches: list[list[Candidate]] = []
    control = randomization.control_group(workers, strategy)
    for candidate in workers:
        candidate.is_control = candidate.name in control
    last = [c for c in workers if c.is_control]
    workers = [c for c in workers if not c.is_control]
    canary = strategy.canary
    for members in _by_domain(workers):
        if canary:
            batches.append(members[:canary])
            members = members[canary:]  # noqa: PLW2901 — those that the canary leaves
            canary = 0
        batches += [members[i : i + size] for i in range(0, len(members), size)]
    batches += [last[i : i + size] for i in range(0, len(last), size)]
    batches += [[c] for c in masters]
    position = 0
    for number, batch in enumerate(batches, 1):
        for candidate in batch:
            candidate.batch, candidate.position = number, position
            position += 1
    return batches


def _by_domain(workers: Sequence[Candidate]) -> list[list[Candidate]]:
    """Return ordered workers by failure domain: that of the first worker first; those without its label last."""
    domains: dict[str, list[Candidate]] = {}
    for worker in workers:
        domains.setdefault(worker.domain, []).append(worker)
    unlabeled = domains.pop("", None)
    return [*domains.values(), *([unlabeled] if unlabeled else [])]


def idle_first_key(
    name: str, pods: Mapping[str, Sequence[Mapping[str, Any]]], signal: float
) -> tuple[float, int, int, str]:
    """Sorts nodes as the order rule idle-first says. `pods` are those that hold GPUs, by node name."""
    gpu_pods = pods.get(name, ())
    return signal, sum(p["gpus"] for p in gpu_pods), len(gpu_pods), name


def seconds_of(
    batch: Sequence[Candidate],
    strategy: Strategy,
    budget: int,
    each: Mapping[Disruption, float] = SECONDS_EACH,
) -> int:
    """Return the seconds of one batch.
    Disruptive nodes go in rounds of the budget, live ones in rounds of max_in_flight.
    """
    at_once = max(1, budget)
    slow = [each[c.worst] for c in batch if c.worst.takes_slot]
    live = [c for c in batch if not c.worst.takes_slot]
    total = sum(max(slow[i : i + at_once]) for i in range(0, len(slow), at_once))
    total += -(-len(live) // strategy.max_in_flight) * max((each[c.worst] for c in live), default=0)
    return ceil(total) + strategy.soak_seconds


def held_back_seconds(strategy: Strategy) -> int:
    """Return the seconds of the order `measured` from its last changed node until the control is carried out, too."""
    return strategy.settle_minutes * 60 + strategy.measure_hours * 3600


def longest_path_seconds(before: Mapping[str, Sequence[str]], seconds: Mapping[str, float]) -> float:
    """Return the seconds until all of these are done, each of which waits for those before it: the longest way.

    Names that have no seconds are done, or are others'. On a circle, which blocks its plan, the way ends.
    """
    known: dict[str, float] = {}

    def ends(name: str) -> float:
        if name not in known:
            known[name] = 0.0
            first = (ends(other) for other in before.get(name, ()) if other in seconds)
            known[name] = max(first, default=0.0) + seconds[name]
        return known[name]

    return max((ends(name) for name in seconds), default=0.0)


def summarize(
    batches: Sequence[Sequence[Candidate]],
    strategy: Strategy,
    *,
    budget: int,
    evicted: int,
    values: int,
    at: datetime,
    each: Mapping[Disruption, float] = SECONDS_EACH,
) -> dict[str, Any]:
    """The blast radius, as the plan page and the API show it. `each`: seconds that a node of a class takes."""
    everyone = [c for batch in batches for c in batch]
    drained = [c for c in everyone if c.worst.drains]
    slotted = [c for c in everyone if c.worst.takes_slot]
    gpus_out = sorted((c.gpus for c in slotted), reverse=True)[: max(budget, 0)]
    times = [seconds_of(batch, strategy, budget, each) for batch in batches]
    jobs = {job for c in drained for job in c.jobs}
    control = sum(c.is_control for c in everyone)
    return {
        "nodes": len(everyone),
        "values": values,
        "by_class": dict(Counter(str(c.worst) for c in everyone)),
        "reboots": sum(c.worst is Disruption.REBOOT for c in everyone),
        "drains": len(drained),
        "restarts": sum(c.worst is Disruption.KUBELET_RESTART for c in everyone),
        "nodes_out_at_once": min(len(slotted), budget),
        "gpus_out_at_once": sum(gpus_out),
        "gpu_jobs": len(jobs),
        "gpu_pods": sum(len(c.ends) for c in drained),
        "pods_evicted": evicted,
        "gpu_hours": round(sum(c.gpus * each[c.worst] for c in slotted) / 3600, 1),
        "seconds": sum(times) + (held_back_seconds(strategy) if control else 0),
        **({"control": control} if control else {}),
        "namespaces": affected_namespaces(drained, at),
        "batches": [
            {
                "number": number,
                "is_canary": number == 1 and bool(strategy.canary) and not batch[0].is_control_plane,
                "is_frozen": number <= FROZEN_BATCHES or strategy.order == MEASURED,
                **({"is_control": True} if batch[0].is_control else {}),
                **({"domain": batch[0].domain} if strategy.domain else {}),
                "nodes": len(batch),
                "gpus": sum(c.gpus for c in batch),
                "jobs": len({job for c in batch if c.worst.drains for job in c.jobs}),
                "seconds": seconds,
                "first": batch[0].name,
                "last": batch[-1].name,
            }
            for number, (batch, seconds) in enumerate(zip(batches, times, strict=True), 1)
        ],
    }


def affected_namespaces(drained: Sequence[Candidate], at: datetime) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for candidate in drained:
        for pod in candidate.ends:
            row = rows.setdefault(
                pod["namespace"],
                {
                    "namespace": pod["namespace"],
                    "jobs": set(),
                    "gpus": 0,
                    "pods": 0,
                    "longest": "",
                    "longest_seconds": 0,
                },
            )
            row["jobs"].add((pod["owner_kind"], pod["owner_name"] or pod["name"]))
            row["gpus"] += pod["gpus"]
            row["pods"] += 1
            age = int((at - pod["started_at"]).total_seconds()) if pod["started_at"] else 0
            if age >= row["longest_seconds"]:
                row["longest"], row["longest_seconds"] = pod["owner_name"] or pod["name"], age
    out = [row | {"jobs": len(row["jobs"])} for row in rows.values()]
    return sorted(out, key=lambda r: (-r["gpus"], r["namespace"]))
