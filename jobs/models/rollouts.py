"""Rollouts: the carrying out of approved plans."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q

from audit.marked import Marked, MarkedQuerySet
from clusters.models import Cluster
from common.clock import now
from jobs.models.gates import Freeze
from jobs.models.plans import Plan
from jobs.models.state_machine import Moves

if TYPE_CHECKING:
    from jobs.models.break_glass import BreakGlass


class RolloutQuerySet(MarkedQuerySet["Rollout"]):
    def live(self) -> Self:
        return self.filter(status__in=Rollout.LIVE)

    def with_state(self) -> Self:
        """Annotate what `state` tells besides the status, so that a list needs one query."""
        # By their names: steps import rollouts.
        counts = Q(steps__direction="revert") | ~Q(status=Rollout.Status.REVERTING)
        held = Rollout.objects.filter(counts, pk=OuterRef("pk"), steps__status="held")
        moving = Rollout.objects.filter(pk=OuterRef("pk"), steps__status__in=Rollout.MOVING)
        return self.annotate(is_stuck=Q(status__in=Rollout.CARRIED_OUT) & Exists(held) & ~Exists(moving))

    def under_way(self) -> Self:
        """Those that change something, or are about to: neither ended nor queued, and no person is waited for."""
        return self.with_state().filter(status__in=Rollout.CARRIED_OUT, is_stuck=False)

    def due(self) -> Self:
        """Live ones, from their time on; and ended ones of which a person has a node given back. None after a restore,
        until an administrator lifts its freeze."""
        is_early = Q(status=Rollout.Status.QUEUED, start_at__gt=now())
        # By its name: steps import rollouts.
        returning = Rollout.objects.filter(pk=OuterRef("pk"), steps__status="returning")
        rows = self.exclude(is_early).filter(Q(status__in=Rollout.LIVE) | Exists(returning))
        return rows.exclude(Exists(Freeze.after_restore().order_by()))


class Rollout(Moves, Marked):
    """The carrying out of one approved plan."""

    MARKED = ("id", "plan_id", "cluster_id", "digest", "created_at")

    class Status(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        PAUSED = "paused", "Paused"
        STOPPED = "stopped", "Stopped at failures"
        ABORTING = "aborting", "Aborting"
        REVERTING = "reverting", "Reverting"
        SUCCEEDED = "succeeded", "Succeeded"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"
        REVERTED = "reverted", "Reverted"

    LIVE: ClassVar[tuple[str, ...]] = (
        Status.QUEUED,
        Status.RUNNING,
        Status.PAUSED,
        Status.STOPPED,
        Status.ABORTING,
        Status.REVERTING,
    )
    CARRIED_OUT: ClassVar[tuple[str, ...]] = (Status.RUNNING, Status.ABORTING, Status.REVERTING)
    """What the engine moves by itself; of the other live ones it waits for a time or a person."""
    MOVING: ClassVar[tuple[str, ...]] = (
        "admitted", "cordoning", "draining", "applying", "restarting", "verifying", "returning", "soaking",
    )  # fmt: skip
    """Step.ACTIVE, by name."""
    NEXT: ClassVar[dict[str, set[str]]] = {
        Status.QUEUED: {Status.RUNNING, Status.CANCELLED, Status.PAUSED},
        Status.RUNNING: {Status.PAUSED, Status.STOPPED, Status.ABORTING, Status.SUCCEEDED, Status.FAILED},
        # Back to queued, or cancelled at once: paused before it began.
        Status.PAUSED: {
            Status.RUNNING,
            Status.ABORTING,
            Status.REVERTING,
            Status.STOPPED,
            Status.QUEUED,
            Status.CANCELLED,
        },
        Status.STOPPED: {Status.RUNNING, Status.ABORTING, Status.REVERTING, Status.FAILED},
        Status.ABORTING: {Status.CANCELLED, Status.REVERTING},
        # Only some nodes were reverted: the others stay as they are, or wait for an operator.
        Status.REVERTING: {Status.REVERTED, Status.FAILED, Status.SUCCEEDED, Status.PAUSED},
        # Finished ones can be taken up again by retry or revert.
        Status.SUCCEEDED: {Status.REVERTING},
        Status.FAILED: {Status.RUNNING, Status.REVERTING, Status.SUCCEEDED},
        Status.CANCELLED: {Status.REVERTING},
    }

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    number = models.PositiveIntegerField(unique=True)
    plan = models.OneToOneField(Plan, on_delete=models.PROTECT, related_name="rollout")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="rollouts")
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    start_at = models.DateTimeField(null=True, help_text="Null: at once.")
    digest = models.CharField(max_length=71, blank=True, help_text="Of the plan, as it was approved when this started.")
    started_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    worked_seconds = models.FloatField(default=0, help_text="In CARRIED_OUT so far, up to `working_since`.")
    working_since = models.DateTimeField(null=True, help_text="When it last entered CARRIED_OUT; null: it is in none.")
    waiting_for = models.CharField(max_length=500, blank=True, help_text="One sentence, present tense.")
    waiting_since = models.DateTimeField(null=True)
    blind_since = models.DateTimeField(
        null=True, help_text="Since when its cluster cannot be read; that time counts for no step."
    )
    extra_failures = models.PositiveIntegerField(default=0, help_text="Failures a person has already dealt with.")
    abort_reverts = models.BooleanField(default=False)
    went_on_at = models.DateTimeField(
        null=True, help_text="When a person last had it go on in spite of what held it back."
    )
    freeze_override = models.CharField(max_length=500, blank=True, help_text="Why a revert goes on in a freeze.")

    is_stuck: bool
    """Of rows that `with_state` read."""

    objects = RolloutQuerySet.as_manager()

    class Meta:
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"R-{self.number}"

    @property
    def broken_glass(self) -> BreakGlass | None:
        """Its start by break-glass; None: it was started with its approvals."""
        return getattr(self, "glass", None)

    @property
    def is_live(self) -> bool:
        return self.status in self.LIVE

    def put(self, **fields: Any) -> None:
        """Time in which a person or a date is waited for, or nothing is left to do, is no work."""
        if "status" in fields:
            works = fields["status"] in self.CARRIED_OUT
            if self.working_since and not works:
                since = (now() - self.working_since).total_seconds()
                fields |= {"worked_seconds": self.worked_seconds + since, "working_since": None}
            elif works and not self.working_since:
                fields["working_since"] = now()
        super().put(**fields)

    @property
    def worked(self) -> timedelta:
        """The time during which it was carried out; of rows from before this was counted, from its start to its end."""
        if self.started_at and not self.worked_seconds and not self.working_since:
            return (self.finished_at or now()) - self.started_at
        running = now() - self.working_since if self.working_since else timedelta()
        return timedelta(seconds=self.worked_seconds) + running

    @property
    def state(self) -> str:
        """The state as shown to people: the status, or `held` where nothing moves and an operator must decide."""
        if self.status not in self.CARRIED_OUT:
            return self.status
        if "is_stuck" not in self.__dict__:
            self.is_stuck = Rollout.objects.with_state().get(pk=self.pk).is_stuck
        return "held" if self.is_stuck else self.status

    @property
    def state_word(self) -> str:
        """`state` in lower case, for sentences."""
        return "held" if self.state == "held" else self.get_status_display().lower()

    @property
    def is_under_way(self) -> bool:
        """True if RolloutQuerySet.under_way counts it."""
        return self.state in self.CARRIED_OUT
