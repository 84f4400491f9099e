"""Findings about failure domains: nodes that lack the label by which the strategy keeps batches apart."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.forecast.findings import PlanFinding
from jobs.forecast.schedule import Candidate
from jobs.forecast.strategy import Strategy

USUAL = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/rack",
    "network.topology.nvidia.com/block",
    "network.topology.nvidia.com/spine",
    "nvidia.com/gpu.clique",
)
"""Labels that name where a node is: Kubernetes' well-known one, a usual one for racks, those of NVIDIA's topograph, and
the NVLink domain that GPU feature discovery finds."""


def unlabeled_findings(candidates: Sequence[Candidate], strategy: Strategy) -> list[PlanFinding]:
    lacking = [c.name for c in candidates if not c.domain]
    if not strategy.domain or not lacking:
        return []
    return [
        PlanFinding(
            "warn",
            "no-failure-domain",
            f"Nodes without the label {strategy.domain}",
            "Their domain is unknown: they form one failure domain of their own, after all others.",
            lacking,
        )
    ]
