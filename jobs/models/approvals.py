"""Approval rules, and the verdicts of people."""

from __future__ import annotations

import hmac
from datetime import UTC
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from audit import macs
from audit.marked import Marked, MarkedQuerySet
from clusters.models import Cluster
from common.clock import now
from jobs.models.plans import Plan

_PURPOSE = b"setpoint verdict, scheme 1"


class ApprovalRule(Marked):
    """Plans like this need so many approvers. Every rule that fits a plan applies; none makes another one weaker."""

    MARKED = ("name", "environment", "cluster_id", "worst_class", "gpu_percent", "node_percent", "gpus", "gpu_jobs",
              "namespace", "component", "weakens_security", "approvers", "of_count", "of_role", "of_scope",
              "is_enabled")  # fmt: skip

    name = models.CharField(max_length=80, unique=True)
    # Which plans. What is empty fits every plan.
    environment = models.CharField(max_length=12, choices=Cluster.Environment, blank=True)
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.CASCADE, related_name="approval_rules")
    worst_class = models.CharField(max_length=20, blank=True, help_text="This disruptive, or more.")
    gpu_percent = models.PositiveSmallIntegerField(null=True, help_text="At least this share of the cluster's GPUs.")
    node_percent = models.PositiveSmallIntegerField(null=True, help_text="At least this share of the cluster's nodes.")
    gpus = models.PositiveIntegerField(null=True, help_text="At least so many GPUs out of service.")
    gpu_jobs = models.PositiveIntegerField(null=True, help_text="At least so many GPU jobs interrupted.")
    namespace = models.CharField(max_length=63, blank=True, help_text="GPU jobs of this namespace are interrupted.")
    component = models.CharField(max_length=63, blank=True, help_text="This component is changed.")
    weakens_security = models.BooleanField(default=False, help_text="Only plans that weaken the security of a node.")
    # How many, and of which role.
    approvers = models.PositiveSmallIntegerField(default=1)
    of_count = models.PositiveSmallIntegerField(default=0, help_text="So many of them hold `of_role` in `of_scope`.")
    of_role = models.CharField(max_length=10, blank=True)
    of_scope = models.CharField(max_length=60, blank=True, help_text="Empty: any scope that covers the plan's cluster.")
    is_enabled = models.BooleanField(default=True, help_text="A disabled rule fits no plan.")
    version = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField(default=now)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    objects = MarkedQuerySet["ApprovalRule"].as_manager()

    class Meta:
        ordering = ["-approvers", "-of_count", "name"]
        constraints = [
            models.CheckConstraint(condition=Q(approvers__gte=1), name="a_rule_asks_for_one"),
            models.CheckConstraint(condition=Q(of_count__lte=models.F("approvers")), name="some_of_the_approvers"),
        ]

    def __str__(self) -> str:
        return self.name


class Approval(models.Model):
    """One person's verdict on one digest. Kept for ever; the newest of a person counts."""

    class Verdict(models.TextChoices):
        APPROVE = "approve", "Approved"
        CHANGES = "changes", "Requested changes"
        REJECT = "reject", "Rejected"
        RETRACT = "retract", "Taken back"

    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="approvals")
    digest = models.CharField(max_length=71)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    verdict = models.CharField(max_length=10, choices=Verdict)
    round = models.PositiveIntegerField(default=1, help_text="Of the plan: verdicts of earlier rounds count no more.")
    comment = models.TextField(blank=True)
    consent = models.CharField(
        max_length=200, blank=True, help_text="What was typed to let the plan destroy objects; empty: it destroys none."
    )
    policy = models.PositiveIntegerField(null=True, help_text="Number of the policy version then active; null: none.")
    at = models.DateTimeField(default=now)
    mac = models.CharField(max_length=64, blank=True, help_text="The mark of the process in which it was given.")

    class Meta:
        ordering = ["at", "pk"]

    def __str__(self) -> str:
        return f"{self.person} {self.verdict} {self.plan}"

    def save(self, **options: Any) -> None:
        if self._state.adding:
            self.mac = self._mark()
        super().save(**options)

    @property
    def is_genuine(self) -> bool:
        """True if a process that has the audit key gave it like this.
        A row that was put into the table, or changed there, is no verdict.
        """
        return hmac.compare_digest(self.mac, self._mark())

    def _mark(self) -> str:
        content = {
            "plan": str(self.plan_id),
            "digest": self.digest,
            "person": self.person_id,
            "verdict": str(self.verdict),
            "round": self.round,
            "consent": self.consent,
            "at": self.at.astimezone(UTC).isoformat(timespec="microseconds"),
            **({"policy": self.policy} if self.policy else {}),  # absent, so that older marks stay valid
        }
        return macs.mark(_PURPOSE, content)
