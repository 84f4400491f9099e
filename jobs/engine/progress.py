"""The rollout as a whole: may it go on, which batch is open, when does it stop, and the sentence that says what it
waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Max, Min

from audit import services as audit
from clusters.models import Cluster
from common.clock import now
from common.errors import LostRace
from compliance.models import Assignment
from jobs import planning
from jobs.changes import Disruption
from jobs.engine.commit import deadline_for, moved
from jobs.models import Freeze, Rollout, Signal, Slot, Step, StepEvent
from jobs.strategy import Strategy

RS = Rollout.Status
Status = Step.Status

BACKWARDS = (RS.REVERTING, RS.ABORTING)
RESTED = ["status", "error", "version", "entered_at", "waiting_for", "not_before", "is_live", "stages", "deadline_at"]


def say(rollout: Rollout, sentence: str) -> None:
    """Change what the page says is waited for; nothing is written when it is the same (law 4)."""
    sentence = sentence[:500]
    if rollout.waiting_for != sentence:
        rollout.waiting_for, rollout.waiting_since = sentence, now()
        Rollout.objects.filter(pk=rollout.pk).update(waiting_for=sentence, waiting_since=rollout.waiting_since)


def log(rollout: Rollout, text: str, level: str = "info", step: Step | None = None) -> None:
    StepEvent.objects.create(rollout=rollout, step=step, level=level, text=text[:1000])


def obstacle(rollout: Rollout) -> bool:
    """Whether nothing at all may be done now: another master, or a start that the plan no longer allows."""
    cluster = rollout.cluster
    if cluster.ownership != Cluster.Ownership.OURS:
        say(
            rollout,
            f"{cluster} carries the mark of installation {cluster.ownership_mark or 'nobody'}: take it over first.",
        )
        return True
    if rollout.status == RS.QUEUED:
        return not _begin(rollout)
    return False


def _begin(rollout: Rollout) -> bool:
    """Queued to running: the plan must still be the approved one, and no freeze may stand."""
    plan = rollout.plan
    if freeze := Freeze.standing(rollout.cluster_id).first():
        say(rollout, f"A freeze stands: {freeze.reason}")
        return False
    if not planning.is_as_approved(plan):
        with transaction.atomic():  # or a killed worker leaves steps that nobody looks at again
            rollout.move(RS.CANCELLED, finished_at=now(), waiting_for="")
            log(rollout, "The plan is not what was approved: its digest differs. Nothing was started.", "bad")
            rest(rollout, Status.SKIPPED, "The plan was changed after approval.")
        return False
    with transaction.atomic():
        rollout.move(RS.RUNNING, started_at=now(), waiting_for="")
        strategy = Strategy.from_json(plan.strategy)
        Assignment.objects.update_or_create(
            pool=plan.pool,
            defaults={
                "revision": plan.revision,
                "mode": Assignment.Mode.ENFORCE if strategy.enforce else Assignment.Mode.APPLY,
                "rollout_id": rollout.pk,
                "set_by": rollout.started_by,
                "set_at": now(),
            },
        )
        log(rollout, f"Started {plan} of {plan.revision}.")
    return True


def failures(rollout: Rollout) -> int:
    failed = rollout.steps.filter(status=Status.FAILED, direction=Step.Direction.FORWARD).count()  # type: ignore[attr-defined]
    return max(0, failed - rollout.extra_failures)


def hindrance(rollout: Rollout) -> str | None:
    """Why queued steps may not begin now, as a sentence (empty: the status says it all); None when they may."""
    if rollout.status == RS.PAUSED:
        return "Paused by a person; nodes under way finish."
    if rollout.status not in (RS.RUNNING, RS.REVERTING, RS.ABORTING):
        return ""
    freeze = Freeze.standing(rollout.cluster_id).first()
    if freeze and not (rollout.status == RS.REVERTING and rollout.freeze_override):
        return f"A freeze stands: {freeze.reason}"
    if not planning.is_as_approved(rollout.plan):
        return "The plan is not what was approved any more: its digest differs. Nothing is started."
    if rollout.status in BACKWARDS:
        return None
    if failures(rollout) > Strategy.from_json(rollout.plan.strategy).max_failures:
        return ""
    gate = Signal.objects.filter(kind="gate", scope=f"rollout:{rollout.pk}", expires_at__gt=now()).first()
    return f"A gate holds the next batch: {gate.reason}" if gate else None


def may_start(rollout: Rollout) -> bool:
    """Whether queued steps may begin now; if not, the sentence says why."""
    why = hindrance(rollout)
    if why:
        say(rollout, why)
    return why is None


def direction(rollout: Rollout) -> str | None:
    """Of a rollout that is put back or aborted only steps that go backwards may start; of others, any."""
    return Step.Direction.REVERT if rollout.status in BACKWARDS else None


def open_batch(rollout: Rollout) -> int | None:
    """The lowest batch with queued steps, once everything before it rests and has soaked."""
    steps = rollout.steps.all()  # type: ignore[attr-defined]
    queued = steps.filter(status=Status.QUEUED)
    if rollout.status in BACKWARDS:
        queued = queued.filter(direction=Step.Direction.REVERT)
    batch: int | None = queued.aggregate(Min("batch"))["batch__min"]
    if batch is None or rollout.status in BACKWARDS:
        return batch
    earlier = steps.filter(batch__lt=batch)
    if earlier.filter(status__in=Step.ACTIVE).exists():
        return None
    strategy = Strategy.from_json(rollout.plan.strategy)
    if (held := earlier.filter(status=Status.HELD).count()) and held + failures(rollout) > strategy.max_failures:
        # Held is no failure yet, but a canary that waits for a person has not shown that going on is safe.
        first = earlier.filter(status=Status.HELD).earliest("entered_at")
        say(rollout, f"{first.node_name} is held: {first.error} A person must retry or skip it.")
        return None
    soak = strategy.soak_seconds
    if not soak:
        return batch
    # Disruptive steps soak each for itself, holding their batch; live ones soak here, as a batch.
    last = earlier.filter(status=Status.SUCCEEDED, worst_class__in=(Disruption.LIVE, Disruption.NEW_PODS)).aggregate(
        Max("entered_at")
    )["entered_at__max"]
    until = last + timedelta(seconds=soak) if last else None
    if until and until > now():
        say(rollout, f"Soaking after batch {batch - 1} until {until:%H:%M:%S} UTC, then batch {batch}.")
        return None
    return batch


def turn_round(rollout: Rollout) -> int:
    """Aborting and failing, carried out on steps: skip what is queued, put back what was asked to be put back."""
    strategy = Strategy.from_json(rollout.plan.strategy)
    if rollout.status not in Rollout.LIVE:
        return 0
    if rollout.status == RS.ABORTING:
        with transaction.atomic():
            count = rest(rollout, Status.SKIPPED, "The rollout was aborted before this node's turn.")
            count += _revert_active(rollout, strategy) if rollout.abort_reverts else 0
            return count + _give_up_held(rollout, "The rollout was aborted while this node was held.")
    if late := _give_up_held(rollout, f"Nobody decided for {settings.SETPOINT_WAIT_HOURS} hours.", by=now()):
        return late
    if rollout.status == RS.RUNNING and failures(rollout) > strategy.max_failures:
        rollout.move(RS.STOPPED, waiting_for="", waiting_since=now())
        log(
            rollout,
            f"Stopped: {failures(rollout)} failed, {strategy.max_failures} allowed. Nodes under way finish.",
            "bad",
        )
        return 1
    if rollout.status == RS.STOPPED and strategy.on_failure != "stop":
        return _after_failure(rollout, strategy)
    return 0


def _after_failure(rollout: Rollout, strategy: Strategy) -> int:
    """What the approved strategy says is to be done about failures: put back the failed nodes, or all of them."""
    steps = rollout.steps.filter(has_applied=True, direction=Step.Direction.FORWARD)  # type: ignore[attr-defined]
    if rollout.steps.filter(status__in=Step.ACTIVE).exists():  # type: ignore[attr-defined]
        return 0
    if strategy.on_failure == "revert-node":
        steps = steps.filter(status=Status.FAILED)
    else:
        steps = steps.filter(status__in=(Status.SUCCEEDED, Status.FAILED, Status.HELD))
    if not steps.exists():
        return 0
    with transaction.atomic():
        rollout.move(RS.REVERTING, waiting_for="", freeze_override="")
        chosen = list(steps.select_for_update())
        if strategy.on_failure == "revert-all":
            rest(rollout, Status.SKIPPED, "The rollout is being put back.")
        turn(chosen, strategy)
        log(rollout, f"Putting back {len(chosen)} nodes, as the approved strategy says.", "warn")
    return len(chosen)


def _give_up_held(rollout: Rollout, why: str, *, by: datetime | None = None) -> int:
    """Held steps, or with `by` those whose deadline is over by then: nobody decided (law 4).

    A disturbed node stays a failure, with cordon and slot (law 14); another is passed over when the rollout ends, and a
    failure while it goes on.
    """
    held = rollout.steps.filter(status=Status.HELD)  # type: ignore[attr-defined]
    if by is not None:
        held = held.filter(deadline_at__lt=by)
    if not held.exists():
        return 0
    with transaction.atomic():
        rows = list(held.select_for_update())
        for step in rows:
            to = Status.SKIPPED if by is None and not has_our_cordon(step) else Status.FAILED
            moved(step, to, error=f"{why} It was held: {step.error}"[:1000], version=step.version + 1, deadline_at=None)
        Step.objects.bulk_update(rows, RESTED, batch_size=100)
    for step in rows:
        log(rollout, f"{step.status}: {why}", "warn", step)
    return len(rows)


def has_our_cordon(step: Step) -> bool:
    return step.is_disrupted or step.is_ours_to_uncordon


def _revert_active(rollout: Rollout, strategy: Strategy) -> int:
    """Turn steps round that have written; those inside a granted restart finish it first.

    Those that have not are given back: nothing more of them is evicted.
    """
    with transaction.atomic():
        rows = list(
            rollout.steps.select_for_update().filter(  # type: ignore[attr-defined]
                status__in=(*Step.ACTIVE, Status.HELD), direction=Step.Direction.FORWARD, claim="", ending=""
            )
        )
        chosen = [s for s in rows if s.has_applied and not (s.status == Status.RESTARTING and s.granted_at)]
        turn(chosen, strategy)
        early = [s for s in rows if not s.has_applied and s.status in (Status.CORDONING, Status.DRAINING)]
        for step in early:
            moved(step, Status.RETURNING, ending=Status.SKIPPED, version=step.version + 1)
            step.deadline_at = deadline_for(step, strategy)
        Step.objects.bulk_update(early, [*RESTED, "ending"], batch_size=100)
    return len(chosen) + len(early)


def turn(steps: list[Step], strategy: Strategy) -> None:
    """Back to the queue, in the other direction, as a new attempt. Slots and cordons stay as they are."""
    for step in steps:
        moved(
            step,
            Status.QUEUED,
            direction=Step.Direction.REVERT,
            attempt=step.attempt + 1,
            version=step.version + 1,
            error="",
            failed_in="",
            generation=0,
            granted_at=None,
            ending="",
            boot_id="",
            stages={},
            recordoned=0,
        )
        step.deadline_at = deadline_for(step, strategy)
    Step.objects.bulk_update(
        steps,
        ["status", "direction", "attempt", "version", "error", "failed_in", "generation", "granted_at",
         "ending", "boot_id", "stages", "recordoned", "entered_at", "waiting_for", "not_before", "is_live",
         "deadline_at"],
        batch_size=100,
    )  # fmt: skip


def rest(rollout: Rollout, to: str, why: str) -> int:
    """Queued steps end without having begun."""
    with transaction.atomic():
        # Claimed ones as well: who holds one has written nothing yet, and its version keeps it from committing.
        rows = list(
            rollout.steps.select_for_update().filter(status=Status.QUEUED, direction=Step.Direction.FORWARD)  # type: ignore[attr-defined]
        )
        for step in rows:
            # One that waits to be tried again has a disturbed node: it stays a failure, with cordon and slot (law 14).
            end = Status.FAILED if has_our_cordon(step) else to
            moved(step, end, error=why, version=step.version + 1, deadline_at=None)
        Step.objects.bulk_update(rows, RESTED, batch_size=100)
        Slot.objects.filter(step__in=[s for s in rows if not has_our_cordon(s)]).delete()
    return len(rows)


def settle(rollout: Rollout) -> bool:
    """End the rollout when nothing is left to do; otherwise say what it waits for. Returns whether it ended."""
    rollout.refresh_from_db()
    if rollout.status not in Rollout.LIVE or rollout.status == RS.QUEUED:
        return False
    counts: Counter[str] = Counter()
    waiting = 0  # forwards, while the rollout goes backwards: they wait for its end
    for status, way, count in (
        rollout.steps.values_list("status", "direction").annotate(Count("pk")).order_by()  # type: ignore[attr-defined]
    ):
        counts[status] += count
        if status in (Status.QUEUED, Status.HELD) and way == Step.Direction.FORWARD and rollout.status == RS.REVERTING:
            waiting += count
    live = sum(counts[s] for s in (*Step.ACTIVE, Status.QUEUED, Status.HELD)) - waiting
    if rollout.status in (RS.PAUSED, RS.STOPPED):
        _say_what(rollout, counts)
        return _expire_attention(rollout)
    if live:
        _say_what(rollout, counts)
        return False
    if waiting:
        rollout.move(RS.PAUSED, waiting_for="", waiting_since=now())
        log(rollout, f"Put back what was to be put back; {waiting} nodes wait for a person to resume or abort.", "warn")
        return False
    _finish(rollout, counts)
    return False


def _finish(rollout: Rollout, counts: Mapping[str, int]) -> None:
    end = {RS.ABORTING: RS.CANCELLED, RS.REVERTING: RS.REVERTED}.get(RS(rollout.status), RS.SUCCEEDED)
    if end == RS.REVERTED and counts.get(Status.SUCCEEDED):
        end = RS.SUCCEEDED  # one node was put back, and the others can still be
    if counts.get(Status.FAILED) and end != RS.CANCELLED:
        end = RS.FAILED
    text = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
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


def _expire_attention(rollout: Rollout) -> bool:
    """Paused or stopped, and nobody came: what is under way has finished long ago, so it is aborted (law 4)."""
    since = rollout.waiting_since or rollout.started_at
    if since is None or now() - since < timedelta(hours=settings.SETPOINT_WAIT_HOURS):
        return False
    rollout.move(RS.ABORTING, waiting_for="")
    log(rollout, f"Nobody decided for {settings.SETPOINT_WAIT_HOURS} hours: aborting.", "bad")
    return True


def _say_what(rollout: Rollout, counts: Mapping[str, int]) -> None:
    """The step that has waited longest speaks for the rollout."""
    if rollout.status == RS.STOPPED:
        failed = counts.get(Status.FAILED, 0)
        nodes = "1 node" if failed == 1 else f"{failed} nodes"
        say(rollout, f"Stopped: {nodes} failed. A person must retry, skip, revert or abort.")
        return
    steps = rollout.steps.exclude(waiting_for="").order_by("entered_at")  # type: ignore[attr-defined]
    speaker = steps.filter(status__in=Step.ACTIVE).first()
    if not speaker:
        if why := hindrance(rollout):
            say(rollout, why)
            return
        speaker = steps.filter(status=Status.QUEUED).first()
    if speaker:
        say(rollout, f"{speaker.node_name}, {speaker.status}: {speaker.waiting_for}")
        return
    held = rollout.steps.filter(status=Status.HELD).order_by("entered_at").first()  # type: ignore[attr-defined]
    if held and not any(counts.get(s) for s in (*Step.ACTIVE, Status.QUEUED)):
        say(rollout, f"{held.node_name} is held: {held.error} A person must retry or skip it.")


def rest_queued(rollout: Rollout, why: str) -> int:
    return rest(rollout, Status.SKIPPED, why)
