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

    To those who may not see each of its clusters, what a ring says, which names neither.
    """
    if not run.waiting_for:
        return ""
    reports = ring_reports(run, user)
    return run.waiting_for if _is_whole(reports) else next((report.reason for report in reports if report.reason), "")


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
    return [_explained(report, run) for report in out] if _is_whole(out) else out


def _is_whole(reports: Sequence[RingReport]) -> bool:
    return not any(report.hidden for report in reports)


def _explained(report: RingReport, run: FleetRun) -> RingReport:
    """Give the open ring the reason of the last look: why a plan that is approved has not started."""
    is_stuck = report.state == "open" and any(
        member.state is MemberState.WAITING and member.plan.status == Plan.Status.APPROVED for member in report.members
    )
    return replace(report, reason=run.waiting_for) if is_stuck and run.waiting_for else report


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
