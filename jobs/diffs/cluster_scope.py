"""Changes of the cluster itself, beside its nodes: Helm releases and policy objects, each by its own functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clusters.connection import registry
from clusters.models import Cluster
from components.plans.prepared import ReadinessResult
from components.policies import policy_objects
from components.policies.policy_objects import PreparedPolicies
from components.release import work
from jobs.models import Plan, PlanComponent, Step

Prepared = work.Prepared | PreparedPolicies


@dataclass(frozen=True, slots=True)
class StateTexts:
    """Texts of a step's states while it is carried out."""

    waits: str
    unserved: str
    """When no worker came in time."""
    runs: str
    ended: str
    again: str
    """Followed by why."""
    stopped: str
    """Followed by why."""


STATE_TEXTS: Mapping[str, StateTexts] = {
    Step.Kind.COMPONENT: StateTexts(
        waits="Waiting for a worker to run helm.",
        unserved="No worker picked up helm: is one running for the queue `helm`?",
        runs="helm is running.",
        ended="helm succeeded.",
        again="Retrying helm:",
        stopped="helm was stopped:",
    ),
    Step.Kind.POLICIES: StateTexts(
        waits="Waiting for a worker to apply them.",
        unserved="No worker picked them up: is one running?",
        runs="They are being applied.",
        ended="All of them are written.",
        again="Tried again:",
        stopped="Stopped:",
    ),
}


def read_prepared(row: PlanComponent) -> Prepared:
    if row.kind == PlanComponent.Kind.POLICIES:
        return PreparedPolicies.from_json(row.prepared)
    return work.Prepared.from_json(row.prepared)


def step_kind(row: PlanComponent) -> str:
    return Step.Kind.POLICIES if row.kind == PlanComponent.Kind.POLICIES else Step.Kind.COMPONENT


def release_key(plan: Plan, row: PlanComponent) -> str:
    """Return the key that no two live steps share, and by which later rollouts of the same object are found:
    Step.release.

    A release is one in its cluster. Objects of two pools are never the same: the plan leaves them out, or is blocked.
    """
    if row.kind == PlanComponent.Kind.POLICIES:
        return f"{plan.cluster_id}/pool:{plan.pool_id}/{row.component}"
    return f"{plan.cluster_id}/{row.namespace}/{row.release}"


def carry_out(
    cluster: Cluster,
    prepared: Prepared,
    *,
    direction: str,
    deadline: float,
    stop: Callable[[], bool],
    tell: Callable[[str], None],
) -> None:
    """Idempotent, for minutes; hold no transaction. Raises FleetError, HelmError or Refusal."""
    if isinstance(prepared, PreparedPolicies):
        fleet = registry.connect(cluster)
        policy_objects.carry_out(fleet, prepared, direction=direction, deadline=deadline, stop=stop, tell=tell)
    else:
        work.carry_out(cluster, prepared, direction=direction, deadline=deadline, stop=stop, tell=tell)


def check_readiness(
    cluster: Cluster, prepared: Prepared, *, direction: str, seen: int | None = None
) -> ReadinessResult:
    """One look, now: is it what was approved (or what it was before), and ready? Raises FleetError.

    `seen`: how many looks just before were steady (ReadinessResult.is_steady).
    """
    if isinstance(prepared, PreparedPolicies):
        return policy_objects.check_readiness(registry.connect(cluster), prepared, direction=direction, seen=seen)
    return work.check_readiness(cluster, prepared, direction=direction, seen=seen)
