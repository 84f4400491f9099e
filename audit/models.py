"""The append-only record of who did what. Rows are inserted in the change's own transaction and sealed afterwards."""

from __future__ import annotations

import uuid

from django.db import models

from common.clock import now


class Record(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    at = models.DateTimeField(default=now, db_index=True)
    actor = models.CharField(max_length=200, help_text="Text, so that a deleted person stays named.")
    action = models.CharField(max_length=60, db_index=True, help_text="object.verb, such as plan.approve")
    target = models.CharField(max_length=200, db_index=True, help_text="kind:id, such as plan:<uuid>")
    target_name = models.CharField(max_length=200, blank=True)
    cluster_id = models.UUIDField(null=True, db_index=True)
    request_id = models.CharField(max_length=64, blank=True, db_index=True)
    message = models.TextField(blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    # The seal: set once by the sealer, in order.
    seq = models.BigIntegerField(null=True, unique=True)
    seal = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["-at", "-id"]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor} {self.action} {self.target_name or self.target}"
