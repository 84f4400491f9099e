"""Expected and observed settings of each node, and the roll-ups computed when they are written."""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import urlencode

from django.conf import settings
from django.db import models
from django.db.models import Q

from clusters.models import Cluster, Node, Pool
from common.clock import now
from profiles.catalog import weakening
from profiles.models import Revision


class Assignment(models.Model):
    """A pool's target. Set when a rollout starts; nodes follow one by one."""

    class Mode(models.TextChoices):
        APPLY = "apply", "Observe drift"
        ENFORCE = "enforce", "Repair drift"

    pool = models.OneToOneField(Pool, on_delete=models.CASCADE, related_name="assignment")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="assignments")
    mode = models.CharField(max_length=10, choices=Mode, default=Mode.APPLY)
    rollout_id = models.UUIDField(null=True)
    set_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    set_at = models.DateTimeField(default=now)
    # What the pool was to run before this rollout: its revert puts both back.
    previous = models.ForeignKey(Revision, null=True, on_delete=models.PROTECT, related_name="+")
    previous_mode = models.CharField(max_length=10, choices=Mode, default=Mode.APPLY)

    def __str__(self) -> str:
        return f"{self.pool} → {self.revision}"

    @property
    def plan_query(self) -> str:
        """The query of `jobs:plan_new` for a plan that brings the pool back to this target."""
        params = {"pool": self.pool_id, "revision": self.revision_id}
        return urlencode(params | ({"enforce": 1} if self.mode == self.Mode.ENFORCE else {}))


class NodeExpectation(models.Model):
    """The revision this node is expected to run; set when its step starts, so an untouched node never looks drifted."""

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="expectation")
    revision = models.ForeignKey(Revision, null=True, on_delete=models.PROTECT, related_name="+")
    previous = models.ForeignKey(Revision, null=True, on_delete=models.PROTECT, related_name="+")
    rollout_id = models.UUIDField(null=True)
    since = models.DateTimeField(default=now)
    earlier = models.JSONField(
        default=list,
        help_text="[[rollout, previous revision's key, since]] that this one took the place of, the latest first: what "
        "it gives back when it is reverted.",
    )

    def __str__(self) -> str:
        return f"{self.node_id}: {self.revision_id}"


class ComplianceState(models.TextChoices):
    """The one axis. A node has the worst of its settings' states; unknown never counts as compliant."""

    COMPLIANT = "compliant"
    DRIFTED = "drifted"
    PENDING = "pending"
    UNKNOWN = "unknown"


class Cause(models.TextChoices):
    """Cause of a drift, as far as the agent could tell."""

    NONE = "", "–"
    FILE = "file", "A file on the node sets it"
    CONTENDED = "contended", "Another writer, again and again"
    HAND = "hand", "No file sets it: written by hand, or by a program"
    MOVED = "moved", "It was changed between plan and step"
    KERNEL = "kernel", "The kernel keeps another value"
    REFUSED = "refused", "The write was refused"


class _Judged:
    """A row with one key's wanted and observed value."""

    key: str
    operator: str
    desired: str
    effective: str | None

    @property
    def weak(self) -> weakening.Weak:
        return weakening.judge(self.key, self.operator, self.desired, self.effective)


class SettingState(_Judged, models.Model):
    """One assigned key on one node: desired, written, effective, original, and who wrote it last."""

    State: ClassVar[type[ComplianceState]] = ComplianceState

    # Two indexes begin with the node already.
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="settings", db_index=False)
    key = models.CharField(max_length=128)
    operator = models.CharField(max_length=2, default="=")
    desired = models.CharField(max_length=512)
    written = models.CharField(max_length=512, null=True)
    effective = models.CharField(max_length=512, null=True)
    original = models.CharField(max_length=512, null=True, help_text="Before Setpoint's first write; null: key absent.")
    has_original = models.BooleanField(default=False)
    state = models.CharField(max_length=10, choices=State, default=State.PENDING)
    reason = models.CharField(max_length=512, blank=True)
    cause = models.CharField(max_length=10, choices=Cause, default=Cause.NONE, blank=True)
    won_by = models.CharField(max_length=300, blank=True, help_text="`path:line` of the file that sets another value.")
    rollout_id = models.UUIDField(null=True, help_text="The last rollout that wrote this key on this node.")
    since = models.DateTimeField(default=now, help_text="When `state` last changed.")

    rollout_number: int | None
    """Not stored: of `rollout_id`. Where a page has looked it up."""

    class Meta:
        ordering = ["key"]
        constraints = [models.UniqueConstraint(fields=["node", "key"], name="one_state_per_key")]
        indexes = [
            models.Index(fields=["node", "state"]),
            models.Index(fields=["key", "node"], name="settings_by_key"),
            # Everything that is wrong anywhere, without the hundred times as many rows that are right.
            models.Index(fields=["key", "node"], name="settings_amiss", condition=~Q(state="compliant")),
        ]

    def __str__(self) -> str:
        return f"{self.node_id} {self.key}: {self.state}"


class NodeStanding(models.Model):
    """One node on the compliance axis, rolled up when something of it is written, so that pages only count rows.

    What time alone changes (the cluster or the agent falls silent) is not stored:
    `compliance.reports.selectors` adds it.
    """

    UNASSIGNED = "unassigned"
    STATES: ClassVar[list[tuple[str, str]]] = [*ComplianceState.choices, (UNASSIGNED, "Not assigned")]

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="standing")
    pool = models.ForeignKey(Pool, null=True, on_delete=models.SET_NULL, related_name="standings")
    state = models.CharField(max_length=10, choices=STATES, default=UNASSIGNED)
    since = models.DateTimeField(default=now)
    reason = models.CharField(max_length=300, blank=True)
    settings = models.PositiveIntegerField(default=0)
    drifted = models.PositiveIntegerField(default=0)
    pending = models.PositiveIntegerField(default=0)
    lacking = models.JSONField(default=list, help_text="Keys of its revision that this node does not have.")
    is_joining = models.BooleanField(
        default=False, help_text="It came to the pool after its target, and no step ever began here."
    )

    class Meta:
        indexes = [models.Index(fields=["pool", "state"]), models.Index(fields=["state"])]

    def __str__(self) -> str:
        return f"{self.node_id}: {self.state}"


class SettingChange(_Judged, models.Model):
    """History: what a setting became, a row only when something changed. Kept SETPOINT_COMPLIANCE_HISTORY_DAYS."""

    RELEASED = "released"
    STATES: ClassVar[list[tuple[str, str]]] = [*ComplianceState.choices, (RELEASED, "Released")]

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="setting_changes")
    key = models.CharField(max_length=128)
    at = models.DateTimeField(default=now)
    state = models.CharField(max_length=10, choices=STATES)
    operator = models.CharField(max_length=2, default="=")
    desired = models.CharField(max_length=512, blank=True)
    effective = models.CharField(max_length=512, null=True)
    cause = models.CharField(max_length=10, choices=Cause, default=Cause.NONE, blank=True)
    won_by = models.CharField(max_length=300, blank=True)
    reason = models.CharField(max_length=512, blank=True)
    rollout_id = models.UUIDField(null=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["node", "key", "-id"]),
            models.Index(fields=["at"]),
            # What drifted anywhere, newest first, without the many rows that a rollout writes.
            models.Index(fields=["-at", "-id"], name="drifted_lately", condition=Q(state="drifted")),
        ]

    def __str__(self) -> str:
        return f"{self.node_id} {self.key} became {self.state}"


class Outlier(models.Model):
    """Nodes whose value differs from nearly all of their peers', whether or not a value was requested."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="outliers")
    pool = models.ForeignKey(Pool, null=True, on_delete=models.CASCADE, related_name="outliers")
    scope = models.CharField(max_length=30, help_text="`pool:<id>` or `cluster`: unique together with the peers.")
    peers = models.CharField(max_length=200, help_text="Whom they are compared with: the GPU model, and the role.")
    key = models.CharField(max_length=128)
    usual = models.CharField(max_length=512)
    usual_nodes = models.PositiveIntegerField(help_text="Peers that answer `usual`.")
    count = models.PositiveIntegerField(help_text="Nodes that answer something else.")
    values = models.JSONField(help_text="[{value, count, names}], the most frequent first; at most ten values.")
    since = models.DateTimeField(default=now)

    class Meta:
        ordering = ["-pk"]
        constraints = [models.UniqueConstraint(fields=["cluster", "scope", "peers", "key"], name="one_outlier")]
        indexes = [models.Index(fields=["cluster", "key"])]

    def __str__(self) -> str:
        return f"{self.count} nodes differ in {self.key}"


class OutlierNode(models.Model):
    """Nodes of an outlier, for lists that filter by it."""

    outlier = models.ForeignKey(Outlier, on_delete=models.CASCADE, related_name="nodes")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="outliers")
    value = models.CharField(max_length=512, null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["outlier", "node"], name="one_outlier_per_node")]

    def __str__(self) -> str:
        return f"{self.node_id}: {self.value}"


class Reading(models.Model):
    """Up to which change of a cluster's rows its outliers were computed: nothing new, nothing read again."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="+")
    mark = models.CharField(max_length=200, blank=True)
    read_at = models.DateTimeField(default=now)

    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.mark}"
