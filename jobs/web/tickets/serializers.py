"""REST representations of change record rules and connections of ticket systems, and the bodies that are accepted."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers

from clusters.models import Cluster
from common.bodies import Body
from jobs.approvals.tickets import patterns
from jobs.approvals.tickets.rulebook import FIELDS
from jobs.models import ChangeRecordRule, TicketConnection
from jobs.models.tickets import REFERENCE_CHARACTERS


class ChangeRecordRuleOut(serializers.ModelSerializer[ChangeRecordRule]):
    changed_by = serializers.CharField(source="changed_by.email", default=None, allow_null=True)

    class Meta:
        model = ChangeRecordRule
        fields = ["id", *FIELDS, "version", "changed_at", "changed_by"]


class ChangeRecordRuleIn(Body[Any]):
    """The form of an environment's references, and whether a start needs one, or its release."""

    environment = serializers.ChoiceField(choices=Cluster.Environment.choices)
    pattern = serializers.CharField(max_length=patterns.PATTERN_CHARACTERS, help_text=patterns.SYNTAX)
    is_required = serializers.BooleanField(required=False, help_text="Absent: true.")
    must_release = serializers.BooleanField(
        required=False, help_text="A start waits until the ticket system releases the change record."
    )


class TicketConnectionOut(serializers.ModelSerializer[TicketConnection]):
    has_secret = serializers.BooleanField(read_only=True)
    path = serializers.SerializerMethodField(help_text="Where the ticket system sends to, at this installation.")

    class Meta:
        model = TicketConnection
        fields = ["id", "name", "path", "has_secret", "is_active", "version", "changed_by", "changed_at"]

    def get_path(self, row: TicketConnection) -> str:
        return reverse("jobs:change_record_hook", args=[row.pk])


class TicketConnectionIn(Body[Any]):
    name = serializers.CharField(max_length=80)
    secret = serializers.CharField(
        max_length=200, write_only=True, help_text="`whsec_` and base64 of 24 to 64 random bytes; never read back."
    )


class ChangeRecordIn(Body[Any]):
    change_record = serializers.CharField(
        max_length=REFERENCE_CHARACTERS, allow_blank=True, help_text="The reference; empty takes it away."
    )
