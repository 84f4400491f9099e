"""REST representation of freezes, and the body that is accepted."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.bodies import Body, Instant
from jobs.models import Freeze


class FreezeOut(serializers.ModelSerializer[Freeze]):
    cluster = serializers.UUIDField(source="cluster_id", allow_null=True)
    created_by = serializers.CharField(source="created_by.email", default=None, allow_null=True)

    class Meta:
        model = Freeze
        fields = ["id", "cluster", "reason", "created_by", "created_at", "until", "lifted_at"]


class FreezeIn(Body[Any]):
    cluster = serializers.UUIDField(required=False, allow_null=True, default=None, help_text="Absent: all clusters.")
    reason = serializers.CharField(max_length=500)
    until = Instant(required=False, allow_null=True, default=None)
