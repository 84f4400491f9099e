"""Shapes of an iCalendar file's import."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from clusters.models import Cluster
from common.bodies import Body
from jobs.calendars import calendar_lines
from jobs.models import CalendarRule
from jobs.web.calendars.serializers import CalendarRuleOut


class CalendarFileIn(Body[Any]):
    """An iCalendar file (RFC 5545), and what its events apply to."""

    file = serializers.CharField(
        max_length=calendar_lines.MOST_BYTES, trim_whitespace=False,
        help_text="The text of the .ics file: at most 512 KiB and 200 events.",
    )  # fmt: skip
    kind = serializers.ChoiceField(
        choices=CalendarRule.Kind.choices,
        help_text="Of all events but those that Setpoint exported, which keep theirs.",
    )
    environment = serializers.ChoiceField(choices=Cluster.Environment.choices, required=False, allow_blank=True)
    cluster = serializers.UUIDField(required=False, allow_null=True)
    pool = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=2**31 - 1)
    zone = serializers.CharField(
        max_length=64, required=False, allow_blank=True,
        help_text="IANA time zone of dates and times that name none; empty: the file's own.",
    )  # fmt: skip
    skip_refused = serializers.BooleanField(
        default=False, help_text="Import the other events where some are refused; else nothing is imported then."
    )


class RefusedEventOut(serializers.Serializer[Any]):
    line = serializers.IntegerField(help_text="Of the file, where the event begins.")
    uid = serializers.CharField()
    reason = serializers.CharField()


class CalendarFileOut(serializers.Serializer[Any]):
    created = CalendarRuleOut(many=True)
    refused = RefusedEventOut(many=True)
