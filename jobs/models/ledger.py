"""Permission to disturb a node: one ledger a cluster, one slot a node."""

from __future__ import annotations

from django.db import models

from clusters.models import Cluster, Node
from common.clock import now
from jobs.models.steps import Step


class Ledger(models.Model):
    """One row a cluster. Handing out a slot raises its version in the same transaction, so two cannot at once."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="ledger")
    version = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"ledger of {self.cluster_id}"


class Slot(models.Model):
    """Permission to disturb one node. Belongs to a step, not to a worker's lease."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="slots")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="slots")
    step = models.OneToOneField(Step, on_delete=models.CASCADE, related_name="slot")
    taken_at = models.DateTimeField(default=now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node"], name="one_slot_per_node")]

    def __str__(self) -> str:
        return f"slot of {self.step_id}"
