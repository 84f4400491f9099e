"""Versions of the approval policy. A version is never changed: its text is what was proposed."""

from __future__ import annotations

from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from audit.marked import Marked, MarkedQuerySet
from common.clock import now


class PolicyQuerySet(MarkedQuerySet["PolicyVersion"]):
    def active(self) -> Self:
        return self.filter(is_active=True)


class PolicyVersion(Marked):
    """Text of an approval policy; at most one version is active. Activation takes a second administrator."""

    MARKED = ("number", "text", "proposed_by_id", "activated_by_id", "activated_at", "is_active")

    number = models.PositiveIntegerField(unique=True)
    text = models.TextField(help_text="YAML: time zone and rules.")
    message = models.CharField(max_length=300, help_text="Why, in the proposer's words.")
    proposed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    proposed_at = models.DateTimeField(default=now)
    activated_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+")
    activated_at = models.DateTimeField(null=True)
    is_active = models.BooleanField(default=False)
    retired_at = models.DateTimeField(null=True, help_text="When the next version took its place.")

    objects = PolicyQuerySet.as_manager()

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["is_active"], condition=Q(is_active=True), name="one_active_policy"),
            models.CheckConstraint(
                condition=Q(activated_by=None) | ~Q(activated_by=models.F("proposed_by")),
                name="another_activates_a_policy",
            ),
        ]

    def __str__(self) -> str:
        return f"policy v{self.number}"
