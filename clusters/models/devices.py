"""GPUs by Dynamic Resource Allocation: slices of devices that drivers publish, and claims that are given them."""

from __future__ import annotations

from django.db import models

from common.clock import now


class _Observed(models.Model):
    uid = models.CharField(max_length=64)
    resource_version = models.CharField(max_length=40, blank=True)
    versioned_at = models.DateTimeField(default=now, help_text="When the object of `resource_version` was heard.")

    class Meta:
        abstract = True


class DeviceSlice(_Observed):
    """A ResourceSlice of NVIDIA's driver: devices of one node."""

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE, related_name="+")
    node_name = models.CharField(max_length=253)
    pool = models.CharField(max_length=253)
    generation = models.BigIntegerField(default=0, help_text="Of the pool; slices of older ones are being replaced.")
    product = models.CharField(max_length=120, blank=True)
    devices = models.JSONField(default=dict, help_text="{name: [profile, board, whether it is made when it is given]}")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="one_device_slice_uid")]
        indexes = [models.Index(fields=["cluster", "node_name"])]

    def __str__(self) -> str:
        return f"devices of {self.pool}"


class DeviceClaim(_Observed):
    """A ResourceClaim that was given GPUs of NVIDIA's driver, or wants some."""

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE, related_name="+")
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    devices = models.JSONField(default=list, help_text="`<pool>/<device>`, or keys of what it waits for.")
    pods = models.JSONField(default=list, help_text="UIDs of the pods that use it.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="one_device_claim_uid")]
        indexes = [models.Index(fields=["cluster", "name"])]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
