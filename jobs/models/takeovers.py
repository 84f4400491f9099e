"""Taking over nodes whose objects are newer than this database: after a cluster moved, or a backup was restored."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from clusters.models import Cluster, Node
from common.clock import now
from jobs.models.state_machine import Moves


class Takeover(Moves):
    """Takeover of unknown state in a cluster: requested by one admin, approved by another person, then carried out."""

    class Status(models.TextChoices):
        REQUESTED = "requested", "Waits for a second person"
        APPROVED = "approved", "Being carried out"
        DONE = "done", "Done"
        WITHDRAWN = "withdrawn", "Withdrawn"

    OPEN: ClassVar[tuple[str, ...]] = (Status.REQUESTED, Status.APPROVED)
    NEXT: ClassVar[dict[str, set[str]]] = {
        Status.REQUESTED: {Status.APPROVED, Status.WITHDRAWN},
        Status.APPROVED: {Status.DONE},
    }

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="takeovers")
    status = models.CharField(max_length=10, choices=Status, default=Status.REQUESTED)
    digest = models.CharField(max_length=71, help_text="Of everything that its nodes' rows show.")
    message = models.CharField(max_length=500)
    release_cordons = models.BooleanField(default=False, help_text="Cordons of unknown steps are released, too.")
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    requested_at = models.DateTimeField(default=now)
    approved_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    approved_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-requested_at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster"], condition=Q(status__in=["requested", "approved"]), name="one_open_takeover"
            )
        ]

    def __str__(self) -> str:
        return f"takeover of {self.cluster}"

    @property
    def left(self) -> list[TakeoverNode]:
        """Nodes that were not, or not wholly, taken over, and why."""
        return list(self.nodes.exclude(result=""))


class TakeoverNode(models.Model):
    """One node of it: exactly what was shown of its object and its cordon, and what became of it."""

    takeover = models.ForeignKey(Takeover, on_delete=models.CASCADE, related_name="nodes")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    uid = models.CharField(max_length=64)
    name = models.CharField(max_length=253)
    step = models.CharField(max_length=64, blank=True, help_text="That its NodeTuning names; empty: only its cordon.")
    spec = models.CharField(max_length=71, blank=True, help_text="Digest of what the NodeTuning asks of the node.")
    settings = models.JSONField(default=list, help_text="[{key, asked, now, original, is_written}]")
    restart = models.CharField(max_length=20, blank=True, help_text="The restart that the object still allows.")
    cordon = models.CharField(max_length=200, blank=True, help_text="The unknown step that holds its cordon.")
    done_at = models.DateTimeField(null=True)
    result = models.CharField(max_length=500, blank=True, help_text="Why it was left as it is; empty: taken over.")

    class Meta:
        ordering = ["name", "pk"]
        constraints = [models.UniqueConstraint(fields=["takeover", "node"], name="one_takeover_node")]

    def __str__(self) -> str:
        return self.name
