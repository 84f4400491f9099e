"""REST of the forecast of a plan's study: the numbers of the plan's page."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.response import Response

from common.api import ApiView
from common.requests import UserApiRequest
from gpus.effects import measures, planned
from jobs.reports import selectors


class MeasureForecastOut(serializers.Serializer[Any]):
    """One measure. `detectable_*` and `usual_*` are ratios less 1, or points where `by_points`; null: unknown."""

    measure = serializers.ChoiceField(choices=list(measures.BY_NAME), source="measure.name")
    unit = serializers.SerializerMethodField(help_text="Of `level`, and of points.")
    by_points = serializers.BooleanField(source="measure.by_points")
    is_primary = serializers.BooleanField()
    confidence = serializers.FloatField(help_text="Of the interval that will be judged.")
    level = serializers.FloatField(help_text="Mean of these GPUs in the newest window.")
    detectable_rise = serializers.FloatField(
        source="detectable.rise",
        allow_null=True,
        help_text="The smallest true rise that is called one in 4 of 5 rollouts; null without a control.",
    )
    detectable_fall = serializers.FloatField(source="detectable.fall", allow_null=True, help_text="A number below 0.")
    usual_low = serializers.FloatField(
        allow_null=True,
        help_text="Lower end of the range in which 95 % of the changes fall when nothing is done; null: too few days.",
    )
    usual_high = serializers.FloatField(allow_null=True, help_text="Upper end of it.")
    why = serializers.CharField(source="detectable.why", allow_blank=True, help_text="Why nothing is detectable.")
    clusters = serializers.IntegerField(
        source="detectable.clusters", help_text="Nodes, or jobs on several nodes, at work now; 0 without a control."
    )
    control_clusters = serializers.IntegerField(source="detectable.control_clusters")
    narrower = serializers.FloatField(
        source="detectable.narrower",
        allow_null=True,
        help_text="Share by which adjustment by the GPUs' past makes these smaller; null: it will not be adjusted.",
    )

    @extend_schema_field(serializers.CharField())
    def get_unit(self, row: planned.MeasureForecast) -> str:
        return "share" if row.measure.unit == "%" else row.measure.unit


class StudyForecastOut(serializers.Serializer[Any]):
    design = serializers.SerializerMethodField(
        help_text="`before and after` gives no verdict; `difference in differences` does."
    )
    hours = serializers.IntegerField(help_text="Of each window.")
    settle_minutes = serializers.IntegerField()
    nodes = serializers.IntegerField(help_text="With GPUs, that are changed first.")
    control_nodes = serializers.IntegerField()
    sampled_nodes = serializers.IntegerField(help_text="Whose history was read.")
    placebos = serializers.IntegerField(help_text="Earlier days without a change that were compared.")
    since = serializers.DateTimeField(allow_null=True, help_text="Start of the oldest.")
    until = serializers.DateTimeField(allow_null=True, help_text="End of the newest.")
    why = serializers.CharField(allow_blank=True, help_text="Why there are no measures.")
    primary_measure = serializers.CharField(
        allow_blank=True, help_text="That the plan names; empty: the first of OFU, tensor and busy that is reported."
    )
    why_not_primary = serializers.CharField(
        allow_blank=True, help_text="Why there is no forecast of it: of hosts no history is stored."
    )
    measures = MeasureForecastOut(many=True)

    @extend_schema_field(serializers.ChoiceField(choices=["before and after", "difference in differences"]))
    def get_design(self, row: planned.StudyForecast) -> str:
        return "difference in differences" if row.is_causal else "before and after"


class StudyForecastView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(operation_id="gpus_plans_forecast", responses=StudyForecastOut)
    def get(self, request: UserApiRequest, pk: UUID) -> Response:
        """Return the smallest effects that the plan's study will detect, computed from the GPUs' history now."""
        plan = get_object_or_404(selectors.visible_plans(request.user), pk=pk)
        return Response(StudyForecastOut(planned.of_plan(plan)).data)
