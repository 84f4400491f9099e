"""Progress of the rollout as a whole: may it continue, which batch is open, when it stops, and what it waits for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Count

from audit import services as audit
from clusters.models import Cluster
from common.clock import now
from common.errors import LostRace
from compliance.services import assignments, standings
from jobs.approvals import glass, verdicts
from jobs.approvals.tickets import obstacles
from jobs.calendars.open_times import opening_at
from jobs.engine import batch_gates, preconditions, reverting, windows
from jobs.engine.batches import BACKWARDS, count_failures
from jobs.engine.event_log import count_sentence, kinds_sentence, log, set_sentence_unless_held, set_waiting_sentence
from jobs.engine.step_counts import StepTally
from jobs.forecast.strategy import Strategy
from jobs.models import JUDGEMENT, Plan, Rollout, Step
from jobs.planning import component_owners
from jobs.policy import judgement

RS = Rollout.Status
Status = Step.Status

READ_ANEW = ("status", "version", "waiting_for", "waiting_since", "started_at", "extra_failures", "abort_reverts",
             "went_on_at", "freeze_override", "worked_seconds", "working_since")  # fmt: skip
"""Of a rollout's row: all that changes. The plan stays as read, which is of one moment for the whole slice."""


def is_blocked(rollout: Rollout) -> bool:
    """Return whether nothing at all may be done now: another master, or a start that the plan no longer allows."""
    cluster = rollout.cluster
    if cluster.ownership != Cluster.Ownership.OURS:
        set_waiting_sentence(
            rollout,
            f"{cluster} carries the mark of installation {cluster.ownership_mark or 'nobody'}: take it over first.",
        )
        return True
    if rollout.status == RS.QUEUED:
        return not _begin(rollout)
    return False


def _begin(rollout: Rollout) -> bool:
    """Queued to running: the plan must still be the approved one, its window open, and no freeze in effect."""
    plan = rollout.plan
    opening = opening_at(windows.calendar(rollout), now())
    if why := preconditions.freeze_reason(rollout, opening) or windows.closed_reason(rollout, opening):
        set_waiting_sentence(rollout, why)
        return False
    if preconditions.altered_reason(rollout):
        with transaction.atomic():  # or a killed worker leaves steps that are never looked at again
            rollout.move(RS.CANCELLED, finished_at=now(), waiting_for="", waiting_since=None)
            log(rollout, "The plan is not what was approved: its digest differs. Nothing was started.", "bad")
            reverting.end_queued(rollout, Status.SKIPPED, "The plan was changed after approval.")
        return False
    if plan.judgement != JUDGEMENT:
        set_waiting_sentence(rollout, f"{plan.late} Abort this rollout.")
        return False
    if not verdicts.approval_state(plan).is_approved and (why := glass.reason_not_to_begin(rollout)):
        set_waiting_sentence(rollout, why)
        return False
    if why := judgement.refusal_reason(plan, at_start=True):  # of a scheduled start: the policy or the hour is another
        set_waiting_sentence(rollout, why)
        return False
    with transaction.atomic():
        # Its lock first, which a hold takes as well: that comes before this and counts, or it holds the first step.
        Rollout.objects.select_for_update(no_key=True).filter(pk=rollout.pk).first()
        if why := _ticket_obstacle(rollout):
            set_waiting_sentence(rollout, why)
            return False
        rollout.move(RS.RUNNING, started_at=now(), waiting_for="", waiting_since=None)
        strategy = Strategy.from_json(plan.strategy)
        assignments.assign(
            plan.pool, plan.revision, enforce=strategy.enforce, rollout_id=rollout.pk, by=rollout.started_by
        )
        component_owners.store_owners(rollout.cluster)
        log(rollout, f"Started {plan} of {plan.revision}.")
    # Outside: thousands of nodes now wait for their turn.
    standings.renew_pool(plan.pool, known_up_to=plan.summary.get("newest_node"))
    return True


def _ticket_obstacle(rollout: Rollout) -> str:
    """Break-glass passes what a change record lacks, and is stopped by what its ticket system holds."""
    plan = Plan.objects.select_related("cluster").get(pk=rollout.plan_id)  # its reference, as it is under the lock
    return obstacles.stop_reason(plan) if glass.is_in_force(rollout) else obstacles.obstacle(plan)


def start_hindrance(rollout: Rollout, tally: StepTally) -> str | None:
    """Explain, in a sentence, why queued steps may not begin now (empty: the status says it all); None when they may.

    Asked once for one tally, which is as old as the answer.
    """
    if not tally.hindrance:
        tally.hindrance.append(_hindrance(rollout, tally))
    return tally.hindrance[0]


def _hindrance(rollout: Rollout, tally: StepTally) -> str | None:
    if rollout.status == RS.PAUSED:
        return "Paused by an operator; in-progress nodes finish."
    if rollout.status not in (RS.RUNNING, RS.REVERTING, RS.ABORTING):
        return ""
    opening = opening_at(windows.calendar(rollout), now())
    if freeze := preconditions.freeze_reason(rollout, opening):
        return freeze
    if altered := preconditions.altered_reason(rollout):
        return f"{altered} Nothing is started."
    if rollout.status in BACKWARDS:
        return None
    if closed := windows.closed_reason(rollout, opening):
        return closed
    if count_failures(rollout, tally) > Strategy.from_json(rollout.plan.strategy).max_failures:
        return ""
    gate = batch_gates.holding_gate(rollout)
    return f"A gate holds the next batch: {gate.reason}" if gate else None


def may_start(rollout: Rollout, tally: StepTally) -> bool:
    """Return whether queued steps may begin now; if not, the rollout's sentence says why."""
    why = start_hindrance(rollout, tally)
    if why:
        set_sentence_unless_held(rollout, tally, why)
    return why is None


def settle(rollout: Rollout, tally: StepTally | None = None) -> bool:
    """End the rollout when nothing is left to do; otherwise say what it waits for. Returns whether it ended.

    Without a tally, row and steps are read again, in this order: taking a step up again also changes the row, so
    that an end that did not see it loses the race.
    """
    if tally is None:
        rollout.refresh_from_db(fields=READ_ANEW)
    if rollout.status not in Rollout.LIVE or rollout.status == RS.QUEUED:
        return False
    standing = tally or StepTally(rollout)
    counts: Counter[str] = Counter()
    waiting = 0  # forwards, while the rollout goes backwards: they wait for its end
    for group in standing:
        counts[group.status] += group.count
        is_forwards = group.status in (Status.QUEUED, Status.HELD) and group.direction == Step.Direction.FORWARD
        waiting += group.count if is_forwards and rollout.status == RS.REVERTING else 0
    live = sum(counts[s] for s in (*Step.ACTIVE, Status.QUEUED, Status.HELD)) - waiting
    if rollout.status in (RS.PAUSED, RS.STOPPED):
        _say_what(rollout, standing, counts)
        return _expire_attention(rollout)
    if live:
        _say_what(rollout, standing, counts)
        return False
    if tally is not None:
        return settle(rollout)
    if waiting:
        rollout.move(RS.PAUSED, waiting_for="", waiting_since=now())
        log(
            rollout,
            f"Reverted the chosen nodes; {waiting} nodes wait for an operator to resume or abort.",
            "warn",
        )
        return False
    _finish(rollout, counts, standing)
    return False


def _finish(rollout: Rollout, counts: Mapping[str, int], tally: StepTally) -> None:
    end = {RS.ABORTING: RS.CANCELLED, RS.REVERTING: RS.REVERTED}.get(RS(rollout.status), RS.SUCCEEDED)
    if end == RS.REVERTED and counts.get(Status.SUCCEEDED):
        end = RS.SUCCEEDED  # one node was put back, and the others can still be
    if counts.get(Status.FAILED) and end != RS.CANCELLED:
        end = RS.FAILED
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for group in tally:
        kinds[group.status][group.kind] += group.count
    text = ", ".join(f"{kinds_sentence(by_kind)} {status}" for status, by_kind in sorted(kinds.items()))
    with transaction.atomic():
        try:
            rollout.move(end, finished_at=now(), waiting_for="", waiting_since=None)
        except LostRace:
            return
        log(
            rollout, f"{rollout.get_status_display()}: {text}.", "info" if end in (RS.SUCCEEDED, RS.REVERTED) else "bad"
        )
        audit.record(
            by=None,
            action=f"rollout.{end}",
            target=f"rollout:{rollout.pk}",
            target_name=str(rollout),
            cluster_id=rollout.cluster_id,
            after={"steps": counts},
        )
        if end == RS.REVERTED:
            assignments.take_back(rollout.pk)
            component_owners.store_owners(rollout.cluster)
    if end == RS.REVERTED:
        standings.renew_pool(rollout.plan.pool)


def _expire_attention(rollout: Rollout) -> bool:
    """Abort a rollout that was paused or stopped and got no decision in time (law 4).
    What was under way has finished long ago.
    """
    since = rollout.waiting_since or rollout.started_at
    if since is None or now() - since < timedelta(hours=settings.SETPOINT_WAIT_HOURS):
        return False
    rollout.move(RS.ABORTING, waiting_for="")
    log(rollout, f"No decision for {settings.SETPOINT_WAIT_HOURS} hours: aborting.", "bad")
    return True


def _say_what(rollout: Rollout, tally: StepTally, counts: Mapping[str, int]) -> None:
    """The step that has waited longest speaks for the rollout."""
    if rollout.status == RS.STOPPED:
        failed = rollout.steps.filter(status=Status.FAILED)
        by_kind = dict(failed.values_list("kind").annotate(Count("pk")).order_by())
        set_waiting_sentence(
            rollout, f"Stopped: {kinds_sentence(by_kind)} failed. An operator must retry, skip, revert or abort."
        )
        return
    if tally.holds(rollout):
        _say_held(rollout, counts)
        return
    speaker = _speaker(rollout, tally, Step.ACTIVE)
    if not speaker:
        if why := start_hindrance(rollout, tally):
            set_waiting_sentence(rollout, why)
            return
        speaker = _speaker(rollout, tally, (Status.QUEUED,))
    if speaker:
        set_waiting_sentence(rollout, f"{speaker.name}, {speaker.status}: {speaker.waiting_for}")
        return
    if under_way := sum(counts.get(s, 0) for s in Step.ACTIVE):
        # What was waited for is over, and what comes next is not known: the old sentence would not be true.
        set_waiting_sentence(rollout, f"{under_way} node{'' if under_way == 1 else 's'} in progress.")


def _say_held(rollout: Rollout, counts: Mapping[str, int]) -> None:
    """Say which steps are held, before anything that waits for itself: only an operator can continue them."""
    held = list(rollout.steps.filter(status=Status.HELD).order_by("entered_at", "position"))
    if rollout.status == RS.REVERTING:
        held = [step for step in held if step.direction == Step.Direction.REVERT]
    if not held:
        return
    first = held[0]
    if len(held) == 1:
        sentence = f"{first.name} is held: {first.error} An operator must retry or skip it."
    else:
        sentence = f"{count_sentence(held)} are held. An operator must retry or skip them. {first.name}: {first.error}"
    others = sum(counts.get(s, 0) for s in (*Step.ACTIVE, Status.QUEUED))
    is_moving = any(counts.get(s) for s in Step.ACTIVE)
    rest = f" {others} more {'continue' if is_moving else 'wait'} meanwhile." if others else ""
    set_waiting_sentence(rollout, sentence[: 500 - len(rest)] + rest, first.entered_at)


def _speaker(rollout: Rollout, tally: StepTally, statuses: Collection[str]) -> Step | None:
    if not tally.has_any(statuses):
        return None
    steps = rollout.steps.filter(status__in=statuses).exclude(waiting_for="").order_by("entered_at", "pk")
    return steps.only("rollout", "status", "waiting_for", "node_name", "component").first()
