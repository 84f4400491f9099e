"""Who must approve what, and what each person said."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from clusters.models import Cluster
from common.clock import now
from jobs.models.plans import Plan


class ApprovalRule(models.Model):
    """Plans like this need so many approvers. Every rule that fits a plan applies; none makes another one weaker."""

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
    # How many, and who among them.
    approvers = models.PositiveSmallIntegerField(default=1)
    of_count = models.PositiveSmallIntegerField(default=0, help_text="So many of them hold `of_role` in `of_scope`.")
    of_role = models.CharField(max_length=10, blank=True)
    of_scope = models.CharField(max_length=60, blank=True, help_text="Empty: any scope that covers the plan's cluster.")
    is_enabled = models.BooleanField(default=True, help_text="A disabled rule fits no plan.")
    version = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField(default=now)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

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
    at = models.DateTimeField(default=now)

    class Meta:
        ordering = ["at", "pk"]

    def __str__(self) -> str:
        return f"{self.person} {self.verdict} {self.plan}"
