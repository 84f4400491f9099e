"""Pods that hold GPUs or wait for some, and those that may have to do with them."""

from __future__ import annotations

from typing import Any

from django.db import models

from common.clock import now


class PodsWithGpus(models.Manager[Any]):
    """Pods that hold GPUs, or wait for some; without those that use claims for other devices, or reserve GPUs for
    other pods."""

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().filter(gpus__gt=0)


class GpuPod(models.Model):
    """A pod that requests GPUs or uses claims, and is not finished. Others are read when planning and draining."""

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE, related_name="gpu_pods")
    uid = models.CharField(max_length=64)
    resource_version = models.CharField(max_length=40, blank=True)
    versioned_at = models.DateTimeField(default=now, help_text="When the object of `resource_version` was heard.")
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    node_name = models.CharField(max_length=253, blank=True)
    gpus = models.PositiveIntegerField()
    mig = models.JSONField(default=dict, help_text="Of `gpus`, MIG instances by profile.")
    claims = models.JSONField(default=list, db_default=[], help_text="Names of the ResourceClaims that it uses.")
    devices = models.JSONField(
        default=dict,
        db_default={},
        help_text="Devices that it was given by name, which others may hold too: {key: profile}.",
    )
    owner_kind = models.CharField(max_length=63, blank=True)
    owner_name = models.CharField(max_length=253, blank=True)
    job_kind = models.CharField(max_length=63, blank=True, help_text="Of the job: clusters.inventory.job_owner.")
    job_name = models.CharField(max_length=253, blank=True)
    job_key = models.CharField(max_length=64, blank=True, help_text="GpuJob.key; empty: not read since an upgrade.")
    role = models.CharField(
        max_length=128, blank=True, db_default="", help_text="Its part in the job: clusters.inventory.job_role."
    )
    queue = models.CharField(max_length=253, blank=True)
    created_at = models.DateTimeField(null=True)
    running_at = models.DateTimeField(null=True, help_text="Since when its containers run; null: it does not run.")
    restarts = models.PositiveIntegerField(default=0, help_text="Of its containers.")
    phase = models.CharField(max_length=20, blank=True)
    started_at = models.DateTimeField(null=True)
    memory_kills = models.PositiveIntegerField(default=0, help_text="Containers whose last end was OOMKilled.")
    memory_killed_at = models.DateTimeField(null=True, help_text="When the latest of them ended.")
    is_starting = models.BooleanField(
        default=False, db_default=False, help_text="It was not ready yet whenever it was seen."
    )
    tolerations = models.JSONField(default=list, help_text="Those that count for NoExecute; see clusters.tolerations.")

    objects = PodsWithGpus()
    every = models.Manager["GpuPod"]()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="one_gpu_pod_uid")]
        indexes = [models.Index(fields=["cluster", "node_name"])]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
