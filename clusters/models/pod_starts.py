"""Starts of pods with GPUs: one row each, which outlives the pod."""

from __future__ import annotations

from django.db import models

from clusters.models.clusters import Cluster


class PodStart(models.Model):
    """The first start of a pod, written once it is over: the pod was ready for the first time, or was gone before.

    Times are the cluster's own, in whole seconds; `ended_at` alone is Setpoint's. Later starts of a pod's containers
    are none: its conditions tell of the latest alone, and those between two readings would be missing.
    """

    class Outcome(models.TextChoices):
        READY = "ready", "Ready"
        FINISHED = "finished", "Ended before it was ready"
        FAILED = "failed", "Failed before it was ready"
        DELETED = "deleted", "Deleted before it was ready"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="pod_starts", db_index=False)
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    node_name = models.CharField(max_length=253, blank=True)
    gpus = models.PositiveIntegerField()
    job_kind = models.CharField(max_length=63, blank=True)
    job_name = models.CharField(max_length=253, blank=True)
    job_key = models.CharField(max_length=64, blank=True, help_text="GpuJob.key.")
    image = models.CharField(max_length=512, blank=True, help_text="Of its first container with GPUs.")
    model = models.CharField(max_length=63, blank=True, help_text="Label of the model that it serves.")
    has_probe = models.BooleanField(help_text="A container with GPUs has a readiness or startup probe.")
    restarts = models.PositiveIntegerField(default=0, help_text="Of its containers until then.")
    created_at = models.DateTimeField(null=True)
    scheduled_at = models.DateTimeField(null=True)
    sandbox_at = models.DateTimeField(null=True, help_text="PodReadyToStartContainers: volumes and network are there.")
    initialized_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True, help_text="When the first container with GPUs and a probe started.")
    ready_at = models.DateTimeField(null=True)
    queue_seconds = models.PositiveIntegerField(null=True, help_text="From creation until it was placed on a node.")
    prepare_seconds = models.PositiveIntegerField(null=True, help_text="From then until its container started.")
    load_seconds = models.PositiveIntegerField(null=True, help_text="From then until it was ready.")
    dropped = models.PositiveSmallIntegerField(default=0, help_text="Spans that were negative, or beyond belief.")
    outcome = models.CharField(max_length=8, choices=Outcome)
    reason = models.CharField(max_length=80, blank=True, help_text="Why it was not ready, as Kubernetes names it.")
    ended_at = models.DateTimeField(help_text="When Setpoint saw that it was over.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="one_start_of_a_pod")]
        indexes = [
            models.Index(fields=["cluster", "ended_at"], name="clusters_start_ended"),
            models.Index(fields=["cluster", "job_key"], name="clusters_start_job"),
            models.Index(fields=["ended_at"], name="clusters_start_age"),
        ]

    def __str__(self) -> str:
        return f"start of {self.namespace}/{self.name}"
