"""Plans: the frozen difference, its nodes, its components and policy objects."""

from __future__ import annotations

import uuid
from typing import ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from audit.marked import Marked, MarkedQuerySet
from clusters.models import Cluster, Node, Pool
from common.clock import now
from jobs.models.fleet_runs import FleetRun
from jobs.models.state_machine import Moves
from profiles.models import Revision

JUDGEMENT = 1
"""Of class, blast radius, rights and findings. A version of Setpoint that counts more of what a plan does raises it:
plans made before are not in time any more, for their approvers saw less. 0: before there was a number."""


class ChangeSet(models.Model):
    """Changes on a node, content-addressed: identical differences are one row for any number of nodes."""

    id = models.CharField(max_length=64, primary_key=True, help_text="SHA-256 of `content`, canonical JSON.")
    content = models.JSONField(help_text="A ChangeSet as JSON")
    worst_class = models.CharField(max_length=20)

    def __str__(self) -> str:
        return self.id[:12]


class PlanQuerySet(MarkedQuerySet["Plan"]):
    def open(self) -> Self:
        return self.filter(status__in=Plan.NEXT)

    def in_time(self) -> Self:
        """Filter plans that `late` says nothing against."""
        return self.filter(expires_at__gt=now(), judgement=JUDGEMENT)

    def expired(self) -> Self:
        return self.open().filter(Q(expires_at__lte=now()) | ~Q(judgement=JUDGEMENT))

    def answering(self, request_key: str) -> Self:
        """Filter the plan, at most one, that answers the request."""
        return self.filter(~Plan.CAME_TO_NOTHING, request_key=request_key)

    def waiting(self) -> Self:
        """Filter plans in review and still in time."""
        return self.in_time().filter(status=Plan.Status.REVIEW)


class Plan(Moves, Marked):
    """The frozen difference between a revision and the nodes of a pool, as observed at `observed_at`."""

    MARKED = ("id", "cluster_id", "revision_id", "digest", "created_by_id", "requested_by_id", "requested_at", "round",
              "worst_class")  # fmt: skip
    """What it is, whose it is, since when it is asked for, and by which rules it is judged."""

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
            Status.STARTED,  # by break-glass alone (jobs.rollouts.glass_start)
            Status.REJECTED,
            Status.WITHDRAWN,
            Status.EXPIRED,
        },
        # Back to its author, to answer and ask again, or to make a new plan that takes its place.
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

    CAME_TO_NOTHING: ClassVar[Q] = Q(status__in=[Status.REJECTED, Status.WITHDRAWN, Status.EXPIRED])

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    number = models.PositiveIntegerField(unique=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="plans")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="plans")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="plans")
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT)
    digest = models.CharField(max_length=71, db_index=True, help_text="sha256:<hex> over what is approved.")
    strategy = models.JSONField(help_text="A Strategy as JSON")
    selector = models.JSONField(help_text="The pool's selector as it was.")
    message = models.CharField(max_length=500, blank=True)
    findings = models.JSONField(default=list, help_text="[{severity, code, title, detail, nodes, count}], worst first")
    summary = models.JSONField(default=dict, help_text="A Summary as JSON: the blast radius.")
    worst_class = models.CharField(max_length=20)
    is_uncounted = models.BooleanField(
        default=False, help_text="A part could not be prepared: the class and the figures are without it."
    )
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=now)
    owners = models.JSONField(
        null=True,
        help_text="{key of a team: its name} of those that owned what it touches when it was made; null: not asked.",
    )
    authorship = models.JSONField(null=True, help_text="{user id: what they wrote of it}; they do not approve it.")
    observed_at = models.DateTimeField()
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    requested_at = models.DateTimeField(null=True)
    round = models.PositiveIntegerField(default=1, help_text="How often approval was asked for; verdicts are of one.")
    reminded_at = models.DateTimeField(null=True, help_text="When those who could decide were last reminded.")
    superseded_by = models.ForeignKey(
        "self", null=True, on_delete=models.SET_NULL, related_name="supersedes", help_text="The plan in its place."
    )
    expires_at = models.DateTimeField()
    judgement = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="JUDGEMENT of the version that made it; part of the digest."
    )
    change_record = models.CharField(
        max_length=64, blank=True, default="", db_default="", db_index=True,
        help_text="Its reference in the ticket system; no part of what is approved.",
    )  # fmt: skip
    change_record_mac = models.CharField(
        max_length=64, blank=True, default="", db_default="", editable=False,
        help_text="The mark of the process that wrote the reference.",
    )  # fmt: skip
    fleet_run = models.ForeignKey(
        FleetRun, null=True, on_delete=models.PROTECT, related_name="plans",
        help_text="It starts in its ring of this run; no part of what is approved.",
    )  # fmt: skip
    ring = models.PositiveSmallIntegerField(default=0, db_default=0, help_text="From 1; 0: in no run.")
    ring_left = models.CharField(
        max_length=500, blank=True, default="", db_default="", help_text="Why the run does not wait for it any more."
    )
    request_key = models.CharField(
        max_length=64, null=True, help_text="SHA-256 of the request that it answers; null: of none that names itself."
    )

    objects = PlanQuerySet.as_manager()

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(
                fields=["request_key"],
                condition=~Q(status__in=["rejected", "withdrawn", "expired"]),  # Plan.CAME_TO_NOTHING
                name="one_plan_a_request",
            )
        ]

    def __str__(self) -> str:
        return f"P-{self.number}"

    @property
    def state_in_words(self) -> str:
        """The status as words for a sentence."""
        words = {self.Status.DRAFT: "a draft", self.Status.REVIEW: "in review", self.Status.CHANGES: "sent back"}
        return words.get(self.Status(self.status), self.get_status_display().lower())

    @property
    def late(self) -> str:
        """The reason why it can be neither asked for, approved nor started any more, in any status; empty: it can."""
        if self.judgement != JUDGEMENT:
            return f"{self} was made by another version of Setpoint, which judged plans differently. Plan again."
        is_expired = self.expires_at <= now()
        return f"{self} expired at {self.expires_at:%Y-%m-%d %H:%M} UTC. Plan again." if is_expired else ""

    @property
    def is_blocked(self) -> bool:
        return any(f["severity"] == "block" for f in self.findings)

    @property
    def shown_class(self) -> str:
        """The worst class, unless a component could not be prepared: what that one would do is not in it."""
        return "unknown" if self.is_uncounted else self.worst_class

    @property
    def has_parts(self) -> bool:
        """True if anything is done to the cluster itself, beside its nodes."""
        return bool(self.summary.get("components") or self.summary.get("policies"))


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
    is_control = models.BooleanField(
        default=False, help_text="Held back until what the others did was measured; chosen by the strategy's seed."
    )
    domain = models.CharField(
        max_length=63,
        blank=True,
        default="",
        db_default="",
        help_text="Its failure domain: the value of the strategy's label.",
    )
    left_out = models.CharField(max_length=300, blank=True, help_text="Why nothing is done here; empty when it is.")

    class Meta:
        ordering = ["batch", "position"]
        constraints = [models.UniqueConstraint(fields=["plan", "node"], name="one_plan_node")]
        indexes = [models.Index(fields=["plan", "batch", "position"])]

    def __str__(self) -> str:
        return self.name


class PlanComponent(models.Model):
    """One component of a plan, or one group of its policy objects: what is done, as it was prepared; or why nothing."""

    class Kind(models.TextChoices):
        RELEASE = "release"
        POLICIES = "policies"

    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="components")
    kind = models.CharField(max_length=8, choices=Kind, default=Kind.RELEASE)
    component = models.CharField(max_length=63, help_text="Its name in the catalog; of policies, what they are.")
    # Empty where another pool brings it, and of policies.
    namespace = models.CharField(max_length=63, blank=True)
    release = models.CharField(max_length=63, blank=True)
    version = models.CharField(max_length=250, blank=True, help_text="Of the chart.")
    action = models.CharField(max_length=10, blank=True, help_text="install, upgrade, adopt, remove, apply or none")
    archive = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the chart's, as in `prepared`.")
    prepared = models.JSONField(help_text="A Prepared as JSON")
    digest = models.CharField(max_length=71, blank=True, help_text="Of `prepared`; part of the plan's.")
    position = models.PositiveIntegerField(help_text="From 1: a component stands after all that it waits for.")
    requires = models.JSONField(default=list, help_text="Components that must have succeeded before it starts.")
    after = models.JSONField(default=list, help_text="Components, or `nodes`, that must have ended before it starts.")
    left_out = models.CharField(max_length=300, blank=True, help_text="Why nothing is done here; empty when it is.")
    # As in `prepared`, which may be megabytes and is not read for every slice and list.
    worst_class = models.CharField(max_length=20, blank=True, help_text="Empty: planned before it was reckoned.")
    hit = models.JSONField(default=list, help_text="Names of the nodes that it disturbs.")
    places = models.PositiveIntegerField(
        default=0, help_text="Nodes that its operator may take out at once: places kept in the ledger (law 1)."
    )

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["plan", "component"], name="one_plan_component")]
        # What is looked for before an archive is deleted: `prepared` may be megabytes, and is not read for that.
        indexes = [models.Index(fields=["archive"], name="plans_of_an_archive", condition=~models.Q(archive=""))]

    def __str__(self) -> str:
        return self.component
