"""The steps of a rollout, and the log of each."""

from __future__ import annotations

import uuid
from typing import ClassVar, Self

from django.db import models
from django.db.models import Q

from clusters.models import Node
from common.clock import now
from jobs.models.plans import PlanComponent, PlanNode
from jobs.models.rollouts import Rollout


class StepQuerySet(models.QuerySet["Step"]):
    def of_nodes(self) -> Self:
        return self.filter(kind=Step.Kind.NODE)

    def of_components(self) -> Self:
        """Filter steps about the cluster itself: components, and groups of policy objects."""
        return self.exclude(kind=Step.Kind.NODE)


class Step(models.Model):
    """One node, one component, or one group of policy objects, of a rollout.

    Moves in sets: see jobs.engine.commit, the only writer of `status`.

    A component passes queued, applying (helm runs), verifying (its readiness is looked at) and succeeded or reverted;
    policy objects do as well, without helm.
    """

    class Kind(models.TextChoices):
        NODE = "node"
        COMPONENT = "component"
        POLICIES = "policies"

    class Status(models.TextChoices):
        QUEUED = "queued"
        ADMITTED = "admitted"
        CORDONING = "cordoning"
        DRAINING = "draining"
        APPLYING = "applying"
        RESTARTING = "restarting"
        VERIFYING = "verifying"
        RETURNING = "returning"
        SOAKING = "soaking"
        SUCCEEDED = "succeeded"
        FAILED = "failed"
        SKIPPED = "skipped"
        HELD = "held"
        REVERTED = "reverted"

    ACTIVE: ClassVar[tuple[str, ...]] = (
        Status.ADMITTED,
        Status.CORDONING,
        Status.DRAINING,
        Status.APPLYING,
        Status.RESTARTING,
        Status.VERIFYING,
        Status.RETURNING,
        Status.SOAKING,
    )
    RESTING: ClassVar[tuple[str, ...]] = (Status.SUCCEEDED, Status.FAILED, Status.SKIPPED, Status.REVERTED)
    _FAIL: ClassVar[set[str]] = {Status.FAILED, Status.HELD, Status.SKIPPED}
    NEXT: ClassVar[dict[str, set[str]]] = {
        # To the queue: an abort that reverts turns a step round, a freeze lets it wait again. To returning: it ends
        # early and gives its node back.
        Status.QUEUED: {
            Status.ADMITTED,
            Status.APPLYING,
            Status.SUCCEEDED,
            Status.REVERTED,
            Status.RETURNING,
            *_FAIL,
        },
        Status.ADMITTED: {Status.CORDONING, Status.QUEUED, Status.RETURNING, *_FAIL},
        Status.CORDONING: {Status.DRAINING, Status.APPLYING, Status.RETURNING, Status.QUEUED, *_FAIL},
        Status.DRAINING: {Status.APPLYING, Status.RETURNING, *_FAIL},
        Status.APPLYING: {Status.RESTARTING, Status.VERIFYING, Status.RETURNING, Status.QUEUED, *_FAIL},
        Status.RESTARTING: {Status.VERIFYING, Status.RETURNING, Status.QUEUED, *_FAIL},
        Status.VERIFYING: {Status.RETURNING, Status.SUCCEEDED, Status.REVERTED, Status.QUEUED, *_FAIL},
        Status.RETURNING: {Status.SOAKING, Status.SUCCEEDED, Status.REVERTED, Status.QUEUED, *_FAIL},
        Status.SOAKING: {Status.SUCCEEDED, Status.REVERTED, Status.RETURNING, Status.QUEUED, *_FAIL},
        # A person's (or the strategy's) retry, skip or revert takes them up again.
        Status.HELD: {Status.QUEUED, Status.RETURNING, Status.FAILED, Status.SKIPPED},
        Status.FAILED: {Status.QUEUED, Status.RETURNING, Status.SKIPPED},
        Status.SKIPPED: {Status.QUEUED},
        Status.SUCCEEDED: {Status.QUEUED},
    }

    class Direction(models.TextChoices):
        FORWARD = "forward"
        REVERT = "revert"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="steps")
    kind = models.CharField(max_length=9, choices=Kind, default=Kind.NODE)
    # Of a node: all four. Of a component: none.
    plan_node = models.ForeignKey(PlanNode, null=True, on_delete=models.PROTECT, related_name="steps")
    node = models.ForeignKey(Node, null=True, on_delete=models.PROTECT, related_name="steps")
    node_uid = models.CharField(max_length=64, blank=True)
    node_name = models.CharField(max_length=253, blank=True)
    # Of a component and of policy objects: all three. Of a node: none.
    plan_component = models.ForeignKey(PlanComponent, null=True, on_delete=models.PROTECT, related_name="steps")
    component = models.CharField(max_length=63, blank=True)
    release = models.CharField(max_length=170, blank=True, help_text="<cluster>/<namespace>/<name>, one in the world.")
    batch = models.PositiveIntegerField(help_text="Of a node, from 1; components are in none: 0.")
    position = models.PositiveIntegerField()
    worst_class = models.CharField(max_length=20)
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    direction = models.CharField(max_length=8, choices=Direction, default=Direction.FORWARD)
    attempt = models.PositiveIntegerField(default=1)
    version = models.PositiveIntegerField(default=1)
    claim = models.CharField(max_length=36, blank=True)
    lease_until = models.DateTimeField(null=True)
    not_before = models.DateTimeField(null=True)
    entered_at = models.DateTimeField(default=now, help_text="When `status` was entered.")
    deadline_at = models.DateTimeField(null=True)
    waiting_for = models.CharField(max_length=500, blank=True)
    error = models.CharField(max_length=1000, blank=True)
    failed_in = models.CharField(max_length=10, blank=True, help_text="The stage in which it failed or was held.")
    generation = models.BigIntegerField(default=0, help_text="Of the NodeTuning spec written by this attempt.")
    boot_id = models.CharField(max_length=64, blank=True, help_text="The boot this step began in.")
    granted_at = models.DateTimeField(null=True, help_text="When the restart grant was written, or helm began.")
    withdrawn_at = models.DateTimeField(
        null=True,
        help_text="When its restart grant was withdrawn: its agent may be carrying it out until a little later.",
    )
    expects = models.JSONField(
        default=dict, help_text="By key, what the spec of this attempt says that the kernel answered before its write."
    )
    ending = models.CharField(
        max_length=10, blank=True, help_text="What it becomes once its node is given back; empty: done."
    )
    is_ours_to_uncordon = models.BooleanField(default=False)
    was_cordoned = models.BooleanField(default=False)
    recordoned = models.PositiveIntegerField(default=0, help_text="Foreign uncordons put back; law 5 allows one.")
    is_disrupted = models.BooleanField(default=False, help_text="The first disruptive write was made (law 14).")
    has_applied = models.BooleanField(default=False, help_text="It began to write: labels, taints or spec.")
    stages = models.JSONField(default=dict, help_text="Seconds spent in each status of this attempt.")
    looks = models.PositiveSmallIntegerField(
        default=0, help_text="Of a component: how many looks in a row found it as wanted, where one is not enough."
    )
    output = models.JSONField(default=list, help_text="The latest lines that helm said, oldest first.")
    is_live = models.BooleanField(default=True, help_text="Queued, active or held: node or release is this rollout's.")

    objects = StepQuerySet.as_manager()

    class Meta:
        ordering = ["batch", "position"]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="node", node__isnull=False, plan_node__isnull=False, plan_component=None, release="")
                | ~Q(kind="node") & Q(node=None, plan_node=None, plan_component__isnull=False) & ~Q(release=""),
                name="a_node_or_a_component",
            ),
            models.UniqueConstraint(
                fields=["release"], condition=Q(is_live=True) & ~Q(kind="node"), name="one_live_step_per_release"
            ),
            models.UniqueConstraint(fields=["rollout", "plan_component"], name="one_step_per_component"),
            models.UniqueConstraint(fields=["node"], condition=Q(is_live=True), name="one_live_step_per_node"),
            models.UniqueConstraint(fields=["rollout", "node"], name="one_step_per_node"),
        ]
        indexes = [models.Index(fields=["rollout", "status", "lease_until"]), models.Index(fields=["node", "status"])]

    def __str__(self) -> str:
        return f"{self.name} in R-{self.rollout.number}"

    @property
    def name(self) -> str:
        """The name in sentences: the node's name, the component's, or `policy objects`."""
        return self.node_name or self.component

    @property
    def is_component(self) -> bool:
        """About the cluster itself, not about a node: policy objects as well."""
        return self.kind != self.Kind.NODE

    @property
    def is_policies(self) -> bool:
        return self.kind == self.Kind.POLICIES

    @property
    def node_key(self) -> int:
        """The key of a node step's node, which the database holds to exist."""
        assert self.node_id is not None, f"step {self.pk} is about no node"
        return self.node_id

    @property
    def is_touched(self) -> bool:
        """True if a failure would leave something (law 14): a node under our cordon, or a release that helm began."""
        if self.is_component:
            return self.has_applied
        return self.is_disrupted or self.is_ours_to_uncordon


class StepEvent(models.Model):
    """The log of a step, for people: what happened, in the order it happened."""

    class Level(models.TextChoices):
        INFO = "info"
        WARN = "warn"
        BAD = "bad"

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="events")
    step = models.ForeignKey(Step, null=True, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(default=now)
    level = models.CharField(max_length=5, choices=Level, default=Level.INFO)
    text = models.CharField(max_length=1000)

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index(fields=["rollout", "-at", "-id"], name="events_of_a_rollout")]

    def __str__(self) -> str:
        return self.text

    @property
    def about_its_step(self) -> str:
        """The text as a sentence that names the step; only of an event that has one."""
        assert self.step is not None
        return f"{self.step.name}{' ' if self.text.startswith(Step.Status.FAILED) else ': '}{self.text}"
