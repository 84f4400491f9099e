"""Jobs that hold or held GPUs, over their life: one row each, which outlives their pods."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django.db import models

from clusters.models.clusters import Cluster
from common.clock import now


class JobPod(NamedTuple):
    """One pod of a job. Times are seconds since 1970; None: not yet."""

    uid: str
    name: str
    node: str
    gpus: int
    created: int
    running: int | None
    ended: int | None
    outcome: str
    """One of GpuJob.Outcome; empty while it lives."""
    restarts: int
    """Of its containers."""
    role: str = ""
    """Its part in the job; empty: not known, or stored before roles were."""


class GpuJob(models.Model):
    """A job of pods that request GPUs: what the pods told of it while they were there.

    Written with the pods' rows, and only when something of it changes. Times are the cluster's where it tells them, and
    never later than when Setpoint heard of them.
    """

    MOST_CONTROLLERS = 20

    class Outcome(models.TextChoices):
        SUCCEEDED = "succeeded", "Succeeded"
        FAILED = "failed", "Failed"
        DELETED = "deleted", "Deleted"

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        STARTING = "starting", "Partly running"
        RUNNING = "running", "Running"
        ENDED = "ended", "Ended"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="gpu_jobs", db_index=False)
    key = models.CharField(max_length=64, help_text="Hash of namespace, kind, name and the UID where pods tell it.")
    namespace = models.CharField(max_length=63)
    kind = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    queue = models.CharField(max_length=253, blank=True)
    state = models.CharField(max_length=8, choices=State, default=State.QUEUED)
    size = models.PositiveIntegerField(default=0, help_text="The most pods that it had at once.")
    gpus = models.PositiveIntegerField(default=0, help_text="The most GPUs that its pods requested at once.")
    queued_at = models.DateTimeField(help_text="When its first pod was created.")
    started_at = models.DateTimeField(null=True, help_text="When its first pod ran.")
    all_running_at = models.DateTimeField(null=True, help_text="When all of its pods first ran at once.")
    running_since = models.DateTimeField(null=True, help_text="Since when all of them run; null while they do not.")
    ran_seconds = models.FloatField(default=0, help_text="In which all of them ran, up to `running_since`.")
    starts = models.PositiveIntegerField(default=0, help_text="How often all of them came to run.")
    pods_seen = models.PositiveIntegerField(default=0, help_text="Pods altogether.")
    restarts = models.PositiveIntegerField(default=0, help_text="Of its pods' containers.")
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=9, choices=Outcome, blank=True)
    pods = models.JSONField(
        default=list, help_text="[JobPod as a list, without its role]: those that live, and the latest that ended."
    )
    roles = models.JSONField(
        default=dict, db_default={}, help_text="{uid: role} of the pods with one: processes of before read `pods`."
    )
    controllers = models.TextField(
        default="",
        db_default="",
        blank=True,
        help_text="Kind/name of its pods' controllers, each between line ends, 20 at most; an empty line: pods without "
        "one. Empty: not known, as in rows of before.",
    )
    first_seen_at = models.DateTimeField(default=now)
    changed_at = models.DateTimeField(default=now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "key"], name="one_gpu_job_key")]
        indexes = [
            models.Index(fields=["cluster", "ended_at"], name="clusters_job_ended"),
            models.Index(fields=["queued_at"], name="clusters_job_queued"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def shown(self) -> str:
        """Return its place on the axis `job`: how it ended, else its state."""
        return self.outcome or self.state

    def all_pods(self) -> list[JobPod]:
        return [JobPod(*entry)._replace(role=self.roles.get(entry[0], "")) for entry in self.pods]

    def add_controller(self, kind: str, name: str) -> None:
        line = " ".join(f"{kind}/{name}".split()) if kind else ""
        stored = self.controllers_of(self.controllers)
        if line not in stored and len(stored) < self.MOST_CONTROLLERS:
            self.controllers = (self.controllers or "\n") + f"{line}\n"

    @staticmethod
    def controllers_of(stored: str) -> list[str]:
        """Return those of a row's `controllers`: `Kind/name`, and an empty text for pods without one."""
        return stored[1:-1].split("\n") if stored else []

    def all_running_seconds(self, at: datetime) -> float:
        """Return for how long all of its pods ran at once, up to `at`."""
        going = (at - self.running_since).total_seconds() if self.running_since else 0.0
        return self.ran_seconds + max(0.0, going)

    def until(self, at: datetime) -> datetime:
        """Return the end of its life; `at` while it lives."""
        return self.ended_at or at

    @classmethod
    def stored(cls, pods: list[JobPod]) -> list[Any]:
        """Return them as `pods` has them."""
        return [list(pod[:-1]) for pod in pods]

    @classmethod
    def stored_roles(cls, pods: list[JobPod]) -> dict[str, str]:
        return {pod.uid: pod.role for pod in pods if pod.role}
