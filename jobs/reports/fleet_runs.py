"""A fleet run as a person sees it: each ring's state; of plans in clusters that they may not see, only the number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster
from common.clock import now
from jobs.approvals import rings
from jobs.approvals.rings import Member, MemberState, Ring
from jobs.models import FleetRun, Plan
from jobs.rollouts import fleet_runs


@dataclass(frozen=True, slots=True)
class RingReport:
    """One ring: `state` is finished, soaking, open, failed or waiting; `reason` is why it is not finished or open."""

    ring: Ring
    state: str
    reason: str
    members: Sequence[Member]
    """Those of clusters that the person may see."""
    hidden: int

    @property
    def soaks_until(self) -> datetime | None:
        return self.ring.soaked_at if self.state == "soaking" else None


def waiting_for(run: FleetRun, user: User) -> str:
    """Return what it waits for, as of the last look: why a plan was refused a start names its cluster or a node.

    To those who may not see each of its clusters, what a ring says, which names neither. One query, or a page's.
    """
    if not run.waiting_for:
        return ""
    visible = restrict(Cluster.objects.all(), user, prefix="")
    if not Plan.objects.filter(fleet_run=run).exclude(cluster__in=visible).exists():
        return run.waiting_for
    return next((report.reason for report in ring_reports(run, user) if report.reason), "")


def ring_reports(run: FleetRun, user: User) -> list[RingReport]:
    """Two queries, and one for the health of each ring that has soaked ahead of the next one."""
    visible = set(restrict(Cluster.objects.all(), user, prefix="").values_list("pk", flat=True))
    there = rings.rings_of(run)
    first = fleet_runs.next_ring(there)
    out = []
    for ring in there:
        state, reason = _state(run, there, ring, first)
        members = [member for member in ring.members if member.plan.cluster_id in visible]
        out.append(RingReport(ring, state, reason, members, len(ring.members) - len(members)))
    return out if any(report.hidden for report in out) else [_explained(report, run) for report in out]


def _explained(report: RingReport, run: FleetRun) -> RingReport:
    """Give the open ring the reason of the last look, where that is why a plan, approved, was refused its start."""
    stuck = [
        str(member.plan)
        for member in report.members
        if member.state is MemberState.WAITING and member.plan.status == Plan.Status.APPROVED
    ]
    is_refused = report.state == "open" and run.waiting_for.startswith(tuple(f"{plan}: " for plan in stuck))
    return replace(report, reason=run.waiting_for) if is_refused else report


def _state(run: FleetRun, there: Sequence[Ring], ring: Ring, first: int | None) -> tuple[str, str]:
    if not ring.unfinished:
        until = ring.soaked_at
        is_soaking = until is not None and until > now() and ring.number > run.waived and ring.number < len(there)
        return ("soaking" if is_soaking else "finished"), ""
    if ring.failed or any(member.state is MemberState.LOST for member in ring.members):
        return "failed", ring.unfinished
    if ring.number != first or run.status != FleetRun.Status.RUNNING:
        return "waiting", ""
    closed = rings.closed_reason(run, there, ring.number)
    return ("waiting", closed) if closed else ("open", ring.unfinished)
