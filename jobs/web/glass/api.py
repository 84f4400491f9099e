"""REST of break-glass: how it is set up, and how much of it is used. No call of the API breaks the glass."""

from __future__ import annotations

from collections import Counter
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from common.api import ApiView
from common.requests import UserApiRequest
from jobs.reports import glass


class GlassSetupOut(serializers.Serializer[Any]):
    is_on = serializers.BooleanField()
    worst_class = serializers.CharField(help_text="Of plans that may be started so; empty: it is off.")
    hours = serializers.IntegerField(help_text="After a start, until the rollout must have begun.")
    review_hours = serializers.IntegerField(help_text="After a start, until its reviews are overdue.")
    per_day = serializers.IntegerField(help_text="Starts in any 24 hours, of everyone in all clusters together.")
    used = serializers.IntegerField(help_text="Of them, in the last 24 hours.")
    next_at = serializers.DateTimeField(allow_null=True, help_text="When the next is possible; null: now.")
    open = serializers.IntegerField(help_text="Starts that you can see and that lack reviews, within their time.")
    overdue = serializers.IntegerField(help_text="Starts that you can see and whose reviews are overdue.")


class GlassSetupView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(responses=GlassSetupOut)
    def get(self, request: UserApiRequest) -> Response:
        """Break-glass as it is set up here, how much of today's starts is used, and what lacks reviews."""
        states = Counter(use.row.state for use in glass.unreviewed(request.user))
        counts = {"open": states["open"], "overdue": states["overdue"]}
        return Response(GlassSetupOut(glass.setup() | counts).data)
