"""Facts that are counted from the cluster as it is now, by the functions that approval rules count with.

They are counted only for policies that name them: each kind is a query or two for all plans together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from jobs.forecast import owners, rule_facts, rule_shares
from jobs.models import Plan

SHARES = frozenset({"plan.gpu_percent", "plan.node_percent"})
GPUS = frozenset({"plan.most_gpus"})
OWNERS = frozenset({"plan.owners"})
JOBS = frozenset({"plan.most_gpu_jobs", "plan.all_namespaces"})


def live_facts_of(plans: Sequence[Plan], names: Collection[str]) -> dict[UUID, dict[str, Any]]:
    """Return, by plan, those of these facts that are named: `plan.gpu_percent`."""
    facts: dict[UUID, dict[str, Any]] = {plan.pk: {} for plan in plans}
    if not SHARES.isdisjoint(names):
        for pk, (gpus, nodes) in rule_shares.shares_of(plans).items():
            facts[pk] |= {"gpu_percent": 100.0 * gpus, "node_percent": 100.0 * nodes}
    if not OWNERS.isdisjoint(names):
        for pk, rows in owners.owners_of(plans).items():
            facts[pk] |= {"owners": [owner.name for owner in rows]}
    kinds = {kind for kind, of in (("gpus", GPUS), ("jobs", JOBS)) if not of.isdisjoint(names)}
    if kinds:
        for pk, counted in rule_facts.counted_facts(plans, kinds).items():
            facts[pk] |= {"most_gpus": counted.gpus} if "gpus" in kinds else {}
            if "jobs" in kinds:
                facts[pk] |= {"most_gpu_jobs": counted.gpu_jobs, "all_namespaces": sorted(counted.namespaces)}
    return facts
