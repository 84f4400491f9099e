"""REST representations of calendar rules, and the body that is accepted."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from clusters.models import Cluster
from common.bodies import Body
from jobs.calendars import rule_text, rulebook
from jobs.models import CalendarRule
from jobs.reports import calendars


class OccurrenceOut(serializers.Serializer[Any]):
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    local_start = serializers.CharField(help_text="In the rule's zone, for people.")
    local_end = serializers.CharField(help_text="In the rule's zone, for people.")
    is_now = serializers.BooleanField(help_text="It is in effect now.")


class CalendarRuleOut(serializers.ModelSerializer[CalendarRule]):
    cluster = serializers.UUIDField(source="cluster_id", allow_null=True)
    pool = serializers.IntegerField(source="pool_id", allow_null=True)
    excluded = serializers.ListField(child=serializers.CharField(), help_text="Local starts that are left out.")
    added = serializers.ListField(child=serializers.CharField(), help_text="Local starts besides those of the rule.")
    about = serializers.SerializerMethodField(help_text="What it applies to, in words.")
    times = serializers.SerializerMethodField(help_text="When it applies, in words.")
    occurrences = serializers.SerializerMethodField(help_text="The next ten that have not ended.")
    changed_by = serializers.CharField(source="changed_by.email", default=None, allow_null=True)

    class Meta:
        model = CalendarRule
        fields = ["id", *rulebook.FIELDS, "about", "times", "occurrences", "version", "changed_at",
                  "changed_by"]  # fmt: skip

    @extend_schema_field(serializers.CharField())
    def get_about(self, row: CalendarRule) -> str:
        return calendars.describe_target(row)

    @extend_schema_field(serializers.CharField())
    def get_times(self, row: CalendarRule) -> str:
        return calendars.describe_times(row)

    @extend_schema_field(OccurrenceOut(many=True))
    def get_occurrences(self, row: CalendarRule) -> Any:
        return OccurrenceOut(calendars.next_occurrences(row), many=True).data


class CalendarRuleIn(Body[Any]):
    """A window, inside which steps may start, or a freeze. What is absent of environment, cluster and pool fits all."""

    name = serializers.CharField(max_length=80)
    kind = serializers.ChoiceField(choices=CalendarRule.Kind.choices)
    environment = serializers.ChoiceField(choices=Cluster.Environment.choices, required=False, allow_blank=True)
    cluster = serializers.UUIDField(required=False, allow_null=True)
    pool = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=2**31 - 1)
    starts = serializers.CharField(max_length=16, help_text="The first start, local: 2026-11-27T22:00.")
    zone = serializers.CharField(max_length=64, help_text="IANA time zone, such as Europe/Berlin.")
    minutes = serializers.IntegerField(
        min_value=rule_text.LEAST_MINUTES, max_value=rule_text.MOST_MINUTES, help_text="Length, as elapsed time."
    )
    rule = serializers.CharField(
        max_length=rule_text.RULE_CHARACTERS, required=False, allow_blank=True,
        help_text="RRULE of RFC 5545, DAILY to YEARLY; empty: once.",
    )  # fmt: skip
    excluded = serializers.ListField(
        child=serializers.CharField(max_length=16), max_length=rule_text.MOST_EXCLUDED, required=False,
        help_text="Local starts that are left out (EXDATE).",
    )  # fmt: skip
    added = serializers.ListField(
        child=serializers.CharField(max_length=16), max_length=rule_text.MOST_EXCLUDED, required=False,
        help_text="Local starts besides those of the rule (RDATE).",
    )  # fmt: skip
    whole_days = serializers.BooleanField(
        required=False,
        help_text="The length is in days of the zone, which may have 23 or 25 hours; it begins at 00:00.",
    )
