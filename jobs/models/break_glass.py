"""Break-glass: starts without approval, and the reviews that follow. Rows are kept as long as their rollout."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models

from audit.marked import Marked, MarkedQuerySet
from common.clock import now
from jobs.models.rollouts import Rollout

DAY = timedelta(hours=24)
REVIEWERS = 2
"""People who review each use; none of them is its starter."""


class BreakGlassQuerySet(MarkedQuerySet["BreakGlass"]):
    def lacking_reviews(self) -> list[BreakGlass]:
        """Return the uses that lack valid reviews. Rows are read in full: whether a review is valid, or was put into
        the table, is in its mark, which the database cannot judge."""
        return [row for row in self.prefetch_related("reviews") if row.missing]

    def overdue(self) -> list[BreakGlass]:
        return [row for row in self.lacking_reviews() if row.is_overdue]

    def recent(self) -> list[BreakGlass]:
        """Return those that SETPOINT_BREAK_GLASS_PER_DAY counts, the newest first."""
        return sorted((row for row in self if row.counts_today), key=lambda row: row.used_at, reverse=True)


class BreakGlass(Marked):
    """One start of a rollout without its approvals: its person, the reason, and until when windows do not hold it."""

    MARKED = ("id", "rollout_id", "digest", "person_id", "reason", "worst_class", "at", "until", "review_by")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    rollout = models.OneToOneField(Rollout, on_delete=models.CASCADE, related_name="glass")
    digest = models.CharField(max_length=71, help_text="Of the plan, as its starter saw it.")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    reason = models.CharField(max_length=500)
    worst_class = models.CharField(max_length=20)
    at = models.DateTimeField(default=now)
    until = models.DateTimeField(help_text="It must have begun by then; from then on windows hold it.")
    review_by = models.DateTimeField(help_text="When its reviews are overdue.")
    told_at = models.DateTimeField(null=True, help_text="When it was reported that they are.")

    objects = BreakGlassQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "pk"]
        indexes = [models.Index(fields=["person", "review_by"])]

    def __str__(self) -> str:
        return f"break-glass of {self.rollout}"

    @property
    def used_at(self) -> datetime:
        """Now for a row that was changed in the table: its time is not known."""
        return self.at if self.is_genuine else now()

    @property
    def counts_today(self) -> bool:
        return self.used_at > now() - DAY

    @property
    def genuine_reviews(self) -> list[GlassReview]:
        return [row for row in self.reviews.all() if row.is_genuine]

    @property
    def missing(self) -> int:
        return max(0, REVIEWERS - len(self.genuine_reviews))

    @property
    def is_overdue(self) -> bool:
        """A row that was changed in the table is, for as long as it lacks reviews: its deadline is not known."""
        return bool(self.missing) and (self.review_by <= now() or not self.is_genuine)

    @property
    def state(self) -> str:
        """`reviewed`, `open` or `overdue`."""
        if not self.missing:
            return "reviewed"
        return "overdue" if self.is_overdue else "open"


class GlassReview(Marked):
    """One person's review of one use."""

    MARKED = ("id", "glass_id", "person_id", "verdict", "text", "at")

    class Verdict(models.TextChoices):
        OK = "ok", "Justified"
        NOT_OK = "not-ok", "Not justified"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    glass = models.ForeignKey(BreakGlass, on_delete=models.CASCADE, related_name="reviews")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    verdict = models.CharField(max_length=6, choices=Verdict)
    text = models.CharField(max_length=2000)
    at = models.DateTimeField(default=now)

    objects = MarkedQuerySet["GlassReview"].as_manager()

    class Meta:
        ordering = ["at", "pk"]
        constraints = [models.UniqueConstraint(fields=["glass", "person"], name="one_review_a_person")]

    def __str__(self) -> str:
        return f"{self.person}: {self.verdict}"
