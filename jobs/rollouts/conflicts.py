"""Conflicts of a rollout's steps: with other rollouts, and with components that depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.conf import settings
from django.db.models import Q, QuerySet

from common.clock import now
from common.errors import WrongState
from compliance.models import NodeExpectation
from jobs.diffs import dependency_graph
from jobs.models import Rollout, Step

Status = Step.Status

BUSY = "Not possible: another rollout works on one of these nodes or components now."


def same_nodes_or_releases(steps: Sequence[Step]) -> Q:
    """Steps about the same nodes or releases."""
    nodes = [s.node_id for s in steps if s.node_id is not None]
    return Q(node__in=nodes) | Q(release__in=[s.release for s in steps if s.release])


def refuse_busy(rollout: Rollout, steps: Sequence[Step]) -> None:
    live = Step.objects.filter(same_nodes_or_releases(steps), is_live=True).exclude(rollout=rollout)
    if other := live.select_related("rollout").first():
        raise WrongState(f"Not possible: {other.rollout} works on {other.name} now.")


def refuse_late(rollout: Rollout) -> None:
    last = rollout.finished_at or now()
    if now() - last > timedelta(days=settings.SETPOINT_REVERT_DAYS):
        raise WrongState(
            f"{rollout} ended more than {settings.SETPOINT_REVERT_DAYS} days ago: make a new plan instead."
        )


def refuse_foreign(rollout: Rollout, steps: Sequence[Step]) -> None:
    """Going back, and trying again, touch only nodes and releases that no later rollout has begun to write.

    Judged by the node's expectation, not by its keys: a later revision may have dropped them.
    """
    nodes = [s.node_id for s in steps if s.node_id is not None]
    expectations = NodeExpectation.objects.filter(node__in=nodes, since__gte=rollout.created_at)
    foreign = expectations.exclude(rollout_id=rollout.pk).select_related("node").first()
    later = later_releases(rollout).filter(release__in=[s.release for s in steps if s.release]).first()
    name = foreign.node.name if foreign else later.component if later else ""
    if name:
        raise WrongState(
            f"A later rollout changed {name}: {rollout} can neither be reverted nor retried there. Make a new plan."
        )


def later_releases(rollout: Rollout) -> QuerySet[Step]:
    """Return components that rollouts after this one have begun to write, and did not revert."""
    later = Step.objects.of_components().filter(has_applied=True, rollout__number__gt=rollout.number)
    return later.exclude(status=Status.REVERTED).filter(rollout__cluster=rollout.cluster_id)


def dependent_components(rollout: Rollout, step: Step) -> list[str]:
    """Components that require this one and stand: it cannot be put back alone."""
    graph = dependency_graph.step_order(rollout)
    return graph.standing_on(step.component) if graph else []


def requires_sentence(others: Sequence[str], name: str) -> str:
    verb = "requires" if len(others) == 1 and " " not in others[0] else "require"  # `queues of volcano` are several
    return f"{' and '.join(others)} {verb} {name} and would break: revert the whole rollout"
