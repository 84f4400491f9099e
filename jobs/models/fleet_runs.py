"""Fleet runs: plans of several pools and clusters that are carried out ring by ring."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models

from common.clock import now
from jobs.models.state_machine import Moves

REASON_CHARACTERS = 500


class FleetRun(Moves):
    """An order of plans: those of a ring start only after every ring before it has finished and soaked.

    A plan names its run and its ring (`Plan.fleet_run`, `Plan.ring`). What a ring is like now is never stored:
    `jobs.approvals.rings` reads it from the rollouts.
    """

    class Status(models.TextChoices):
        DRAFT = "draft", "Not started"
        RUNNING = "running", "Running"
        HELD = "held", "Held"
        SUCCEEDED = "succeeded", "Succeeded"
        CANCELLED = "cancelled", "Cancelled"

    NEXT: ClassVar[dict[str, set[str]]] = {
        Status.DRAFT: {Status.RUNNING, Status.CANCELLED},
        Status.RUNNING: {Status.HELD, Status.SUCCEEDED, Status.CANCELLED},
        Status.HELD: {Status.RUNNING, Status.CANCELLED},
    }

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    number = models.PositiveIntegerField(unique=True)
    name = models.CharField(max_length=80)
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT)
    rings = models.JSONField(help_text="[{name, soak_minutes}], the first to be carried out first.")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=now)
    started_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+",
        help_text="In this person's name, and with their role of that moment, its plans start.",
    )  # fmt: skip
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    held_reason = models.CharField(max_length=REASON_CHARACTERS, blank=True)
    waiting_for = models.CharField(max_length=REASON_CHARACTERS, blank=True, help_text="Of the last look at it.")
    waived = models.PositiveSmallIntegerField(
        default=0, help_text="Rings up to this one are not waited for once they have finished: neither soak nor health."
    )

    class Meta:
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"F-{self.number}"
