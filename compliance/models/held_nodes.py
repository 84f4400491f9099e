"""Nodes that run no pods yet, because they are not tuned."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models

from clusters.models import Node
from common.clock import now


class HeldNode(models.Model):
    """A node with the taint setpoint.dev/untuned in a pool that decides over it (compliance.services.held_nodes)."""

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="hold")
    since = models.DateTimeField(
        default=now, help_text="When Setpoint first saw it there: the time limit counts from it."
    )
    minutes = models.PositiveIntegerField(help_text="Time limit of its pools; of several, the longest.")

    released_at = models.DateTimeField(null=True, help_text="When it was decided, and recorded, to remove the taint.")

    def __str__(self) -> str:
        return f"{self.node_id} held since {self.since}"

    @property
    def ends_at(self) -> datetime:
        return self.since + timedelta(minutes=self.minutes)
