"""Selection of the current batch and its nodes.

Canary and first batch are as approved; later ones are a forecast, made again by the approved order rule as each opens.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from django.db import transaction
from django.db.models import Max

from common.clock import now
from jobs.diffs.changes import Disruption
from jobs.engine import batch_gates
from jobs.engine.event_log import clock_time, log, set_sentence_unless_held
from jobs.engine.step_counts import StepTally
from jobs.forecast import schedule
from jobs.forecast.strategy import MEASURED, Strategy
from jobs.models import Rollout, Slot, Step
from jobs.planning import comparison

RS = Rollout.Status
Status = Step.Status

BACKWARDS = (RS.REVERTING, RS.ABORTING)


def count_failures(rollout: Rollout, tally: StepTally) -> int:
    """Count failed nodes: a failed component stops only what depends on it, see jobs.diffs.dependency_graph."""
    return max(0, tally.nodes((Status.FAILED,), Step.Direction.FORWARD) - rollout.extra_failures)


def start_direction(rollout: Rollout) -> str | None:
    """Return the only direction in which steps may start: backwards while reverting or aborting; else None, any."""
    return Step.Direction.REVERT if rollout.status in BACKWARDS else None


def next_batch(rollout: Rollout, tally: StepTally) -> int | None:
    """Return the lowest batch with queued steps, once everything before it rests.
    None: nothing can start now, and no other condition need be checked.
    """
    batch = tally.first_batch((Status.QUEUED,), start_direction(rollout))
    if batch is None:
        return None
    if why := other_domain_out(rollout, batch, tally):
        set_sentence_unless_held(rollout, tally, why)
        return None
    if rollout.status in BACKWARDS:
        return batch
    if (tally.first_batch(Step.ACTIVE) or batch) < batch:
        return None
    return batch


def other_domain_out(rollout: Rollout, batch: int, tally: StepTally) -> str | None:
    """Explain which nodes of another failure domain are out, where the strategy keeps domains apart; None: none are.

    A batch is of one domain, so a node that is tried again, or reverted, waits for a later batch as well. On the way
    forward a node that failed or is held also counts while it keeps its slot: it still is out of service. On the way
    back it does not, because what it waits for may be an operator.
    """
    if not Strategy.from_json(rollout.plan.strategy).domain:
        return None
    if tally.is_any_beside(batch, Step.ACTIVE):
        return "Another failure domain is in progress."
    if rollout.status in BACKWARDS:
        return None
    slots = Slot.objects.filter(step__rollout=rollout, step__kind=Step.Kind.NODE).exclude(step__batch=batch)
    out = slots.order_by("step__position").values_list("step__node_name", flat=True).first()
    return f"{out} is out of service and of another failure domain: retry, skip or revert it." if out else None


def may_open(rollout: Rollout, batch: int, tally: StepTally) -> bool:
    """Return whether the next batch may begin: what is before it has soaked, and nothing holds it back."""
    if rollout.status in BACKWARDS:
        return True
    strategy = Strategy.from_json(rollout.plan.strategy)
    earlier = rollout.steps.of_nodes().filter(batch__lt=batch)
    if _held_before(batch, rollout, tally, strategy):
        return False  # `progress.settle` says which
    if why := batch_gates.batch_waits(rollout, batch, strategy):
        set_sentence_unless_held(rollout, tally, why)
        return False
    soak = strategy.soak_seconds
    if not soak:
        return True
    # Disruptive steps soak each for itself, holding their batch; live ones soak here, as a batch.
    last = earlier.filter(status=Status.SUCCEEDED, worst_class__in=(Disruption.LIVE, Disruption.NEW_PODS)).aggregate(
        Max("entered_at")
    )["entered_at__max"]
    until = last + timedelta(seconds=soak) if last else None
    if until and until > now():
        set_sentence_unless_held(
            rollout, tally, f"Soaking after batch {batch - 1} until {clock_time(until)}, then batch {batch}."
        )
        return False
    return True


def _held_before(batch: int, rollout: Rollout, tally: StepTally, strategy: Strategy) -> bool:
    """Held is no failure yet, but a canary that waits for an operator has not shown that it is safe to continue."""
    if (tally.first_batch((Status.HELD,)) or batch) >= batch:
        return False
    held_count = rollout.steps.of_nodes().filter(batch__lt=batch, status=Status.HELD).count()
    return bool(held_count) and held_count + count_failures(rollout, tally) > strategy.max_failures


def reorder(rollout: Rollout, batch: int, strategy: Strategy) -> None:
    """Order the nodes that have not begun again, as a later batch opens: by the order rule, as the cluster is now.
    Places stay, so batches keep their sizes; control-plane nodes keep theirs, and so do nodes that are tried again
    and those that joined since. A node takes only the place of one of its own failure domain.
    """
    steps = rollout.steps.of_nodes()
    untouched = {"status": Status.QUEUED, "waiting_for": "", "attempt": 1}
    if batch <= schedule.FROZEN_BATCHES or strategy.order in ("name", MEASURED):
        return
    if steps.filter(batch=batch).exclude(status=Status.SKIPPED).exclude(**untouched).exists():
        return  # it has opened already
    with transaction.atomic():
        Rollout.objects.select_for_update(no_key=True).get(pk=rollout.pk)  # before any step, as everywhere
        waiting = steps.select_for_update(of=("self",)).filter(
            **untouched,
            claim="",
            batch__gte=batch,
            plan_node__batch__gt=0,
            direction=Step.Direction.FORWARD,
            node__is_control_plane=False,
        )
        rows = list(waiting.select_related("node", "plan_node").order_by("batch", "position"))
        pods, signals = comparison.gpu_pods(rollout.cluster), comparison.order_signals(s.node for s in rows if s.node)
        by_domain: dict[str, list[Step]] = defaultdict(list)
        for step in rows:
            by_domain[step.plan_node.domain if step.plan_node else ""].append(step)
        moved: list[tuple[Step, tuple[int, int]]] = []
        for steps_of_domain in by_domain.values():
            places = [(s.batch, s.position) for s in steps_of_domain]
            ordered = sorted(
                steps_of_domain,
                key=lambda s: schedule.idle_first_key(s.node_name, pods, signals.get(s.node_key, 0.0)),
            )
            moved += [(s, place) for s, place in zip(ordered, places, strict=True) if (s.batch, s.position) != place]
        for step, place in moved:
            step.batch, step.position = place
        Step.objects.bulk_update([step for step, _ in moved], ["batch", "position"], batch_size=200)
        if moved:
            log(
                rollout,
                f"Batch {batch} opens: {len(moved)} nodes that had not started were reordered, idle ones first.",
            )
