"""Bookkeeping of a cluster's rows: the writers' lock, tombstones, comparisons with lists, and watchers."""

from __future__ import annotations

from django.db import models

from common.clock import now


class RowWriter(models.Model):
    """Locked by the writer of rows of the cluster's objects: one at a time (`clusters.inventory.write_lock`)."""

    cluster = models.OneToOneField("clusters.Cluster", on_delete=models.CASCADE, primary_key=True, related_name="+")

    def __str__(self) -> str:
        return f"writer of {self.cluster_id}"


class Tombstone(models.Model):
    """An object that was deleted: an answer that is late does not bring it back. Kept as long as one can be late."""

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=12)
    key = models.CharField(max_length=64, help_text="The object's UID; of a NodeTuning, its node's.")
    resource_version = models.CharField(
        max_length=40, blank=True, help_text="Of the deletion, or of a list without it."
    )
    at = models.DateTimeField(default=now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "kind", "key"], name="one_tombstone")]
        indexes = [models.Index(fields=["cluster", "at"])]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class RowCheck(models.Model):
    """Results of comparing names and versions of one kind with the rows, totaled over all comparisons."""

    COUNTED = ("missing", "behind", "orphaned", "misread", "altered")

    cluster = models.ForeignKey("clusters.Cluster", on_delete=models.CASCADE, related_name="row_checks")
    kind = models.CharField(max_length=12)
    checked_at = models.DateTimeField(null=True)
    checks = models.PositiveBigIntegerField(default=0)
    missing = models.PositiveBigIntegerField(default=0, help_text="An object without a row.")
    behind = models.PositiveBigIntegerField(default=0, help_text="A row of an older version than its object's.")
    orphaned = models.PositiveBigIntegerField(default=0, help_text="A row without an object.")
    misread = models.PositiveBigIntegerField(default=0, help_text="A row of a version that its object never had then.")
    altered = models.PositiveBigIntegerField(default=0, help_text="A row of the right version with other values.")
    values_compared = models.PositiveBigIntegerField(default=0, help_text="Rows whose values were compared.")
    unmended = models.PositiveBigIntegerField(default=0, help_text="Differences that were still there after mending.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "kind"], name="one_row_check")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.cluster_id}"


class Watcher(models.Model):
    """A process that watches clusters, as long as it says so: what shares of the clusters are counted by."""

    owner = models.CharField(max_length=64, primary_key=True)
    started_at = models.DateTimeField(default=now)
    lease_until = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.owner
