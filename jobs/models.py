"""Plans, approvals, rollouts, steps and the ledger. Every status changes through `move`, and its table lists what is
legal."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q

from clusters.models import Cluster, Node, Pool
from common.clock import now
from common.errors import IllegalMove, LostRace
from profiles.models import Revision


class Moves(models.Model):
    """A row with a status, a table NEXT of legal moves, and a version that makes each move a conditional update."""

    NEXT: ClassVar[dict[str, set[str]]] = {}

    status: Any
    version = models.PositiveIntegerField(default=1)

    class Meta:
        abstract = True

    def move(self, to: str, **fields: Any) -> None:
        """The only way to change status. Raises IllegalMove, LostRace."""
        if to not in self.NEXT.get(self.status, set()):
            raise IllegalMove(f"{type(self).__name__} {self.pk}: {self.status} -> {to}")
        self.put(status=to, **fields)

    def put(self, **fields: Any) -> None:
        """Change fields if nobody else changed the row since it was read. Raises LostRace."""
        fields |= {"version": self.version + 1}
        as_read = type(self)._default_manager.filter(pk=self.pk, version=self.version)
        if not as_read.update(**fields):
            raise LostRace(f"{type(self).__name__} {self.pk}")
        for name, value in fields.items():
            setattr(self, name, value)


class Counter(models.Model):
    """Short numbers for people: P-218, R-131. One row a kind, raised under its row lock."""

    kind = models.CharField(max_length=10, primary_key=True)
    value = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.kind}-{self.value}"


class ChangeSet(models.Model):
    """What changes on a node, content-addressed: identical differences are one row however many nodes share it."""

    id = models.CharField(max_length=64, primary_key=True, help_text="SHA-256 of `content`, canonical JSON.")
    content = models.JSONField(help_text="jobs.changes.ChangeSet as JSON")
    worst_class = models.CharField(max_length=20)

    def __str__(self) -> str:
        return self.id[:12]


class PlanQuerySet(models.QuerySet["Plan"]):
    def open(self) -> Self:
        return self.filter(status__in=Plan.NEXT)

    def expired(self) -> Self:
        return self.open().filter(expires_at__lt=now())

    def waiting(self) -> Self:
        """In review and still in time."""
        return self.filter(status=Plan.Status.REVIEW, expires_at__gt=now())


class Plan(Moves):
    """The frozen difference between a revision and the nodes of a pool, as observed at `observed_at`."""

    class Status(models.TextChoices):
        DRAFT = "draft", "Draft"
        REVIEW = "review", "Needs review"
        CHANGES = "changes", "Changes requested"
        APPROVED = "approved", "Approved"
        STARTED = "started", "Started"
        REJECTED = "rejected", "Rejected"
        WITHDRAWN = "withdrawn", "Withdrawn"
        EXPIRED = "expired", "Expired"

    NEXT: ClassVar[dict[str, set[str]]] = {  # a status not listed is final
        Status.DRAFT: {Status.REVIEW, Status.WITHDRAWN, Status.EXPIRED},
        Status.REVIEW: {
            Status.REVIEW,
            Status.CHANGES,
            Status.APPROVED,
            Status.REJECTED,
            Status.WITHDRAWN,
            Status.EXPIRED,
        },
        # Back to its author, who answers and asks again, or asks for a new plan, which takes its place.
        Status.CHANGES: {Status.REVIEW, Status.WITHDRAWN, Status.EXPIRED},
        # Back to review: an approver's newest verdict took the approval away.
        Status.APPROVED: {
            Status.APPROVED,
            Status.STARTED,
            Status.REVIEW,
            Status.CHANGES,
            Status.REJECTED,
            Status.WITHDRAWN,
            Status.EXPIRED,
        },
    }

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    number = models.PositiveIntegerField(unique=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="plans")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="plans")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="plans")
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT)
    digest = models.CharField(max_length=71, db_index=True, help_text="sha256:<hex> over what is approved.")
    strategy = models.JSONField(help_text="jobs.strategy.Strategy as JSON")
    selector = models.JSONField(help_text="The pool's selector as it was.")
    message = models.CharField(max_length=500, blank=True)
    findings = models.JSONField(default=list, help_text="[{severity, code, title, detail, nodes, count}], worst first")
    summary = models.JSONField(default=dict, help_text="jobs.planning.Summary as JSON: the blast radius.")
    worst_class = models.CharField(max_length=20)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=now)
    observed_at = models.DateTimeField()
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    requested_at = models.DateTimeField(null=True)
    round = models.PositiveIntegerField(default=1, help_text="How often approval was asked for; verdicts are of one.")
    reminded_at = models.DateTimeField(null=True, help_text="When those who could decide were last reminded.")
    superseded_by = models.ForeignKey(
        "self", null=True, on_delete=models.SET_NULL, related_name="supersedes", help_text="The plan in its place."
    )
    expires_at = models.DateTimeField()

    objects = PlanQuerySet.as_manager()

    class Meta:
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"P-{self.number}"

    @property
    def is_blocked(self) -> bool:
        return any(f["severity"] == "block" for f in self.findings)


class PlanNode(models.Model):
    """One node of a plan: what changes there, in which batch; or why it is left out."""

    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="nodes")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="+")
    uid = models.CharField(max_length=64)
    name = models.CharField(max_length=253)
    change_set = models.ForeignKey(ChangeSet, null=True, on_delete=models.PROTECT, related_name="plan_nodes")
    worst_class = models.CharField(max_length=20, blank=True)
    batch = models.PositiveIntegerField(default=0, help_text="From 1; 0: not in a batch.")
    position = models.PositiveIntegerField(default=0)
    gpus = models.PositiveIntegerField(default=0)
    gpu_pods = models.PositiveIntegerField(default=0)
    is_unavailable = models.BooleanField(default=False, help_text="Already out of service when planned (law 1).")
    left_out = models.CharField(max_length=300, blank=True, help_text="Why nothing is done here; empty when it is.")

    class Meta:
        ordering = ["batch", "position"]
        constraints = [models.UniqueConstraint(fields=["plan", "node"], name="one_plan_node")]
        indexes = [models.Index(fields=["plan", "batch", "position"])]

    def __str__(self) -> str:
        return self.name


class PlanComponent(models.Model):
    """One component of a plan: what is installed or upgraded, as it was prepared; or why nothing is done."""

    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="components")
    component = models.CharField(max_length=63, help_text="Its name in the catalogue.")
    # Empty where another pool brings it.
    namespace = models.CharField(max_length=63, blank=True)
    release = models.CharField(max_length=63, blank=True)
    version = models.CharField(max_length=250, blank=True, help_text="Of the chart.")
    action = models.CharField(max_length=10, blank=True, help_text="install, upgrade, adopt or none")
    prepared = models.JSONField(help_text="components.work.Prepared as JSON")
    digest = models.CharField(max_length=71, blank=True, help_text="Of `prepared`; part of the plan's.")
    position = models.PositiveIntegerField(help_text="From 1: a component stands after all that it waits for.")
    requires = models.JSONField(default=list, help_text="Components that must have succeeded before it starts.")
    after = models.JSONField(default=list, help_text="Components, or `nodes`, that must have ended before it starts.")
    left_out = models.CharField(max_length=300, blank=True, help_text="Why nothing is done here; empty when it is.")

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["plan", "component"], name="one_plan_component")]

    def __str__(self) -> str:
        return self.component


class ApprovalRule(models.Model):
    """Plans like this need so many approvers. Every rule that fits a plan applies; none makes another one weaker."""

    name = models.CharField(max_length=80, unique=True)
    # Which plans. What is empty fits every plan.
    environment = models.CharField(max_length=12, choices=Cluster.Environment, blank=True)
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.CASCADE, related_name="approval_rules")
    worst_class = models.CharField(max_length=20, blank=True, help_text="This disruptive, or more.")
    gpu_percent = models.PositiveSmallIntegerField(null=True, help_text="At least this share of the cluster's GPUs.")
    node_percent = models.PositiveSmallIntegerField(null=True, help_text="At least this share of the cluster's nodes.")
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
    at = models.DateTimeField(default=now)

    class Meta:
        ordering = ["at", "pk"]

    def __str__(self) -> str:
        return f"{self.person} {self.verdict} {self.plan}"


class RolloutQuerySet(models.QuerySet["Rollout"]):
    def live(self) -> Self:
        return self.filter(status__in=Rollout.LIVE)

    def due(self) -> Self:
        """Live ones, from their time on; and ended ones of which a person has a node given back."""
        is_early = Q(status=Rollout.Status.QUEUED, start_at__gt=now())
        returning = Step.objects.filter(rollout=OuterRef("pk"), status=Step.Status.RETURNING)
        return self.exclude(is_early).filter(Q(status__in=Rollout.LIVE) | Exists(returning))


class Rollout(Moves):
    """The carrying out of one approved plan."""

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
        # Only some nodes were put back: the others stay as they are, or wait for a person to go on.
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
    started_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    waiting_for = models.CharField(max_length=500, blank=True, help_text="One sentence, present tense.")
    waiting_since = models.DateTimeField(null=True)
    extra_failures = models.PositiveIntegerField(default=0, help_text="Failures a person has already dealt with.")
    abort_reverts = models.BooleanField(default=False)
    freeze_override = models.CharField(max_length=500, blank=True, help_text="Why a revert goes on in a freeze.")

    objects = RolloutQuerySet.as_manager()

    class Meta:
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"R-{self.number}"

    @property
    def is_live(self) -> bool:
        return self.status in self.LIVE


class StepQuerySet(models.QuerySet["Step"]):
    def of_nodes(self) -> Self:
        return self.filter(kind=Step.Kind.NODE)

    def of_components(self) -> Self:
        return self.filter(kind=Step.Kind.COMPONENT)


class Step(models.Model):
    """One node, or one component, of a rollout. Moves in sets: see jobs.engine.commit, the only writer of `status`.

    A component passes queued, applying (helm runs), verifying (its readiness is looked at) and succeeded or reverted.
    """

    class Kind(models.TextChoices):
        NODE = "node"
        COMPONENT = "component"

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
    # Of a component: all three. Of a node: none.
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
    ending = models.CharField(
        max_length=10, blank=True, help_text="What it becomes once its node is given back; empty: done."
    )
    is_ours_to_uncordon = models.BooleanField(default=False)
    was_cordoned = models.BooleanField(default=False)
    recordoned = models.PositiveIntegerField(default=0, help_text="Foreign uncordons put back; law 5 allows one.")
    is_disrupted = models.BooleanField(default=False, help_text="The first disruptive write was made (law 14).")
    has_applied = models.BooleanField(default=False, help_text="It began to write: labels, taints or spec.")
    stages = models.JSONField(default=dict, help_text="Seconds spent in each status of this attempt.")
    output = models.JSONField(default=list, help_text="The latest lines that helm said, oldest first.")
    is_live = models.BooleanField(default=True, help_text="Queued, active or held: node or release is this rollout's.")

    objects = StepQuerySet.as_manager()

    class Meta:
        ordering = ["batch", "position"]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="node", node__isnull=False, plan_node__isnull=False, plan_component=None, release="")
                | Q(kind="component", node=None, plan_node=None, plan_component__isnull=False) & ~Q(release=""),
                name="a_node_or_a_component",
            ),
            models.UniqueConstraint(
                fields=["release"], condition=Q(is_live=True, kind="component"), name="one_live_step_per_release"
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
        """What sentences call it: the node's name, or the component's."""
        return self.node_name or self.component

    @property
    def is_component(self) -> bool:
        return self.kind == self.Kind.COMPONENT

    @property
    def node_key(self) -> int:
        """Of a node's step, which the database holds to have one."""
        assert self.node_id is not None, f"step {self.pk} is about no node"
        return self.node_id

    @property
    def is_touched(self) -> bool:
        """What a failure would leave behind (law 14): a node under our cordon, or a release that helm began with."""
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


class Ledger(models.Model):
    """One row a cluster. Handing out a slot raises its version in the same transaction, so two cannot at once."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="ledger")
    version = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"ledger of {self.cluster_id}"


class Slot(models.Model):
    """Permission to disturb one node. Belongs to a step, not to a worker's lease."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="slots")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="slots")
    step = models.OneToOneField(Step, on_delete=models.CASCADE, related_name="slot")
    taken_at = models.DateTimeField(default=now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node"], name="one_slot_per_node")]

    def __str__(self) -> str:
        return f"slot of {self.step_id}"


class Freeze(models.Model):
    """While one stands, no step starts: for one cluster, or for all when `cluster` is null."""

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
        over = Q(until=None) | Q(until__gt=now())
        return cls.objects.filter(over, Q(cluster=None) | Q(cluster_id=cluster_id), lifted_at=None)


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
