"""Reasons against removing a cluster or a pool now: answers to the rooms below."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from clusters.models import Cluster
from jobs.models import ApprovalRule, BreakGlass, CalendarRule, Plan, Rollout
from jobs.models.break_glass import DAY
from jobs.policy.judgement import active_version


def of_cluster(cluster: Cluster) -> Iterator[str]:
    """Rollouts that the page of the cluster has read for its panels are not read again."""
    read: list[Rollout] | None = getattr(cluster, "live_rollouts", None)
    for rollout in Rollout.objects.live().with_state().filter(cluster=cluster) if read is None else read:
        yield f"{rollout} is {rollout.state_word}: wait until it ends, or abort it"
    # A rule goes with the cluster that it names, and a deleted rule needs a second administrator's consent.
    for rule in ApprovalRule.objects.filter(cluster=cluster):
        yield f"the approval rule “{rule}” is about this cluster: delete it first, or let it be about an environment"
    active = active_version()
    if active is not None and str(cluster.pk) in active.text:
        yield "the active approval policy names this cluster by its id: activate one that does not"
    # They go with the rollout, and would count no more: neither as used today nor as not reviewed.
    for use in (
        BreakGlass.objects.filter(rollout__cluster=cluster).select_related("rollout").prefetch_related("reviews")
    ):
        if use.missing:
            yield f"the start of {use.rollout} by break-glass lacks reviews: have it reviewed first"
        elif use.counts_today:
            until = f"{use.used_at + DAY:%Y-%m-%d %H:%M} UTC"
            yield f"the start of {use.rollout} by break-glass counts until {until}: wait until then"


def of_pool(pool_id: int) -> Iterator[str]:
    for rollout in Rollout.objects.live().with_state().filter(plan__pool_id=pool_id):
        yield f"{rollout} is {rollout.state_word}: wait until it ends, or abort it"
    for plan in Plan.objects.open().filter(pool_id=pool_id):
        yield f"{plan} is open ({plan.get_status_display().lower()}): withdraw it first"
    # Operators change pools and write no calendar rules: a rule would go, or be about other nodes, without its author.
    for rule in CalendarRule.objects.in_effect().filter(pool=pool_id):
        yield f"the {rule.kind} “{rule}” is for this pool: end it first"


def forget(cluster_id: UUID) -> None:
    """A cluster is being disconnected: its plans and rollouts go with it; what was done stays in the audit record.

    They protect its nodes and pools against being deleted by themselves, so they go first, in this order.
    """
    Rollout.objects.filter(cluster_id=cluster_id).delete()
    Plan.objects.filter(cluster_id=cluster_id).delete()
