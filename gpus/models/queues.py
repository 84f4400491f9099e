"""Waits of gangs for GPUs, and what queues offered and held over time."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from django.db import models
from django.db.models import F

from clusters.models import Cluster


class WorkloadWaitQuerySet(models.QuerySet["WorkloadWait"]):
    def with_reading(self) -> Self:
        """Annotate `read_at`: up to then it is known to wait."""
        return self.annotate(read_at=F("cluster__waiting__read_at"))


class WorkloadWait(models.Model):
    """One wait of a Kueue Workload, a Volcano PodGroup or a pod, and what came of it.

    A workload that is evicted waits again: that is another row of the same `uid`, with the next number. Times are the
    cluster's where it tells them, never before the object's creation and never later than the reading.
    """

    class System(models.TextChoices):
        KUEUE = "kueue", "Kueue"
        VOLCANO = "volcano", "Volcano"
        PODS = "pods", "no queue"

    class Outcome(models.TextChoices):
        FINISHED = "finished", "Finished"
        EVICTED = "evicted", "Evicted"
        REMOVED = "removed", "Removed"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="workload_waits", db_index=False)
    system = models.CharField(max_length=7, choices=System)
    uid = models.CharField(max_length=64)
    number = models.PositiveIntegerField(help_text="1: the first wait that was seen of it.")
    kind = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    queue = models.CharField(max_length=253, blank=True, help_text="ClusterQueue or Queue; empty: none, or unknown.")
    local_queue = models.CharField(max_length=253, blank=True, help_text="Of Kueue.")
    owner_kind = models.CharField(max_length=63, blank=True)
    owner_name = models.CharField(max_length=253, blank=True)
    job_key = models.CharField(max_length=64, blank=True, help_text="GpuJob.key where it can be told.")
    gpus = models.PositiveIntegerField()
    pods = models.JSONField(default=list, help_text="[how many pods, GPUs of each]")
    profile = models.CharField(max_length=63, blank=True, help_text="As gpus.capacity.pending.Gang has it.")
    selector = models.JSONField(default=dict, help_text="Node labels that all of its pods ask for.")
    priority = models.IntegerField(null=True, help_text="null: its object has none.")
    is_active = models.BooleanField(default=True, help_text="False: switched off, it waits for nothing.")
    created_at = models.DateTimeField(help_text="Of the object.")
    queued_at = models.DateTimeField()
    admitted_at = models.DateTimeField(null=True, help_text="null: not admitted, or not known.")
    running_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=8, choices=Outcome, blank=True, help_text="Empty: it has not ended.")
    reason = models.CharField(max_length=80, blank=True, help_text="Of an eviction, as the scheduler names it.")
    evictions = models.PositiveIntegerField(
        default=0, help_text="That ended it: several between two readings are one row."
    )
    tallied = models.JSONField(default=dict, help_text="{reason: evictions of the whole workload so far}, by Kueue.")
    is_measured = models.BooleanField(default=True, help_text="False: how long it waited is not known.")
    has_quota = models.BooleanField(default=False, help_text="Of Kueue: its quota is reserved already.")
    admission_mark = models.DateTimeField(null=True, help_text="As the cluster wrote it, for comparison alone.")
    eviction_mark = models.DateTimeField(null=True, help_text="Likewise, of the eviction that it waits after.")
    is_present = models.BooleanField(
        default=True, help_text="The object was in the last reading, and waits no other time."
    )

    read_at: datetime | None = None
    """When its cluster was last read: `with_reading`."""

    objects = WorkloadWaitQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "system", "uid", "number"], name="one_wait_of_a_workload")
        ]
        indexes = [
            models.Index(fields=["cluster", "queued_at"], name="gpus_wait_queued"),
            models.Index(fields=["cluster", "ended_at"], name="gpus_wait_ended"),
            models.Index(fields=["cluster", "job_key"], name="gpus_wait_job"),
            models.Index(fields=["cluster", "system"], name="gpus_wait_present", condition=models.Q(is_present=True)),
            models.Index(
                fields=["cluster", "queue"],
                name="gpus_wait_open",
                condition=models.Q(admitted_at=None, ended_at=None),
            ),
        ]

    def __str__(self) -> str:
        return f"wait {self.number} of {self.namespace}/{self.name}"

    @property
    def is_waiting(self) -> bool:
        return self.admitted_at is None and self.ended_at is None

    @property
    def waited(self) -> float:
        """Return for how many seconds it waited: until it was admitted, else ended, else was last read."""
        until = self.admitted_at or self.ended_at or self.read_at or self.queued_at
        return max(0.0, (until - self.queued_at).total_seconds())


class QueueStep(models.Model):
    """Offer and use of a queue during one step of time: sums of value × seconds, each with its own seconds.

    A value that a reading lacks adds nothing to its seconds: it is a gap, and never zero.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="queue_steps", db_index=False)
    system = models.CharField(max_length=7)
    queue = models.CharField(max_length=253)
    seconds = models.PositiveSmallIntegerField(help_text="300 or 3600.")
    start = models.DateTimeField(help_text="A multiple of `seconds`, UTC.")
    recorded = models.FloatField(default=0, help_text="Seconds of the step that readings speak for.")
    pending = models.FloatField(default=0, help_text="Gangs that wait × seconds.")
    pending_gpus = models.FloatField(default=0)
    used = models.FloatField(default=0, help_text="GPU-seconds, as all that follow.")
    used_recorded = models.FloatField(default=0)
    quota = models.FloatField(default=0, help_text="Nominal quota, or deserved; where there is none, the capability.")
    quota_recorded = models.FloatField(default=0)
    idle = models.FloatField(default=0, help_text="Held idle by the queue's pods.")
    idle_recorded = models.FloatField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "system", "queue", "seconds", "start"], name="one_step_of_a_queue"
            )
        ]
        indexes = [models.Index(fields=["seconds", "start"], name="gpus_queue_step_age")]

    def __str__(self) -> str:
        return f"{self.queue} {self.start:%Y-%m-%d %H:%M}"
