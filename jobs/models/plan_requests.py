"""Plans of many nodes that were asked for, and are made outside of the request that asked."""

from __future__ import annotations

import uuid
from typing import ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from accounts.models import ApiToken
from audit.marked import Marked, MarkedQuerySet
from clusters.models import Cluster, Pool
from common.clock import now
from jobs.models.plans import Plan
from jobs.models.state_machine import Moves
from profiles.models import Revision


class PlanRequestQuerySet(MarkedQuerySet["PlanRequest"]):
    def live(self) -> Self:
        """Filter those that wait for a worker, or that one works on."""
        return self.filter(status__in=PlanRequest.LIVE)

    def due(self) -> Self:
        """Filter those that a worker may claim now, the oldest first: new ones, and those whose worker ended."""
        abandoned = Q(status=PlanRequest.Status.RUNNING, lease_until__lt=now())
        return self.filter(Q(status=PlanRequest.Status.QUEUED) | abandoned).order_by("requested_at", "pk")


class PlanRequest(Moves, Marked):
    """A plan to be made by a worker. It leads to at most one plan: the move to done is in that plan's transaction.

    It is marked, for the plan has its person as author: a row made in the table must not write one in their name.
    """

    MARKED = ("id", "pool_id", "revision_id", "strategy", "message", "requested_by_id", "token_id", "request_key")

    class Status(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Being made"
        DONE = "done", "Made"
        FAILED = "failed", "Failed"

    LIVE: ClassVar[tuple[str, ...]] = (Status.QUEUED, Status.RUNNING)
    NEXT: ClassVar[dict[str, set[str]]] = {  # a status not listed is final
        Status.QUEUED: {Status.RUNNING},
        Status.RUNNING: {Status.RUNNING, Status.DONE, Status.FAILED},  # again: its worker died, and the lease ran out
    }

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+")
    revision = models.ForeignKey(Revision, on_delete=models.CASCADE, related_name="+")
    strategy = models.JSONField(help_text="A Strategy as JSON, as it was asked for: a seed is drawn with the plan.")
    message = models.CharField(max_length=500, blank=True)
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    token = models.ForeignKey(
        ApiToken, null=True, on_delete=models.CASCADE, related_name="+", help_text="That the person acted through."
    )
    requested_at = models.DateTimeField(default=now)
    content = models.CharField(max_length=64, help_text="SHA-256 of who asked for what: it is made once at a time.")
    request_key = models.CharField(max_length=64, null=True, help_text="As of the plan that it leads to.")
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    phase = models.CharField(max_length=20, blank=True, help_text="One of jobs.planning.node_rows.PHASES.")
    compared = models.PositiveIntegerField(default=0, help_text="Nodes that are through the phase.")
    nodes = models.PositiveIntegerField(default=0, help_text="Of the pool when it was asked for, or read since.")
    attempts = models.PositiveIntegerField(default=0)
    claim = models.CharField(max_length=36, blank=True)
    lease_until = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    error = models.JSONField(null=True, help_text="{status, code, detail, fields: {name: [message]}} of a failed one.")
    plan = models.ForeignKey(Plan, null=True, on_delete=models.SET_NULL, related_name="+")

    objects = PlanRequestQuerySet.as_manager()

    class Meta:
        ordering = ["-requested_at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["content"],
                condition=Q(status__in=["queued", "running"]),  # PlanRequest.LIVE
                name="one_live_plan_request",
            )
        ]
        indexes = [models.Index(fields=["status", "requested_at"])]

    def __str__(self) -> str:
        return f"request of a plan for {self.pool_id}"

    @property
    def is_live(self) -> bool:
        return self.status in self.LIVE
