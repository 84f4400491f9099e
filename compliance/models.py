"""What each node is expected to run, and what it was seen to run."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from clusters.models import Node, Pool
from common.clock import now
from profiles.models import Revision


class Assignment(models.Model):
    """A pool's target. Set when a rollout starts; nodes follow one by one."""

    class Mode(models.TextChoices):
        APPLY = "apply", "Observe drift"
        ENFORCE = "enforce", "Repair drift"

    pool = models.OneToOneField(Pool, on_delete=models.CASCADE, related_name="assignment")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="assignments")
    mode = models.CharField(max_length=10, choices=Mode, default=Mode.APPLY)
    rollout_id = models.UUIDField(null=True)
    set_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    set_at = models.DateTimeField(default=now)

    def __str__(self) -> str:
        return f"{self.pool} → {self.revision}"


class NodeExpectation(models.Model):
    """The revision this node is expected to run; set when its step starts, so an untouched node never looks drifted."""

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="expectation")
    revision = models.ForeignKey(Revision, null=True, on_delete=models.PROTECT, related_name="+")
    previous = models.ForeignKey(Revision, null=True, on_delete=models.PROTECT, related_name="+")
    rollout_id = models.UUIDField(null=True)
    since = models.DateTimeField(default=now)

    def __str__(self) -> str:
        return f"{self.node_id}: {self.revision_id}"


class SettingState(models.Model):
    """One assigned key on one node: desired, written, effective, original, and who wrote it last."""

    class State(models.TextChoices):
        COMPLIANT = "compliant"
        DRIFTED = "drifted"
        PENDING = "pending"
        UNKNOWN = "unknown"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="settings")
    key = models.CharField(max_length=128)
    operator = models.CharField(max_length=2, default="=")
    desired = models.CharField(max_length=512)
    written = models.CharField(max_length=512, null=True)
    effective = models.CharField(max_length=512, null=True)
    original = models.CharField(max_length=512, null=True, help_text="Before Setpoint's first write; null: key absent.")
    has_original = models.BooleanField(default=False)
    state = models.CharField(max_length=10, choices=State, default=State.PENDING)
    reason = models.CharField(max_length=512, blank=True)
    rollout_id = models.UUIDField(null=True, help_text="The last rollout that wrote this key on this node.")
    since = models.DateTimeField(default=now, help_text="When `state` last changed.")

    class Meta:
        ordering = ["key"]
        constraints = [models.UniqueConstraint(fields=["node", "key"], name="one_state_per_key")]
        indexes = [models.Index(fields=["node", "state"])]

    def __str__(self) -> str:
        return f"{self.node_id} {self.key}: {self.state}"
