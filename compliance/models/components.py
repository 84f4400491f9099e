"""Components and policy objects of a cluster, beside its nodes and never merged with them: the state of each."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from clusters.models import Cluster, Pool
from common.clock import now
from profiles.models import Revision


class ComponentStanding(models.Model):
    """One component that an assignment wants in a cluster, or all its policy objects, as the last look found it.

    What time alone changes (the cluster falls silent, no look for long) is not stored: see
    `compliance.reports.component_selectors`. The row is the queue of looks: `due_at` says when the next one is.
    """

    class Kind(models.TextChoices):
        COMPONENT = "component", "Component"
        POLICIES = "policies", "Policy objects"

    class State(models.TextChoices):
        COMPLIANT = "compliant", "Compliant"
        DRIFTED = "drifted", "Drifted"
        MISSING = "missing", "Missing"
        FOREIGN = "foreign", "Changed by another party"
        NOT_READY = "not-ready", "Not ready"
        PENDING = "pending", "Pending"
        UNKNOWN = "unknown", "Unknown"

    WRONG: ClassVar[tuple[str, ...]] = (State.DRIFTED, State.MISSING, State.FOREIGN, State.NOT_READY)
    """States that need an operator."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="components", db_index=False)
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.COMPONENT)
    name = models.CharField(max_length=63, help_text="Of the catalog; `policies` for the policy objects.")
    pool = models.ForeignKey(Pool, null=True, on_delete=models.SET_NULL, related_name="+")
    revision = models.ForeignKey(Revision, null=True, on_delete=models.SET_NULL, related_name="+")
    state = models.CharField(max_length=10, choices=State, default=State.UNKNOWN)
    sentence = models.CharField(max_length=500, blank=True)
    since = models.DateTimeField(default=now, help_text="When `state` last changed.")
    checked_at = models.DateTimeField(null=True)
    release = models.CharField(max_length=63, blank=True)
    namespace = models.CharField(max_length=63, blank=True)
    installed = models.CharField(max_length=60, blank=True, help_text="The chart's version that is in force.")
    assigned = models.CharField(max_length=60, blank=True)
    number = models.PositiveIntegerField(default=0, help_text="helm's newest revision when it was last there.")
    is_ready = models.BooleanField(null=True)
    missing = models.CharField(max_length=500, blank=True, help_text="What it lacks to be ready.")
    differences = models.JSONField(default=list, help_text="What differs from what was approved, the worst first.")
    total = models.PositiveIntegerField(default=0, help_text="Differences, also those that are not kept.")
    history = models.JSONField(default=list, help_text="helm's revisions, the newest first.")
    kinds = models.JSONField(default=list, help_text="[apiVersion, plural] of its objects: what is watched.")
    unwatched = models.CharField(max_length=300, blank=True, help_text="Why changes are not heard at once.")
    due_at = models.DateTimeField(default=now)
    claimed_until = models.DateTimeField(null=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "kind", "name"], name="one_standing_per_component")]
        indexes = [
            models.Index(fields=["due_at"]),
            models.Index(fields=["name", "state"]),
            models.Index(fields=["cluster"], name="components_amiss", condition=~Q(state="compliant")),
        ]

    def __str__(self) -> str:
        return f"{self.name} in {self.cluster_id}: {self.state}"


class ComponentChange(models.Model):
    """History: what a component became, a row only when something changed. Kept SETPOINT_COMPLIANCE_HISTORY_DAYS."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+", db_index=False)
    name = models.CharField(max_length=63)
    at = models.DateTimeField(default=now)
    state = models.CharField(max_length=10, choices=ComponentStanding.State)
    sentence = models.CharField(max_length=500, blank=True)
    installed = models.CharField(max_length=60, blank=True)
    revision = models.ForeignKey(Revision, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["cluster", "name", "-id"]), models.Index(fields=["at"])]

    def __str__(self) -> str:
        return f"{self.name} of {self.cluster_id} became {self.state}"
