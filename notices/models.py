"""Alerts, the rules as people set them, and what is sent about them: channels and their deliveries."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import ClassVar

from django.db import models
from django.db.models import Q

from clusters.connection.remotes import Remote
from clusters.models import Cluster, Node
from common.alerting import Severity, SubjectKind
from common.clock import now

SEVERITIES: list[tuple[str, str]] = [(Severity.CRITICAL, "Critical"), (Severity.WARNING, "Warning")]


class Evaluation(models.Model):
    """Schedule of a cluster's rule evaluations, and the result of the last one. The row is the queue."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="evaluation")
    due_at = models.DateTimeField(default=now, db_index=True)
    claimed_until = models.DateTimeField(null=True)
    looked_at = models.DateTimeField(null=True, help_text="When a look last ended.")
    milliseconds = models.PositiveIntegerField(default=0)
    looks = models.PositiveBigIntegerField(default=0)
    failures = models.PositiveBigIntegerField(default=0, help_text="Rules that raised, of all looks.")
    blind = models.JSONField(default=dict, help_text="{rule: why it can say nothing of this cluster now}")
    not_judged = models.JSONField(
        default=dict, help_text="{rule: [why it does not judge all subjects here, whether it judges none]}"
    )

    def __str__(self) -> str:
        return f"evaluation of {self.cluster_id}"


class RuleSetting(models.Model):
    """Settings of one rule, everywhere or for one cluster. Without a row the rule has its app's defaults."""

    rule = models.SlugField(max_length=40)
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.CASCADE, related_name="alert_rules")
    is_enabled = models.BooleanField(default=True)
    severity = models.CharField(max_length=8, choices=SEVERITIES)
    threshold = models.FloatField(null=True, help_text="In the rule's own unit; null where it has none.")
    opens_after = models.PositiveIntegerField(help_text="Seconds.")
    closes_after = models.PositiveIntegerField(help_text="Seconds.")
    version = models.PositiveIntegerField(default=1)
    changed_by = models.CharField(max_length=150, blank=True)
    changed_at = models.DateTimeField(default=now)

    class Meta:
        ordering = ["rule", "cluster"]
        constraints = [
            models.UniqueConstraint(fields=["rule"], condition=Q(cluster=None), name="one_rule_setting"),
            models.UniqueConstraint(fields=["rule", "cluster"], name="one_rule_setting_per_cluster"),
        ]

    def __str__(self) -> str:
        return f"{self.rule} {f'in {self.cluster_id}' if self.cluster_id else 'everywhere'}"


class AlertQuerySet(models.QuerySet["Alert"]):
    def shown(self) -> AlertQuerySet:
        """Those that people see: all but what has not lasted long enough."""
        return self.exclude(status=Alert.Status.PENDING)

    def open(self) -> AlertQuerySet:
        return self.filter(status=Alert.Status.OPEN)

    def waiting(self, at: datetime) -> AlertQuerySet:
        """Restrict to open alerts that are neither acknowledged nor silenced."""
        return self.open().filter(~Q(silenced_until__gt=at) | Q(silenced_until=None), acknowledged_at=None)


class Alert(models.Model):
    """One rule about one subject, from when it was first wrong until it had been well for long enough."""

    class Status(models.TextChoices):
        PENDING = "pending", "Not long enough yet"
        OPEN = "open", "Open"
        CLOSED = "closed", "Closed"

    class Ending(models.TextChoices):
        WELL = "well", "It has been well for long enough"
        RULE_OFF = "rule-off", "The rule was switched off here"

    LIVE: ClassVar[tuple[str, ...]] = (Status.PENDING, Status.OPEN)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    rule = models.SlugField(max_length=40)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="alerts", db_index=False)
    subject_kind = models.CharField(max_length=8, choices=[(kind.value, kind.value) for kind in SubjectKind])
    subject = models.CharField(max_length=330)
    subject_name = models.CharField(max_length=330)
    node = models.ForeignKey(Node, null=True, on_delete=models.SET_NULL, related_name="alerts")
    namespace = models.CharField(max_length=63, blank=True)
    severity = models.CharField(max_length=8, choices=SEVERITIES)
    status = models.CharField(max_length=7, choices=Status, default=Status.PENDING)
    sentence = models.CharField(max_length=500)
    mend = models.CharField(max_length=500, blank=True, help_text="What to do about it.")
    link = models.CharField(max_length=500, blank=True)
    figures = models.JSONField(default=dict)
    members = models.JSONField(
        default=list, help_text="What it consists of, where it is one alert for several; notices.members."
    )
    began_at = models.DateTimeField(default=now, help_text="Amiss at every look since.")
    opened_at = models.DateTimeField(default=now, help_text="When people were told; while pending, as began_at.")
    last_seen_at = models.DateTimeField(default=now, help_text="When it was last found amiss.")
    well_since = models.DateTimeField(null=True, help_text="Well at every look since; null: it is not, or unknown.")
    is_unknown = models.BooleanField(default=False, help_text="The last look could say nothing of its subject.")
    closed_at = models.DateTimeField(null=True)
    ending = models.CharField(max_length=8, choices=Ending, blank=True)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=150, blank=True)
    silenced_until = models.DateTimeField(null=True)
    silenced_by = models.CharField(max_length=150, blank=True)
    note = models.CharField(max_length=500, blank=True, help_text="What the person who acknowledged or silenced said.")
    version = models.PositiveIntegerField(default=1, help_text="Counts what people did to it; the ETag.")

    objects = AlertQuerySet.as_manager()

    class Meta:
        ordering = ["-opened_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "rule", "subject_kind", "subject"],
                condition=Q(status__in=("pending", "open")),
                name="one_live_alert",
            )
        ]
        indexes = [
            models.Index(fields=["status", "cluster"]),
            models.Index(fields=["closed_at"], name="alerts_closed", condition=~Q(closed_at=None)),
            models.Index(fields=["opened_at"], name="alerts_opened"),
        ]

    def __str__(self) -> str:
        return f"{self.rule} of {self.subject_name}"

    @property
    def is_silenced(self) -> bool:
        return self.silenced_until is not None and self.silenced_until > now()

    @property
    def held(self) -> timedelta:
        """Duration of the condition, until now or until it closed."""
        return (self.closed_at or now()) - self.began_at


class Channel(Remote):
    """Destination of notices, and their filter.

    Settings and delivery results are written by name, never over each other.
    """

    SEALED_AS = "notice-channel"

    class Kind(models.TextChoices):
        WEBHOOK = "webhook", "Webhook"
        MAIL = "mail", "Mail"
        SLACK = "slack", "Slack"
        TEAMS = "teams", "Microsoft Teams"
        PAGERDUTY = "pagerduty", "PagerDuty"

    class What(models.TextChoices):
        ALERTS = "alerts", "Alerts that open and close"
        DIGEST = "digest", "Every day, GPUs that are held idle, by namespace"
        APPROVALS = "approvals", "A plan or a change waits for approval or consent; roles and passwords change"
        ROLLOUTS = "rollouts", "A rollout failed, was paused or was aborted"
        DONE = "done", "A rollout succeeded, or was put back"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    name = models.CharField(max_length=80, unique=True)
    kind = models.CharField(max_length=9, choices=Kind, default=Kind.WEBHOOK)
    is_enabled = models.BooleanField(default=True)
    what = models.JSONField(default=list, help_text="Channel.What, sorted.")
    least_severity = models.CharField(max_length=8, choices=SEVERITIES, default=Severity.WARNING.value)
    environment = models.CharField(max_length=12, choices=Cluster.Environment, blank=True)
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.CASCADE, related_name="channels")
    namespaces = models.JSONField(default=list, help_text="Only what is about these namespaces; empty: everything.")
    url = models.CharField(max_length=1000, blank=True)
    ca = models.TextField(blank=True, help_text="PEM; empty: the machine's trusted roots.")
    # What deliveries are signed with, or PagerDuty's integration key; write-only: sealed, and which key sealed it. Both
    # empty: there is none.
    secret = models.BinaryField(default=b"")
    secret_key = models.CharField(max_length=16, blank=True)
    addresses = models.JSONField(default=list, help_text="Of mail.")
    digest_hour = models.PositiveSmallIntegerField(default=7, help_text="UTC.")
    quiet_days = models.JSONField(
        default=list, db_default=[], help_text="Of `mon` to `sun`: when quiet hours begin. Empty: never."
    )
    quiet_from = models.TimeField(null=True, help_text="Of `quiet_zone`.")
    quiet_until = models.TimeField(null=True, help_text="Of `quiet_zone`; on the next day where it is no later.")
    quiet_zone = models.CharField(max_length=64, default="UTC", db_default="UTC", help_text="As IANA names it.")
    version = models.PositiveIntegerField(default=1)
    changed_by = models.CharField(max_length=150, blank=True)
    changed_at = models.DateTimeField(default=now)
    # ── how sending goes ──────────────────────────────────────────────────────────────────────────────────────────
    digested_on = models.DateField(null=True, help_text="The day of the last digest.")
    claimed_until = models.DateTimeField(null=True)
    rests_until = models.DateTimeField(null=True, help_text="After a failure nothing is tried before then.")
    failures = models.PositiveIntegerField(default=0, help_text="One after the other; 0: the last one arrived.")
    failing_since = models.DateTimeField(null=True)
    error = models.CharField(max_length=500, blank=True)
    sent_at = models.DateTimeField(null=True, help_text="When something last arrived.")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One notice to one channel. It arrives at least once: the receiver tells repetitions by its id."""

    class Status(models.TextChoices):
        WAITING = "waiting", "Waiting"
        SENT = "sent", "Sent"
        GIVEN_UP = "given-up", "Given up"
        OVER = "over", "Over before it was due"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    event = models.CharField(max_length=20, help_text="Channel.What, or `test`.")
    title = models.CharField(max_length=200)
    body = models.JSONField(help_text="What is sent, but for the delivery's own id and time.")
    status = models.CharField(max_length=8, choices=Status, default=Status.WAITING)
    created_at = models.DateTimeField(default=now)
    due_at = models.DateTimeField(default=now)
    tries = models.PositiveIntegerField(default=0)
    tried_at = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=500, blank=True, help_text="Of the last try; empty when it arrived.")
    is_held = models.BooleanField(
        default=False, db_default=False, help_text="By the channel's quiet hours, until it is due."
    )
    held_alerts = models.JSONField(
        default=dict,
        db_default={},
        help_text="Of a held notice of alerts, which is written once it is due: {cluster, opened, closed}, as ids.",
    )

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["channel", "due_at"], name="deliveries_due", condition=Q(status="waiting")),
            models.Index(fields=["created_at"], name="deliveries_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.title} to {self.channel_id}"


class Cursor(models.Model):
    """Up to which record of the audit chain notices were made, one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    seq = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return str(self.seq)


class Forwarding(models.Model):
    """Progress of one destination of SETPOINT_AUDIT_FORWARD through the audit record. The row is the queue.

    It holds neither address nor secret. A destination that is no longer set up keeps its row, and continues from
    there when it is set up again.
    """

    name = models.CharField(primary_key=True, max_length=40)
    cursor = models.CharField(max_length=40, help_text="Of audit.following: behind the last acknowledged record.")
    claimed_until = models.DateTimeField(null=True)
    rests_until = models.DateTimeField(null=True, help_text="After a failure nothing is tried before then.")
    failures = models.PositiveIntegerField(default=0, help_text="One after the other; 0: the last batch arrived.")
    failing_since = models.DateTimeField(null=True)
    error = models.CharField(max_length=500, blank=True)
    reported_at = models.DateTimeField(
        null=True, help_text="When the failure was recorded and so notified of; null: there is none to recover from."
    )
    sent_at = models.DateTimeField(null=True, help_text="When something last arrived.")
    rejected = models.PositiveBigIntegerField(default=0, help_text="Records that an OTLP receiver refused for good.")
    rejection = models.CharField(max_length=500, blank=True, help_text="Which the last ones were, and why.")
    restarts = models.PositiveIntegerField(
        default=0, help_text="How often it began again because the chain was another one than before."
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return f"{self.name} behind {self.seq}"

    @property
    def seq(self) -> int:
        return int(self.cursor.partition(":")[0] or 0)
