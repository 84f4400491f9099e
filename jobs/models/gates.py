"""Freezes, which keep steps from starting, and signals from above, which also put them in another order."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from clusters.models import Cluster
from common.clock import now


class Freeze(models.Model):
    """A freeze: while one is in effect, no step starts, in one cluster, or in all when `cluster` is null."""

    RESTORED: ClassVar[str] = "Restored from the backup"
    """How the reason begins of a freeze that `manage.py restore` set: while it is in effect, nothing is done for any
    rollout. Told by its reason, since it is written into tables of older versions, too."""

    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.CASCADE, related_name="freezes")
    reason = models.CharField(max_length=500)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=now)
    until = models.DateTimeField(null=True)
    lifted_at = models.DateTimeField(null=True)
    lifted_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    def __str__(self) -> str:
        return self.reason

    @classmethod
    def standing(cls, cluster_id: uuid.UUID) -> models.QuerySet[Freeze]:
        return cls.in_effect().filter(Q(cluster=None) | Q(cluster_id=cluster_id))

    @classmethod
    def in_effect(cls) -> models.QuerySet[Freeze]:
        """Filter the freezes of any cluster, or of all, that hold steps now: the one that ends last comes first."""
        there = cls.objects.filter(Q(until=None) | Q(until__gt=now()), lifted_at=None)
        return there.order_by(F("until").desc(nulls_first=True), "pk")

    @classmethod
    def after_restore(cls) -> models.QuerySet[Freeze]:
        """Filter the freezes that hold all rollouts until an administrator has seen what is newer in the clusters.

        Steps in progress are held too, and reverts: their rows may be older than what was done for them since.
        """
        return cls.in_effect().filter(cluster=None, created_by=None, reason__startswith=cls.RESTORED)

    @classmethod
    def unconfirmed_restores(cls) -> list[str]:
        """Answer the hook of this name."""
        return list(cls.after_restore().values_list("reason", flat=True))


class Signal(models.Model):
    """A fact from above the engine (GPU telemetry, say) that orders nodes or gates a batch, until it expires."""

    scope = models.CharField(max_length=80, help_text="cluster:<uuid> | node:<pk> | rollout:<uuid>")
    kind = models.CharField(max_length=20, help_text="order | gate")
    value = models.JSONField()
    reason = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(default=now)
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["scope", "kind"], name="one_signal")]

    def __str__(self) -> str:
        return f"{self.kind} for {self.scope}"
