"""Change records of a ticket system: which form of reference an environment requires, and what tickets say."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models

from audit.marked import Marked, MarkedQuerySet
from clusters.connection.remotes import Remote
from clusters.models import Cluster
from common.clock import now

REFERENCE_CHARACTERS = 64


class ChangeRecordRule(Marked):
    """The rule of one environment: the form of its references, and whether a start needs one, or its release."""

    MARKED = ("environment", "pattern", "is_required", "must_release")

    environment = models.CharField(max_length=12, choices=Cluster.Environment, unique=True)
    pattern = models.CharField(max_length=100, help_text="The form of the whole reference.")
    is_required = models.BooleanField(default=True, help_text="A plan starts only with a reference.")
    must_release = models.BooleanField(default=False, help_text="A start waits until the ticket system releases it.")
    version = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField(default=now)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    objects = MarkedQuerySet["ChangeRecordRule"].as_manager()

    class Meta:
        ordering = ["environment"]

    def __str__(self) -> str:
        return f"change records of {self.environment}"


class ChangeRecord(Marked):
    """One change record by its reference, as its ticket system last described it. Plans name it by reference."""

    MARKED = ("reference", "state", "note", "sent_at", "source")

    class State(models.TextChoices):
        UNKNOWN = "unknown", "Nothing was sent yet"
        HOLD = "hold", "Held"
        RELEASE = "release", "Released"
        CLOSED = "closed", "Closed"

    STOPS: ClassVar[tuple[str, ...]] = (State.HOLD, State.CLOSED)
    """States in which no step starts, of a rollout in progress either."""

    reference = models.CharField(max_length=REFERENCE_CHARACTERS, primary_key=True)
    state = models.CharField(max_length=8, choices=State, default=State.UNKNOWN)
    note = models.CharField(max_length=200, blank=True)
    sent_at = models.DateTimeField(null=True, help_text="The timestamp of the message; older ones change nothing.")
    source = models.CharField(max_length=80, blank=True, help_text="The connection that sent it.")
    changed_at = models.DateTimeField(default=now)

    objects = MarkedQuerySet["ChangeRecord"].as_manager()

    class Meta:
        indexes = [models.Index(fields=["changed_at"], name="change_records_by_age")]

    def __str__(self) -> str:
        return self.reference


class TicketConnection(Remote):
    """A ticket system that may hold and release: its address here, by id, and the secret that it signs with."""

    SEALED_AS = "ticket-connection"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    name = models.CharField(max_length=80, unique=True)
    secret = models.BinaryField(default=b"", help_text="Sealed for this row alone.")
    secret_key = models.CharField(max_length=16, blank=True, help_text="The fingerprint of the key it is sealed with.")
    is_active = models.BooleanField(
        default=True,
        db_default=True,
        help_text="Without another administrator's consent nothing that it sends is taken.",
    )
    version = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField(default=now)
    changed_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class TicketMessage(models.Model):
    """The id of a message that was carried out, kept for longer than its timestamp is accepted: none counts twice."""

    connection = models.ForeignKey(TicketConnection, on_delete=models.CASCADE, related_name="messages")
    message_id = models.CharField(max_length=128)
    at = models.DateTimeField(default=now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["connection", "message_id"], name="one_ticket_message")]
        indexes = [models.Index(fields=["connection", "at"], name="ticket_messages_by_age")]

    def __str__(self) -> str:
        return self.message_id
