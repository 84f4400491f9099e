"""Making of fleet runs, what a person does with one, and the slice that starts the plans of an open ring.

A run starts plans in the name of the person who started or released it, by the same judgment as their own click. Its
row is locked before its plans' rows, everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import transaction

from accounts.models import User
from accounts.permissions import may, require
from audit import services as audit
from clusters.models import Cluster
from common.clock import now
from common.errors import Invalid, LostRace, NotAllowed, Refusal, WrongState
from jobs.approvals import plan_actions, reviews, rings
from jobs.approvals.rings import MemberState, Ring
from jobs.models import FleetRun, Plan, short_numbers
from jobs.models.fleet_runs import REASON_CHARACTERS
from jobs.rollouts import rollout_actions

MOST_RINGS = 20
MOST_PLANS = 200
LONGEST_SOAK_MINUTES = 14 * 24 * 60
NAME_CHARACTERS = 80

RS = FleetRun.Status
OPEN = (RS.DRAFT, RS.RUNNING, RS.HELD)
FROM: dict[str, tuple[tuple[str, ...], str]] = {
    "request": (OPEN, "it is over"),
    "start": ((RS.DRAFT,), "it was started already"),
    "hold": ((RS.RUNNING,), "it is not running"),
    "release": ((RS.HELD,), "it is not held"),
    "open-ring": ((RS.RUNNING,), "it is not running"),
    "leave-out": (OPEN, "it is over"),
    "add": (OPEN, "it is over"),
    "cancel": (OPEN, "it is over"),
}
"""Each verb, in which states of a run it is possible, and why not in others."""
TOKEN_SCOPE_FOR = {"request": "plan", "add": "plan"}
"""Which scope a token needs for a verb; `apply` for those that are not here."""


@dataclass(frozen=True, slots=True)
class WantedRing:
    name: str
    soak_minutes: int
    plans: Sequence[Plan]


def reasons_of_state(run: FleetRun) -> dict[str, str]:
    """Return, by verb, why its state does not permit it; empty where it does."""
    return {verb: "" if run.status in states else f"Not possible: {why}." for verb, (states, why) in FROM.items()}


def reasons_of_person(run: FleetRun, user: User) -> dict[str, str]:
    """Return, by verb, why this person may not; empty where they may. To hold, the role for one cluster is enough."""
    allowed = [may(user, "operator", cluster.scopes) for cluster in _clusters(run)]
    everywhere = "This needs the role operator for each of its clusters."  # unnamed: some may not be seen
    some = "This needs the role operator for one of its clusters."
    out = {
        verb: ("" if any(allowed) else some) if verb == "hold" else ("" if allowed and all(allowed) else everywhere)
        for verb in FROM
    }
    needs = {verb: TOKEN_SCOPE_FOR.get(verb, "apply") for verb in FROM}
    without = {verb: scope for verb, scope in needs.items() if not plan_actions.token_allows(user, scope)}
    return out | {
        verb: f"This token cannot do that: it needs the token scope {scope}." for verb, scope in without.items()
    }


# ── making one ────────────────────────────────────────────────────────────────────────────────────────────────────────


def create(*, by: User, name: str, wanted: Sequence[WantedRing]) -> FleetRun:
    """Make a run of draft plans. Raises NotAllowed, Invalid naming each field, WrongState (one changed meanwhile)."""
    name = name.strip()
    errors: dict[str, list[str]] = {}
    if not 1 <= len(name) <= NAME_CHARACTERS:
        errors["name"] = [f"Give it a name of at most {NAME_CHARACTERS} characters."]
    if problems := _ring_problems(wanted):
        errors["rings"] = problems
    if errors:
        raise Invalid("The fleet run is not valid.", fields=errors)
    for cluster in {plan.cluster_id: plan.cluster for ring in wanted for plan in ring.plans}.values():
        require(by, "operator", cluster.scopes, doing=f"make a fleet run with {cluster}")
    rows = [{"name": ring.name.strip(), "soak_minutes": ring.soak_minutes} for ring in wanted]
    with transaction.atomic():
        run = FleetRun.objects.create(number=short_numbers.next_number("fleet"), name=name, rings=rows, created_by=by)
        for number, ring in enumerate(wanted, start=1):
            for plan in ring.plans:
                _take_in(run, number, plan)
        _record(run, by, "create", "", rings=[{**row, "plans": [str(p) for p in ring.plans]}
                                              for row, ring in zip(rows, wanted, strict=True)])  # fmt: skip
    return run


def _ring_problems(wanted: Sequence[WantedRing]) -> list[str]:
    plans = [plan for ring in wanted for plan in ring.plans]
    if not 1 <= len(wanted) <= MOST_RINGS or len(plans) > MOST_PLANS:
        return [f"From 1 to {MOST_RINGS} rings, with at most {MOST_PLANS} plans in all."]
    out: list[str] = []
    for number, ring in enumerate(wanted, start=1):
        if not 1 <= len(ring.name.strip()) <= NAME_CHARACTERS:
            out.append(f"Ring {number} needs a name of at most {NAME_CHARACTERS} characters.")
        if not ring.plans:
            out.append(f"Ring {number} has no plan.")
        if not 0 <= ring.soak_minutes <= LONGEST_SOAK_MINUTES:
            out.append(f"Ring {number} can soak from 0 to {LONGEST_SOAK_MINUTES} minutes.")
    if wanted[-1].soak_minutes:
        out.append("No ring follows the last one, so it needs no soak: give it 0 minutes.")
    out += _plan_problems(plans)
    soaked = timedelta()
    for number, ring in enumerate(wanted, start=1):
        late = [str(plan) for plan in ring.plans if plan.expires_at < now() + soaked]
        if late and number > 1:
            out.append(f"{', '.join(late)} of ring {number} would expire before the soaks ahead of it end.")
        soaked += timedelta(minutes=max(0, ring.soak_minutes))
    return out


def _plan_problems(plans: Sequence[Plan]) -> list[str]:
    out = [reason for plan in plans if (reason := _reason_not_to_take(plan))]
    of_pool: dict[int, list[str]] = {}
    for plan in plans:
        of_pool.setdefault(plan.pool_id, []).append(str(plan))
    out += [f"{' and '.join(names)} are of one pool, which has one plan in a run." for names in of_pool.values()
            if len(names) > 1]  # fmt: skip
    return list(dict.fromkeys(out))


def _reason_not_to_take(plan: Plan) -> str:
    if plan.fleet_run_id:
        return f"{plan} is in a fleet run already."
    if plan.status != Plan.Status.DRAFT:
        return f"{plan} is {plan.state_in_words}: only drafts are taken, so that approvers see the ring."
    if plan.is_blocked:
        return f"{plan} is blocked: plan again once that is fixed."
    return plan.late


def _take_in(run: FleetRun, ring: int, plan: Plan) -> None:
    """Runs in a transaction. Raises WrongState where the plan was changed since it was read."""
    try:
        plan.put(fleet_run=run, ring=ring)
    except LostRace as error:
        raise WrongState(f"{plan} was changed by another request a moment ago; reload and try again.") from error


# ── verbs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@transaction.atomic
def request(run: FleetRun, *, by: User, message: str = "") -> FleetRun:
    """Ask for the review of each of its drafts, all or none. Raises NotAllowed, Invalid, WrongState."""
    run = _locked(run, "request", by)
    drafts = [member.plan for ring in rings.rings_of(run) for member in ring.members
              if member.state is MemberState.WAITING and member.plan.status == Plan.Status.DRAFT]  # fmt: skip
    if not drafts:
        raise WrongState("Not possible: none of its plans is a draft.")
    for plan in drafts:
        reviews.request(plan, by=by, message=message)
    return run


@transaction.atomic
def start(run: FleetRun, *, by: User) -> FleetRun:
    """Let its rings start, the first as soon as its plans are approved. Raises NotAllowed, WrongState."""
    run = _locked(run, "start", by)
    _move(run, RS.RUNNING, started_by=by, started_at=now(), waiting_for="")
    _record(run, by, "start", "")
    return run


@transaction.atomic
def hold(run: FleetRun, *, by: User, reason: str) -> FleetRun:
    """Start no plan and no further step of it; what is in progress finishes. Raises NotAllowed, Invalid, WrongState."""
    reason = _checked_reason(reason)
    run = _locked(run, "hold", by)
    _move(run, RS.HELD, held_reason=reason)
    _record(run, by, "hold", reason)
    return run


@transaction.atomic
def release(run: FleetRun, *, by: User) -> FleetRun:
    """Let it continue, from now on in this person's name. Raises NotAllowed, WrongState."""
    run = _locked(run, "release", by)
    _move(run, RS.RUNNING, held_reason="", started_by=by, waiting_for="")
    _record(run, by, "release", "")
    return run


@transaction.atomic
def open_ring(run: FleetRun, *, by: User, reason: str) -> FleetRun:
    """Open the next ring before the soak of the finished one is over, or in spite of its health.

    Raises NotAllowed, Invalid, WrongState (a ring before it has not finished, or it is open already).
    """
    reason = _checked_reason(reason)
    run = _locked(run, "open-ring", by)
    there = rings.rings_of(run)
    number = next_ring(there)
    if number is None:
        raise WrongState("Not possible: all rings have finished.")
    if not rings.closed_reason(run, there, number) or there[number - 1].failed:
        raise WrongState(f"Not possible: {there[number - 1]} is open. {there[number - 1].unfinished}")
    _put(run, waived=number - 1, waiting_for="")
    _record(run, by, "open-ring", reason, ring=number)
    return run


@transaction.atomic
def leave_out(run: FleetRun, plan: Plan, *, by: User, reason: str) -> FleetRun:
    """Leave out a plan: one that has not started is withdrawn. Raises NotAllowed, Invalid, WrongState."""
    reason = _checked_reason(reason)
    run = _locked(run, "leave-out", by)
    plan = _member(run, plan)
    member = rings.Member(plan)
    if member.state in (MemberState.MOVING, MemberState.DONE, MemberState.LEFT):
        raise WrongState(f"Not possible: {plan} is {member.state}.")
    if member.state is MemberState.WAITING:
        reviews.close(plan, by=by, comment=f"Left out of {run}: {reason}"[:REASON_CHARACTERS])
    try:
        plan.put(ring_left=reason)
    except LostRace as error:
        raise WrongState(f"{plan} was changed by another request a moment ago; reload and try again.") from error
    _record(run, by, "leave-out", reason, plan=str(plan), ring=plan.ring)
    return run


@transaction.atomic
def add(run: FleetRun, plan: Plan, *, ring: int, by: User) -> FleetRun:
    """Add a draft plan to a ring that has not finished. Raises NotAllowed, Invalid naming each field, WrongState."""
    require(by, "operator", plan.cluster.scopes, doing=f"add a plan of {plan.cluster} to a fleet run")
    run = _locked(run, "add", by)
    there = rings.rings_of(run)
    if not 1 <= ring <= len(there):
        raise Invalid("There is no such ring.", fields={"ring": [f"From 1 to {len(there)}."]})
    if number := next(
        (r.number for r in there[ring - 1 :] if any(m.rollout for m in r.members) and r.number > ring), 0
    ):
        raise Invalid("That ring has finished.", fields={"ring": [f"Ring {number}, behind it, has begun."]})
    own = [m.plan for r in there for m in r.members if m.state not in (MemberState.LEFT, MemberState.LOST)]
    problem = _reason_not_to_take(plan)
    if not problem and any(other.pool_id == plan.pool_id for other in own):
        problem = f"The run has a plan of {plan.pool} already."
    if problem:
        raise Invalid("This plan cannot be added.", fields={"plan": [problem]})
    _take_in(run, ring, plan)
    if ring <= run.waived:  # the reason not to wait was given before this plan was there
        _put(run, waived=ring - 1)
    _record(run, by, "add", "", plan=str(plan), ring=ring)
    return run


@transaction.atomic
def cancel(run: FleetRun, *, by: User, reason: str) -> FleetRun:
    """End it: plans that have not started are withdrawn; rollouts in progress continue, each on its own.

    Raises NotAllowed, Invalid, WrongState.
    """
    reason = _checked_reason(reason)
    run = _locked(run, "cancel", by)
    for ring in rings.rings_of(run):
        for member in ring.members:
            if member.state is MemberState.WAITING:
                reviews.close(member.plan, by=by, comment=f"{run} was cancelled: {reason}"[:REASON_CHARACTERS])
    _move(run, RS.CANCELLED, finished_at=now(), waiting_for="")
    _record(run, by, "cancel", reason)
    return run


# ── by itself ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def due() -> list[UUID]:
    return list(FleetRun.objects.filter(status=RS.RUNNING).values_list("pk", flat=True))


def advance(run_id: UUID) -> list[UUID]:
    """Start what may start in the first ring that has not finished; return the rollouts. Any number may run at once.

    A plan that is refused waits, with the reason on the run; the next look tries again. A quiet look writes nothing.
    """
    run = FleetRun.objects.select_related("started_by").filter(pk=run_id, status=RS.RUNNING).first()
    if run is None:
        return []
    there = rings.rings_of(run)
    number = next_ring(there)
    started: list[UUID] = []
    if number is None:
        _settle(run, waiting_for="")
        return started
    reasons = [closed] if (closed := rings.closed_reason(run, there, number)) else []
    for member in there[number - 1].members if not reasons else ():
        if member.state is MemberState.WAITING and member.plan.status == Plan.Status.APPROVED:
            try:
                started.append(rollout_actions.start(member.plan, by=_person(run)).pk)
            except Refusal as refusal:
                reasons.append(f"{member.plan}: {refusal}")
    if not reasons:
        fresh = rings.rings_of(run)[number - 1] if started else there[number - 1]
        reasons = [fresh.unfinished]
    _settle(run, waiting_for=reasons[0][:REASON_CHARACTERS])
    return started


def next_ring(there: Sequence[Ring]) -> int | None:
    """Return the first ring with something left to do; None: all have finished."""
    return next((ring.number for ring in there if ring.unfinished), None)


def _person(run: FleetRun) -> User:
    if run.started_by is None:
        raise NotAllowed(f"The account that started {run} is gone: hold it, and release it in your name.")
    return run.started_by


def _settle(run: FleetRun, *, waiting_for: str) -> None:
    """Write what it waits for, where that changed; without anything, all its rings have finished."""
    try:
        if not waiting_for:
            with transaction.atomic():
                run.move(RS.SUCCEEDED, finished_at=now(), waiting_for="")
                audit.record(by=None, action="fleet-run.succeed", target=f"fleet-run:{run.pk}", target_name=str(run))
        elif waiting_for != run.waiting_for:
            run.put(waiting_for=waiting_for)
    except LostRace:
        return  # another process, or a person, was there first


# ── helpers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _clusters(run: FleetRun) -> list[Cluster]:
    return list(Cluster.objects.filter(plans__fleet_run=run).distinct())


def _locked(run: FleetRun, verb: str, by: User) -> FleetRun:
    """Return the row, locked, for the verb. Raises NotAllowed, WrongState."""
    if reason := reasons_of_person(run, by)[verb]:
        raise NotAllowed(reason)
    run = FleetRun.objects.select_for_update().get(pk=run.pk)
    if reason := reasons_of_state(run)[verb]:
        raise WrongState(reason)
    return run


def _member(run: FleetRun, plan: Plan) -> Plan:
    row = Plan.objects.select_for_update().select_related("cluster").filter(pk=plan.pk, fleet_run=run).first()
    if row is None:
        raise Invalid(f"{run} has no such plan.", fields={"plan": [f"Not a plan of {run}."]})
    return row


def _checked_reason(reason: str) -> str:
    reason = reason.strip()
    if not reason:
        raise Invalid("Give a reason.", fields={"reason": ["Give the reason; it is recorded."]})
    reviews.check_length(reason, 300, "reason")
    return reason


def _move(run: FleetRun, to: str, **fields: object) -> None:
    _written(run, lambda: run.move(to, **fields))


def _put(run: FleetRun, **fields: object) -> None:
    _written(run, lambda: run.put(**fields))


def _written(run: FleetRun, write: Callable[[], None]) -> None:
    try:
        write()
    except LostRace as error:
        raise WrongState(f"{run} was changed by another request a moment ago; reload and try again.") from error


def _record(run: FleetRun, by: User, verb: str, message: str, **after: object) -> None:
    audit.record(
        by=by,
        action=f"fleet-run.{verb}",
        target=f"fleet-run:{run.pk}",
        target_name=str(run),
        message=message,
        after={"status": str(run.status), "name": run.name, **after},
    )
