"""Waking what is due: by messages of the broker, or by one elected worker while none arrives."""

from __future__ import annotations

from django.db import models


class Sweeper(models.Model):
    """State of one Celery queue: when the broker last delivered, and the lease of the worker that sweeps meanwhile."""

    queue = models.CharField(max_length=40, primary_key=True)
    delivered_at = models.DateTimeField(null=True, help_text="The last sweep that came over the broker.")
    owner = models.CharField(max_length=120, blank=True)
    since = models.DateTimeField(null=True, help_text="Since when workers sweep by themselves.")
    lease_until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.queue
