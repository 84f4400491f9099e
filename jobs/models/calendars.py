"""Maintenance windows and calendar freezes, which recur."""

from __future__ import annotations

from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from clusters.models import Cluster, Pool
from common.clock import now


class CalendarRuleQuerySet(models.QuerySet["CalendarRule"]):
    def in_effect(self) -> Self:
        return self.filter(ended_at=None)

    def of_target(self, cluster: Cluster, pool_id: int | None) -> Self:
        """Those that apply to a pool of a cluster. An empty column fits every target."""
        return self.in_effect().filter(
            Q(environment="") | Q(environment=cluster.environment),
            Q(cluster=None) | Q(cluster=cluster),
            Q(pool=None) | Q(pool=pool_id),
        )


class CalendarRule(models.Model):
    """A window, inside which steps may start, or a freeze, inside which none does. Ended ones are kept."""

    class Kind(models.TextChoices):
        WINDOW = "window", "Window"
        FREEZE = "freeze", "Freeze"

    name = models.CharField(max_length=80)
    kind = models.CharField(max_length=6, choices=Kind)
    environment = models.CharField(max_length=12, choices=Cluster.Environment, blank=True)
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.CASCADE, related_name="calendar_rules")
    pool = models.ForeignKey(Pool, null=True, on_delete=models.CASCADE, related_name="calendar_rules")
    starts = models.CharField(max_length=16, help_text="The first start, local: 2026-11-27T22:00.")
    zone = models.CharField(max_length=64, help_text="IANA time zone.")
    minutes = models.PositiveIntegerField(help_text="Length of each occurrence, as elapsed time.")
    rule = models.CharField(max_length=500, blank=True, help_text="RRULE of RFC 5545; empty: once.")
    excluded = models.JSONField(default=list, help_text="Local starts that are left out (EXDATE).")
    added = models.JSONField(default=list, db_default=[], help_text="Local starts besides (RDATE).")
    whole_days = models.BooleanField(
        default=False, db_default=False, help_text="The length is in days of the zone, of 23 to 25 hours."
    )
    version = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField(default=now)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    ended_at = models.DateTimeField(null=True)

    objects = CalendarRuleQuerySet.as_manager()

    class Meta:
        ordering = ["kind", "name", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(ended_at=None), name="one_calendar_rule_in_effect_by_name"
            )
        ]

    def __str__(self) -> str:
        return self.name
