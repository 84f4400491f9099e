"""One job's report, which its page and REST show alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from accounts.models import User
from clusters.models import GpuJob, GpuPod, JobPod
from common.clock import now
from gpus.capacity import wait_lists
from gpus.models import NodePace, Team, WorkloadWait
from gpus.peers.lives import figures, ranks, surroundings
from gpus.peers.lives.figures import Goodput
from gpus.peers.lives.ranks import Activity
from gpus.peers.lives.surroundings import Surroundings
from gpus.showback import prices, rules, teams
from gpus.showback.statement import Line

MOST_SLOW = 20


@dataclass(frozen=True, slots=True)
class Moment:
    """One step of a job's life."""

    word: str
    at: datetime | None
    """None: not reached."""
    after: timedelta | None = None
    """Since the step before that was reached."""


@dataclass(frozen=True)
class JobReport:
    job: GpuJob
    at: datetime
    line: Line
    """What it held and what that cost, as a line of the cost page."""
    goodput: Goodput
    activity: Activity
    around: Surroundings
    team: str
    models: Sequence[str]
    currency: str
    waits: Sequence[WorkloadWait]
    """Its waits in a queue, before its pods were made; empty where none is known."""

    @property
    def waited_in_queue(self) -> timedelta | None:
        """Return how long its workloads waited in their queue altogether; None where that is not known."""
        if not self.waits or not all(wait.is_measured for wait in self.waits):
            return None
        return timedelta(seconds=sum(wait.waited for wait in self.waits))

    @property
    def wait_lines(self) -> list[tuple[WorkloadWait, timedelta | None]]:
        """Return each wait and how long it was; None where that is not known."""
        return [(wait, timedelta(seconds=wait.waited) if wait.is_measured else None) for wait in self.waits]

    @property
    def queue_wait(self) -> timedelta:
        """Return the time until its first pod ran, or until now or its end."""
        return (self.job.started_at or self.job.until(self.at)) - self.job.queued_at

    @property
    def life(self) -> timedelta:
        return self.job.until(self.at) - self.job.queued_at

    @property
    def replaced(self) -> int:
        """Return how many pods came in the place of others; of a job that changes its size, every later one."""
        return max(0, self.job.pods_seen - self.job.size)

    @property
    def left_out(self) -> int:
        """Pods that ended so long ago that the job's row no longer names them."""
        return self.job.pods_seen - len(self.job.pods)

    @property
    def running_pods(self) -> int:
        return sum(pod.ended is None and pod.running is not None for pod in self.pods)

    @cached_property
    def pods(self) -> list[JobPod]:
        return self.job.all_pods()

    @property
    def never_started(self) -> list[JobPod]:
        return [pod for pod in self.pods if pod.running is None]

    @property
    def timeline(self) -> list[Moment]:
        job = self.job
        steps = [
            ("Queued", job.queued_at),
            ("First pod running", job.started_at),
            ("All pods running", job.all_running_at),
            (job.get_outcome_display() or "Ended", job.ended_at),
        ]
        moments: list[Moment] = []
        before: datetime | None = None
        for word, at in steps:
            moments.append(Moment(word, at, max(at - before, timedelta()) if at and before else None))
            before = at or before
        return moments

    @property
    def stragglers(self) -> list[surroundings.JobNode]:
        """Its nodes that are slower than their peers at the same work, by the hourly comparison of nodes."""
        slower = [
            place for place in self.around.nodes if place.pace and place.pace.verdict == place.pace.Verdict.SLOWER
        ]
        return sorted(slower, key=lambda place: (place.pace.gap or 0.0) if place.pace else 0.0)[:MOST_SLOW]

    @property
    def compared(self) -> int:
        """Its nodes that were compared with their peers."""
        paces = [place.pace for place in self.around.nodes if place.pace]
        return sum(pace.verdict != NodePace.Verdict.FEW for pace in paces)


def of(user: User, job: GpuJob) -> JobReport:
    """Gather the report. A fixed number of queries, for any number of pods."""
    at = now()
    line, around = figures.held(job, prices.book()), surroundings.of(user, job, at)
    return JobReport(
        job=job,
        at=at,
        line=line,
        goodput=figures.goodput(job, line, at, around.gap_seconds),
        activity=ranks.of(job, at),
        around=around,
        team=_team(job),
        models=figures.models(job),
        currency=prices.currency(),
        waits=wait_lists.of_job(job),
    )


def _team(job: GpuJob) -> str:
    """Return the team that showback's rules give; empty where none matches.

    Rules name a pod's controller: that of a pod that lives, else the job itself.
    """
    rule_list = rules.stored(teams.current().rules)
    owner = f"{job.kind}/{job.name}"
    if rule_list.needs_owner:
        pods = GpuPod.objects.filter(cluster=job.cluster_id, job_key=job.key).exclude(owner_kind="").order_by("pk")
        if pod := pods.values_list("owner_kind", "owner_name").first():
            owner = "/".join(pod)
    pk = rule_list.team(job.namespace, owner)
    return Team.objects.filter(pk=pk).values_list("name", flat=True).first() or "" if pk else ""
