"""Shape of what fits into the windows of a plan's target."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class WindowUseOut(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="Rule that opens it; empty: the time between two freezes.")
    opens = serializers.DateTimeField()
    closes = serializers.DateTimeField()
    zone = serializers.CharField(help_text="IANA time zone of the rule.")
    nodes = serializers.IntegerField(help_text="Nodes that start in it.")
    parts = serializers.IntegerField(help_text="Components and groups of policy objects that start in it.")
    done = serializers.IntegerField(help_text="Nodes that have started by its end.")


class WindowForecastOut(serializers.Serializer[Any]):
    """Forecast of a plan over the windows of its target, as the calendar is now."""

    sentence = serializers.CharField(help_text="The same in words.")
    is_bound = serializers.BooleanField(help_text="Whether a window or freeze of the calendar applies to its target.")
    begins = serializers.DateTimeField(help_text="Start that is assumed: now, or the end of a freeze set by hand.")
    ends = serializers.DateTimeField(
        allow_null=True,
        help_text="Null: no window applies, the plan is no longer open, or it does not end in a year.",
    )
    latest = serializers.DateTimeField(
        allow_null=True, help_text="The latest end of the ways that it was walked through."
    )
    nodes = serializers.IntegerField(help_text="Nodes that change.")
    basis = serializers.CharField(help_text="On what the durations rest: earlier steps, or an assumption.")
    windows = WindowUseOut(many=True, source="uses")
