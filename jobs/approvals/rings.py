"""Rings of a fleet run as they are now, and what they forbid a plan's start and a rollout's steps (law 15).

Judged live from the rollouts, never stored: a ring that is reverted, or fails again, closes those behind it. A ring
only restricts; approvals, windows and budgets hold besides.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from clusters.models import unheard
from common.clock import now
from compliance.models import ComplianceState
from jobs.models import FleetRun, Plan, PlanNode, Rollout

RS = Rollout.Status
BAD = (RS.STOPPED, RS.ABORTING, RS.REVERTING, RS.FAILED, RS.CANCELLED, RS.REVERTED)
IN_WORDS: dict[str, str] = {
    RS.FAILED: "failed", RS.CANCELLED: "was cancelled", RS.REVERTED: "was reverted", RS.STOPPED: "stopped at failures",
}  # fmt: skip
"""Others: "is running"."""


class MemberState(enum.StrEnum):
    """State of one plan within its ring."""

    LEFT = "left out"
    WAITING = "not started"
    LOST = "came to nothing"
    """Rejected, withdrawn or expired: it will never start."""
    MOVING = "in progress"
    BAD = "failed"
    """Its rollout failed, stopped, or was aborted or reverted."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Member:
    plan: Plan

    @property
    def rollout(self) -> Rollout | None:
        return getattr(self.plan, "rollout", None)

    @property
    def state(self) -> MemberState:
        if self.plan.ring_left:
            return MemberState.LEFT
        if rollout := self.rollout:
            if rollout.status == RS.SUCCEEDED:
                return MemberState.DONE
            return MemberState.BAD if rollout.status in BAD else MemberState.MOVING
        is_lost = self.plan.status not in Plan.NEXT or bool(self.plan.late)
        return MemberState.LOST if is_lost else MemberState.WAITING

    @property
    def obstacle(self) -> str:
        """A sentence about what keeps its ring from being finished; empty: nothing. It names no cluster and no node,
        for it is shown to people of other clusters."""
        state, rollout = self.state, self.rollout
        if state in (MemberState.LEFT, MemberState.DONE):
            return ""
        if rollout:
            words = IN_WORDS.get(rollout.status, f"is {rollout.get_status_display().lower()}")
            return f"{rollout} {words}."
        if state is MemberState.LOST:
            return f"{self.plan} can no longer start: leave it out, or cancel the run."
        return f"{self.plan} is {self.plan.state_in_words} and has not started."


@dataclass(frozen=True, slots=True)
class Ring:
    number: int
    name: str
    soak_minutes: int
    members: Sequence[Member]

    def __str__(self) -> str:
        return f"ring {self.number} ({self.name})"

    @property
    def soak(self) -> timedelta:
        return timedelta(minutes=self.soak_minutes)

    @property
    def unfinished(self) -> str:
        """The first obstacle to its end, those that failed before those in progress; empty: it has finished."""
        rows = sorted(self.members, key=lambda member: member.state not in (MemberState.BAD, MemberState.LOST))
        return next((member.obstacle for member in rows if member.obstacle), "")

    @property
    def failed(self) -> list[Member]:
        return [member for member in self.members if member.state is MemberState.BAD]

    @property
    def finished_at(self) -> datetime | None:
        """Time at which the last of its rollouts ended; None: none has."""
        ends = [member.rollout.finished_at for member in self.members
                if member.state is MemberState.DONE and member.rollout and member.rollout.finished_at]  # fmt: skip
        return max(ends, default=None)

    @property
    def soaked_at(self) -> datetime | None:
        """Time at which its soak ends, or ended; None while it has not finished, or nothing of it was carried out."""
        end = self.finished_at
        return None if end is None or self.unfinished else end + self.soak


def rings_of(run: FleetRun) -> list[Ring]:
    """Return every ring with its plans. One query."""
    plans = Plan.objects.filter(fleet_run=run).select_related("cluster", "pool", "rollout").order_by("ring", "number")
    members = [Member(plan) for plan in plans]
    return [
        Ring(number, ring["name"], ring["soak_minutes"], [m for m in members if m.plan.ring == number])
        for number, ring in enumerate(run.rings, start=1)
    ]


def reason_not_to_start(plan: Plan) -> str:
    """Explain, in a sentence, why a plan may not start yet, by its ring; empty: it may. No query for one in no run."""
    run = plan.fleet_run
    if run is None or plan.ring_left:
        return ""
    if run.status == FleetRun.Status.DRAFT:
        return f"{plan} is in ring {plan.ring} of {run}, which has not been started."
    if run.status != FleetRun.Status.RUNNING:
        return _held(run) or f"{run} is over: plan again."
    return closed_reason(run, rings_of(run), plan.ring)


def hold_reason(plan: Plan) -> str:
    """Explain, in a sentence, why no further step of the plan's rollout starts, by its ring; empty: one may.

    A cancelled run starts nothing new and holds nothing that it started. No query for a plan in no run.
    """
    run = plan.fleet_run
    if run is None or plan.ring_left or run.status in (FleetRun.Status.CANCELLED, FleetRun.Status.SUCCEEDED):
        return ""
    if held := _held(run):
        return held
    for ring in rings_of(run)[: plan.ring]:
        others = [member for member in ring.failed if member.plan.pk != plan.pk]
        reason = others[0].obstacle if others else ring.unfinished if ring.number < plan.ring else ""
        if reason:
            return f"Held by {run}, {ring}: {reason}"
    return ""


def closed_reason(run: FleetRun, rings: Sequence[Ring], number: int) -> str:
    """Explain, in a sentence, why nothing of ring `number` starts now; empty: it is open.

    A ring is open once all before it finished, soaked and are healthy, and nothing in it failed.
    """
    for ring in rings[: number - 1]:
        if reason := ring.unfinished or ("" if ring.number <= run.waived else _soaking(ring) or unhealthy(ring)):
            return f"Waits for {ring} of {run}: {reason}"
    failed = rings[number - 1].failed
    return f"Held in {rings[number - 1]} of {run}: {failed[0].obstacle}" if failed else ""


def _held(run: FleetRun) -> str:
    return f"{run} is held: {run.held_reason.rstrip('.')}." if run.status == FleetRun.Status.HELD else ""


def _soaking(ring: Ring) -> str:
    until = ring.soaked_at
    return f"it soaks until {until:%Y-%m-%d %H:%M} UTC." if until and until > now() else ""


def unhealthy(ring: Ring) -> str:
    """Explain what is wrong with what the ring changed; empty: nothing. The unknown counts as wrong. One query."""
    plans = [member.plan for member in ring.members if member.state is MemberState.DONE]
    if not all(plan.cluster.is_current for plan in plans):
        return "the current values of the nodes of one of its clusters are unknown."
    changed = PlanNode.objects.filter(plan__in=plans, left_out="", node__gone_at=None)
    off = (ComplianceState.DRIFTED, ComplianceState.UNKNOWN)
    bad = changed.filter(Q(node__is_ready=False) | Q(node__standing__state__in=off) | unheard("node__")).count()
    if not bad:
        return ""
    return f"{bad:,} of its nodes {'is' if bad == 1 else 'are'} no longer ready, reporting or compliant."
