"""Start of a rollout, and what a person does with it; `possible_actions` says what its state permits (law 10)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction

from accounts.models import User
from accounts.permissions import require
from audit import services as audit
from clusters.connection import registry
from clusters.fleet import Conflict, FleetError
from clusters.inventory import store
from common.clock import now
from common.errors import Invalid, LostRace, WrongState
from jobs.approvals import plan_actions, reviews
from jobs.approvals.tickets import obstacles
from jobs.calendars import targets
from jobs.diffs import cluster_scope
from jobs.engine import batch_gates, event_log, reverting
from jobs.engine.commit import change_status, deadline_for
from jobs.forecast.strategy import Strategy
from jobs.models import FleetRun, Plan, Rollout, Signal, Slot, Step, short_numbers
from jobs.policy import judgement
from jobs.rollouts import engine_signals
from jobs.rollouts.conflicts import (
    BUSY,
    dependent_components,
    refuse_busy,
    refuse_foreign,
    refuse_late,
    requires_sentence,
    same_nodes_or_releases,
)
from jobs.rollouts.possible_actions import CAN_BE_PUT_BACK, all_actions

FARTHEST_START = timedelta(days=90)
"""A judgment: what was observed and approved a quarter ago is out of date."""
REASON_CHARACTERS = 500
"""Of freeze_override's column."""

RS = Rollout.Status
Status = Step.Status


def start(plan: Plan, *, by: User, at: datetime | None = None) -> Rollout:
    """Begin an approved plan, now or at a time. Raises NotAllowed, WrongState (not approved, changed, nodes busy)."""
    plan_actions.require_person(plan, "start", by)
    at = _checked_start(at)
    with transaction.atomic():
        lock_fleet_run(plan)
        plan = Plan.objects.select_for_update().select_related("cluster", "revision", "pool").get(pk=plan.pk)
        obstacles.lock_record(plan)
        plan_actions.require(plan, "start", by)
        rollout = create(plan, by=by, at=at)
        policy = judgement.active_version()
        judged_by: dict[str, object] = {"policy": policy.number} if policy else {}
        judged_by |= {"change_record": plan.change_record} if plan.change_record else {}
        judged_by |= {"fleet_run": str(plan.fleet_run), "ring": plan.ring} if plan.fleet_run else {}
        record(rollout, by, "rollout.start", "", at=at.isoformat() if at else None, digest=plan.digest, **judged_by)
    return rollout


def lock_fleet_run(plan: Plan) -> None:
    """Lock the fleet run of a plan, if it is in one: a hold comes before this start and counts, or after it.

    Call it before the plan is locked, as everywhere.
    """
    if plan.fleet_run_id:
        FleetRun.objects.select_for_update().get(pk=plan.fleet_run_id)


def create(plan: Plan, *, by: User, at: datetime | None) -> Rollout:
    """Create the rollout of a plan that the caller judged, in the transaction in which it locked the plan's row."""
    try:
        plan.move(Plan.Status.STARTED)
    except LostRace as error:
        raise WrongState(f"{plan} was changed by another request a moment ago; reload and try again.") from error
    rollout = Rollout.objects.create(
        number=short_numbers.next_number("rollout"),
        plan=plan,
        cluster=plan.cluster,
        digest=plan.digest,
        start_at=at,
        started_by=by,
        waiting_for=f"Starts at {at:%Y-%m-%d %H:%M} UTC." if at else "Starting.",
        waiting_since=now(),
    )
    _create_steps(rollout)
    return rollout


def _checked_start(at: datetime | None) -> datetime | None:
    """Return the start in UTC, as every sentence about it says. Raises Invalid."""
    if at is None:
        return None
    if at < now() - timedelta(minutes=1):
        raise Invalid("A rollout cannot start in the past.", fields={"at": ["Must be a time to come, in UTC."]})
    if at > now() + FARTHEST_START:
        days = FARTHEST_START.days
        raise Invalid(f"A rollout starts within {days} days.", fields={"at": [f"At most {days} days from now."]})
    return at.astimezone(UTC)


def _create_steps(rollout: Rollout) -> None:
    strategy = Strategy.from_json(rollout.plan.strategy)
    rows = [
        Step(
            rollout=rollout,
            plan_node=row,
            node_id=row.node_id,
            node_uid=row.uid,
            node_name=row.name,
            batch=row.batch,
            position=row.position,
            worst_class=row.worst_class,
        )
        for row in rollout.plan.nodes.filter(left_out="")
    ]
    rows += [
        Step(
            rollout=rollout,
            kind=cluster_scope.step_kind(row),
            plan_component=row,
            component=row.component,
            release=cluster_scope.release_key(rollout.plan, row),
            batch=0,
            position=row.position,
        )
        for row in rollout.plan.components.filter(left_out="")
    ]
    for step in rows:
        step.deadline_at = deadline_for(step, strategy)
        if rollout.start_at:
            step.deadline_at += rollout.start_at - now()
    try:
        with transaction.atomic():
            Step.objects.bulk_create(rows, batch_size=500)
    except IntegrityError as error:
        other = Step.objects.filter(same_nodes_or_releases(rows), is_live=True).select_related("rollout").first()
        raise WrongState(plan_actions.busy_reason(other)) from error


# ── verbs on a rollout ────────────────────────────────────────────────────────────────────────────────────────────────


@transaction.atomic
def pause(rollout: Rollout, *, by: User) -> Rollout:
    """Start nothing new; in-progress nodes finish."""
    _require_possible(rollout, "pause", by)
    return _move(rollout, RS.PAUSED, by, "rollout.pause", "Paused.")


@transaction.atomic
def resume(rollout: Rollout, *, by: User) -> Rollout:
    _require_possible(rollout, "resume", by)
    if rollout.started_at is None:  # its start is still to come, with everything that is judged there
        return _move(rollout, RS.QUEUED, by, "rollout.resume", "Resumed before its start.")
    return _move(rollout, RS.RUNNING, by, "rollout.resume", "Resumed.")


@transaction.atomic
def go_on(rollout: Rollout, *, by: User) -> Rollout:
    """Override the gate, or the control's time, that holds the next batch. The person is recorded."""
    _require_possible(rollout, "go-on", by)
    why = batch_gates.overridable_obstacle(rollout, Strategy.from_json(rollout.plan.strategy))
    Signal.objects.filter(kind=engine_signals.GATE, scope=f"rollout:{rollout.pk}").delete()
    try:
        rollout.put(went_on_at=now(), waiting_for="", waiting_since=now())
    except LostRace as error:
        raise WrongState(f"{rollout} was changed a moment ago; reload and try again.") from error
    event_log.log(rollout, f"Continued by {by} despite:  {why}", "warn")
    record(rollout, by, "rollout.go-on", "", held_by=why)
    return rollout


@transaction.atomic
def abort(rollout: Rollout, *, by: User, in_flight: str = "finish") -> Rollout:
    """End it for good: queued nodes are skipped, those in progress finish or are reverted."""
    _require_possible(rollout, "abort", by)
    if in_flight not in ("finish", "revert"):
        raise Invalid("What should happen to in-progress nodes?", fields={"in_flight": ["Must be finish or revert."]})
    if rollout.started_at is None:
        reverting.end_queued(rollout, Status.SKIPPED, "The rollout was cancelled before it began.")
        return _move(rollout, RS.CANCELLED, by, "rollout.abort", "Cancelled before it began.", finished_at=now())
    return _move(
        rollout, RS.ABORTING, by, "rollout.abort", f"Aborting; in-progress nodes {in_flight}.",
        abort_reverts=in_flight == "revert",
    )  # fmt: skip


@transaction.atomic
def retry_failed(rollout: Rollout, *, by: User, step: Step | None = None) -> Rollout:
    """Failed and held nodes again, from the beginning; a node that holds its slot keeps it.

    Where a revert failed, only what went backwards: a rollout that is being reverted takes no node forwards.
    """
    _require_possible(rollout, "retry-failed", by)
    rows = rollout.steps.select_for_update().filter(status__in=(Status.FAILED, Status.HELD))
    chosen = list(rows.filter(pk=step.pk) if step else rows)
    backwards = [s for s in chosen if s.direction == Step.Direction.REVERT]
    if backwards or rollout.status == RS.REVERTING:
        chosen = backwards
    if not chosen:
        raise WrongState("Not possible: this step neither failed nor is held.")
    refuse_foreign(rollout, chosen)
    _queue_again(chosen, rollout)
    if rollout.status in (RS.STOPPED, RS.FAILED):
        _move(rollout, RS.REVERTING if backwards else RS.RUNNING, by, "rollout.retry-failed",
              f"Retrying {event_log.count_sentence(chosen)}.", finished_at=None, extra_failures=0)  # fmt: skip
    else:
        rollout.put()  # a worker that is just ending the rollout loses the race
        record(rollout, by, "rollout.retry-failed", "", nodes=[s.name for s in chosen][:50])
        event_log.log(rollout, f"Retrying {event_log.count_sentence(chosen)}, asked by {by}.")
    return rollout


@transaction.atomic
def skip(rollout: Rollout, step: Step, *, by: User) -> Rollout:
    """Leave one node as it is: a queued one is passed over, a failed or held one is given back."""
    _require_possible(rollout, "skip", by)
    # A queued one may be claimed: its version keeps its worker from committing.
    step = rollout.steps.select_for_update().get(pk=step.pk)
    if step.status not in (Status.QUEUED, Status.FAILED, Status.HELD):
        raise WrongState(
            f"Not possible: {step.name} is {step.status}; only what is queued, failed or held can be skipped."
        )
    failed = step.status == Status.FAILED
    was_asked = step.has_applied and not step.is_component  # its stage withdraws that first
    if was_asked or reverting.has_our_cordon(step) or Slot.objects.filter(step=step).exists():
        refuse_busy(rollout, [step])
        change_status(step, Status.RETURNING, ending=Status.SKIPPED, version=step.version + 1)
    else:
        change_status(step, Status.SKIPPED, version=step.version + 1)
    step.deadline_at = deadline_for(step, Strategy.from_json(rollout.plan.strategy))
    _save([step], [*reverting.RESTED, "ending"])
    rollout.put()
    event_log.log(rollout, f"{step.name} skipped, asked by {by}.", "warn", step)
    record(rollout, by, "rollout.skip", "", node=step.name)
    rest = rollout.steps.of_nodes().filter(status=Status.FAILED).exclude(pk=step.pk).count()
    allowed = Strategy.from_json(rollout.plan.strategy).max_failures
    if failed and rollout.status in (RS.STOPPED, RS.FAILED) and rest <= allowed:
        _move(rollout, RS.RUNNING, by, "rollout.resume", "Continues after the skip.", finished_at=None)
    return rollout


@transaction.atomic
def revert(rollout: Rollout, *, by: User, step: Step | None = None, reason: str = "") -> Rollout:
    """Put back what this rollout changed, on all its nodes or on one; part of the approved plan.

    Raises WrongState when too old, or when another party wrote one of the keys since: then it takes a new plan.
    """
    _require_possible(rollout, "revert", by)
    reviews.check_length(reason, REASON_CHARACTERS, "reason")
    frozen = targets.active_freeze(rollout.cluster, rollout.plan.pool_id)
    if frozen and not reason.strip():
        raise Invalid(
            f"A freeze is active ({frozen.reason}).",
            fields={"reason": ["Give the reason to revert during the freeze."]},
        )
    rows = rollout.steps.select_for_update().filter(has_applied=True, status__in=CAN_BE_PUT_BACK)
    chosen = list(rows.filter(pk=step.pk) if step else rows)
    if not chosen:
        raise WrongState("Not possible: this rollout changed nothing here.")
    refuse_late(rollout)
    if step and step.is_component and (others := dependent_components(rollout, step)):
        raise WrongState(f"Not possible: {requires_sentence(others, step.name)}.")
    refuse_foreign(rollout, chosen)
    refuse_busy(rollout, chosen)
    if not step:
        reverting.end_queued(rollout, Status.SKIPPED, "The rollout is being reverted.")
    try:
        with transaction.atomic():
            reverting.queue_for_revert(chosen, Strategy.from_json(rollout.plan.strategy))
    except IntegrityError as error:
        raise WrongState(BUSY) from error
    _move(rollout, RS.REVERTING, by, "rollout.revert", f"Reverting {event_log.count_sentence(chosen)}.",
          finished_at=None, freeze_override=reason if frozen else "", message=reason)  # fmt: skip
    return rollout


def keep_cordoned(rollout: Rollout, step: Step, *, by: User) -> Rollout:
    """The node stays cordoned when its step gives it back (law 5). Calls the cluster: hold no transaction.

    Raises NotAllowed, WrongState (no cordon of ours there, or the cluster does not answer).
    """
    require(by, "operator", rollout.cluster.scopes, doing="keep a node cordoned")
    step = rollout.steps.select_related("node").get(pk=step.pk)
    if reason := reason_not_to_keep(step, is_kept=bool(step.node and step.node.keep_cordoned)):
        raise WrongState(f"Not possible: {reason}.")
    owner = f"{settings.SETPOINT_INSTALLATION}/{step.pk}"
    try:
        raw = registry.connect(rollout.cluster).keep_cordoned(step.node_name, step.node_uid, owner)
    except Conflict as error:
        raise WrongState(f"Not possible: the cordon of {step.node_name} is not Setpoint's any more.") from error
    except FleetError as error:
        raise WrongState(f"{step.node_name} could not be marked: {error}") from error
    store.observe_nodes(rollout.cluster, [raw], complete=False)
    with transaction.atomic():
        event_log.log(rollout, f"{step.node_name} stays cordoned on request of {by}.", step=step)
        record(rollout, by, "rollout.keep-cordoned", "", node=step.node_name)
    return rollout


def reason_not_to_keep(step: Step, *, is_kept: bool) -> str:
    """Law 5: only a cordon of ours is ours to give away."""
    if step.is_component:
        return f"{_kind_words(step)}, and only nodes are cordoned"
    if not step.is_ours_to_uncordon:
        return "Setpoint holds no cordon on this node"
    return "it is already kept cordoned on request" if is_kept else ""


def _kind_words(step: Step) -> str:
    return "these are policy objects" if step.is_policies else "it is a component"


def _queue_again(steps: Sequence[Step], rollout: Rollout) -> None:
    strategy = Strategy.from_json(rollout.plan.strategy)
    fields = ["status", "version", "attempt", "error", "failed_in", "generation", "granted_at", "ending",
              "boot_id", "stages", "recordoned", "expects", "entered_at", "waiting_for", "not_before", "is_live",
              "deadline_at"]  # fmt: skip
    for step in steps:
        change_status(
            step, Status.QUEUED, version=step.version + 1, attempt=step.attempt + 1, error="", failed_in="",
            generation=0,
            granted_at=None, ending="", boot_id="", stages={}, recordoned=0, expects={},
        )  # fmt: skip
        step.deadline_at = deadline_for(step, strategy)
    _save(steps, fields)


def _save(steps: Sequence[Step], fields: list[str]) -> None:
    """Raises WrongState where the database knows another live step of the node or the release."""
    try:
        with transaction.atomic():
            Step.objects.bulk_update(steps, fields, batch_size=100)
    except IntegrityError as error:
        raise WrongState(BUSY) from error


def _require_possible(rollout: Rollout, verb: str, by: User) -> None:
    """Runs in the verb's transaction. Raises NotAllowed, WrongState."""
    require(by, "operator", rollout.cluster.scopes, doing=f"{verb.replace('-', ' ')} a rollout")
    # Locked before any step is, as everywhere: what is judged here still holds when it is carried out.
    rollout.refresh_from_db(from_queryset=Rollout.objects.select_for_update(no_key=True))
    action = next(a for a in all_actions(rollout) if a.verb == verb)
    if not action.is_possible:
        raise WrongState(action.reason)


@transaction.atomic
def check_possible(rollout: Rollout, verb: str, *, by: User) -> None:
    """Raises what the verb would, so that nothing is asked about that would be refused afterwards."""
    _require_possible(rollout, verb, by)


def _move(rollout: Rollout, to: str, by: User, action: str, text: str, **fields: object) -> Rollout:
    message = str(fields.pop("message", ""))
    try:
        rollout.move(to, waiting_for="", waiting_since=now(), **fields)
    except LostRace as error:
        raise WrongState(f"{rollout} was changed a moment ago; reload and try again.") from error
    event_log.log(rollout, f"{text} Asked by {by}." + (f" {message}" if message else ""))
    record(rollout, by, action, message)
    return rollout


def record(rollout: Rollout, by: User, action: str, message: str, **after: object) -> None:
    audit.record(
        by=by,
        action=action,
        target=f"rollout:{rollout.pk}",
        target_name=str(rollout),
        cluster_id=rollout.cluster_id,
        message=message,
        after={"status": str(rollout.status), **after},
    )
