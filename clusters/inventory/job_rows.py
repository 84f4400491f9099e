"""Lives of jobs, told by their pods' changes: one row a job, written with the pods' rows and only when it changes.

What Setpoint did not see (a cluster that was not read, pods that came and went between two lists) is not made up: an
end that only a list shows counts from that list.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from clusters.inventory import job_owner, rows, write_lock
from clusters.inventory.rows import Raw, Values
from clusters.models import Cluster, GpuJob, JobPod

MOST_PODS = 2000
"""Kept of one job: all that live, and the latest that ended for as long as there are fewer altogether."""
AT_ONCE = 50
"""Rows of a statement: one may list 2,000 pods."""
Outcome, State = GpuJob.Outcome, GpuJob.State
FIELDS = [
    "namespace", "kind", "name", "queue", "state", "size", "gpus", "queued_at", "started_at", "all_running_at",
    "running_since", "ran_seconds", "starts", "pods_seen", "restarts", "ended_at", "outcome", "pods", "roles",
    "controllers", "changed_at",
]  # fmt: skip


class PodEnd(NamedTuple):
    outcome: str
    at: datetime


class PodChange(NamedTuple):
    uid: str
    values: Values
    """The last that is known of it."""
    end: PodEnd | None
    """None while it lives."""


def end_of(raw: Raw, at: datetime) -> PodEnd:
    """Return how and when a pod ended that is finished or deleted."""
    status = raw.get("status")
    phase = str(status.get("phase")) if isinstance(status, Mapping) else ""
    outcome = {"Succeeded": Outcome.SUCCEEDED, "Failed": Outcome.FAILED}.get(phase, Outcome.DELETED)
    return PodEnd(outcome, min(at, rows.finished_at(raw) or at))


def track(cluster: Cluster, changes: Iterable[PodChange], at: datetime) -> None:
    """Write the jobs of these pods. Within the lock of the cluster's rows; one query to read, one to write, for 500."""
    by_key: dict[str, list[PodChange]] = defaultdict(list)
    for change in changes:
        if key := change.values["job_key"]:
            by_key[key].append(change)
    for chunk in write_lock.chunks(sorted(by_key)):
        known = {job.key: job for job in GpuJob.objects.filter(cluster=cluster, key__in=chunk)}
        changed = []
        for key in chunk:
            life = _Life(known.get(key) or _new(cluster, by_key[key], at), at)
            if life.advance(by_key[key]):
                changed.append(life.job)
        GpuJob.objects.bulk_create(
            changed, batch_size=AT_ONCE, update_conflicts=True, unique_fields=["cluster", "key"], update_fields=FIELDS
        )


def _new(cluster: Cluster, changes: Sequence[PodChange], at: datetime) -> GpuJob:
    values = changes[0].values
    job = GpuJob(cluster=cluster, key=values["job_key"], queued_at=at, first_seen_at=at)
    job.namespace, job.kind, job.name = values["namespace"], values["job_kind"], values["job_name"]
    return job


class _Life:
    """One job's row while changes of its pods are brought into it, those that ended before those that came."""

    def __init__(self, job: GpuJob, at: datetime) -> None:
        self.job, self.at = job, at
        self.pods = {pod.uid: pod for pod in job.all_pods()}
        self.before = [getattr(job, name) for name in FIELDS[:-1]]

    def advance(self, changes: Sequence[PodChange]) -> bool:
        """Return whether anything of the row is different now."""
        for change in changes:
            if change.end is not None:
                self._end(change, change.end)
            if change.uid in self.pods or change.end is None:
                self.job.add_controller(change.values["owner_kind"], change.values["owner_name"])
        self._settle()
        for change in changes:
            if change.end is None:
                self._live(change)
        self._settle()
        self._trim()
        pods = list(self.pods.values())
        self.job.pods, self.job.roles = GpuJob.stored(pods), GpuJob.stored_roles(pods)
        self.job.changed_at = self.at
        return [getattr(self.job, name) for name in FIELDS[:-1]] != self.before

    def _end(self, change: PodChange, end: PodEnd) -> None:
        pod = self.pods.get(change.uid)
        if pod is None or pod.ended is not None:
            return
        ended = max(_seconds(end.at), pod.running or pod.created)
        self.pods[change.uid] = pod._replace(ended=ended, outcome=str(end.outcome))

    def _live(self, change: PodChange) -> None:
        job, values, pod = self.job, change.values, self.pods.get(change.uid)
        if pod is None:
            created = self._clamped(values["created_at"]) or self.at
            pod = JobPod(change.uid, values["name"], "", 0, _seconds(created), None, None, "", 0)
            job.pods_seen += 1
            job.queued_at = min(job.queued_at, created)
        running = pod.running
        if running is None and values["phase"] == "Running":
            running = max(pod.created, _seconds(self._clamped(values["running_at"]) or self.at))
        job.restarts += max(0, values["restarts"] - pod.restarts)
        job.queue = values["queue"] or job.queue
        self.pods[change.uid] = pod._replace(
            node=values["node_name"], gpus=values["gpus"], running=running, ended=None, outcome="",
            restarts=max(pod.restarts, values["restarts"]), role=values["role"],
        )  # fmt: skip

    def _settle(self) -> None:
        job, live = self.job, [pod for pod in self.pods.values() if pod.ended is None]
        begins = [pod.running for pod in self.pods.values() if pod.running is not None]
        job.size, job.gpus = max(job.size, len(live)), max(job.gpus, sum(pod.gpus for pod in live))
        if begins:
            first = _instant(min(begins))
            job.started_at = min(job.started_at or first, first)
        done = sum(pod.outcome == Outcome.SUCCEEDED for pod in self._latest())
        wanted = len(live) if job.kind in job_owner.ELASTIC else job.size
        is_whole = bool(live) and all(pod.running for pod in live) and len(live) + done >= wanted
        if is_whole and job.running_since is None:
            self._begin(max(pod.running or 0 for pod in live))
        elif not is_whole and job.running_since is not None:
            self._pause()
        self._conclude(live)
        running = any(pod.running for pod in live)
        job.state = (
            State.ENDED if job.ended_at else State.RUNNING if is_whole else State.STARTING if running else State.QUEUED
        )

    def _begin(self, running: int) -> None:
        job = self.job
        ended = [pod.ended for pod in self.pods.values() if pod.ended is not None and pod.outcome != Outcome.SUCCEEDED]
        since = _instant(max(running, *ended) if ended else running)
        job.running_since, job.starts = since, job.starts + 1
        job.all_running_at = job.all_running_at or since

    def _pause(self) -> None:
        job = self.job
        since = _seconds(job.running_since or self.at)
        ends = [pod.ended for pod in self.pods.values() if pod.ended is not None and pod.ended >= since]
        job.ran_seconds += max(0, (min(ends) if ends else _seconds(self.at)) - since)
        job.running_since = None

    def _conclude(self, live: Sequence[JobPod]) -> None:
        job, ends = self.job, self._latest()
        if live or not ends:
            job.ended_at, job.outcome = None, ""
            return
        job.ended_at = _instant(max(pod.ended or 0 for pod in ends))
        outcomes = {pod.outcome for pod in ends}
        order = (Outcome.FAILED, Outcome.SUCCEEDED, Outcome.DELETED)
        job.outcome = next((str(outcome) for outcome in order if outcome in outcomes), "")

    def _latest(self) -> list[JobPod]:
        """The last pods that ended, as many as the job had at once: those before them were replaced."""
        ended = sorted((pod for pod in self.pods.values() if pod.ended is not None), key=lambda pod: pod.ended or 0)
        live = sum(pod.ended is None for pod in self.pods.values())
        count = max(0, self.job.size - live)
        return ended[-count:] if count else []

    def _trim(self) -> None:
        """Forget those that ended first; never one that lives, which would count as another when it changes."""
        over = len(self.pods) - MOST_PODS
        if over > 0:
            ended = sorted((pod.ended, pod.uid) for pod in self.pods.values() if pod.ended is not None)
            for _, uid in ended[:over]:
                del self.pods[uid]

    def _clamped(self, at: datetime | None) -> datetime | None:
        """A cluster's clock may be ahead of ours: nothing began after it was heard of."""
        return min(at, self.at) if at else None


def _seconds(at: datetime) -> int:
    return int(at.timestamp())


def _instant(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
