"""REST of statements: what each team's GPUs cost in a month, or in some days."""

from __future__ import annotations

from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from common.api import ApiView
from common.paging import Paging
from common.requests import UserApiRequest
from gpus.showback import files, periods, statement
from gpus.showback.periods import Period
from gpus.web.api import checked_parameters
from gpus.web.cost import views

_PERIOD = [
    OpenApiParameter("month", OpenApiTypes.STR, description="Such as 2026-11; this month if nothing is given."),
    OpenApiParameter("from", OpenApiTypes.DATE, description="The first day, UTC; together with `to`."),
    OpenApiParameter("to", OpenApiTypes.DATE, description="The last day; at most 366 days."),
]
_NAMES = ("month", "from", "to")


def _money(text: str) -> serializers.DecimalField:
    return serializers.DecimalField(max_digits=20, decimal_places=2, allow_null=True, help_text=text)


def _hours(text: str = "") -> serializers.DecimalField:
    return serializers.DecimalField(max_digits=20, decimal_places=2, help_text=text)


class StatementLineOut(serializers.Serializer[Any]):
    """One line, each figure rounded once to two places. Costs are null where nothing of it has a price."""

    line = serializers.ChoiceField(choices=[*statement.ORDER, "total"])
    team = serializers.CharField(allow_blank=True)
    gpu_hours = _hours("Of a team what its pods held; of `unheld` what no pod held; of `total` the capacity.")
    effective_gpu_hours = _hours()
    active_gpu_hours = _hours()
    held_idle_gpu_hours = _hours()
    no_telemetry_gpu_hours = _hours()
    gpu_cost = _money("GPU-hours times the price of their model, cluster and day.")
    held_idle_cost = _money("Of gpu_cost what was held idle.")
    kwh = _hours("Of the GPUs, without what the site adds.")
    energy_cost = _money("kWh times PUE times the price of a kWh.")
    cost = _money("GPUs and energy.")
    currency = serializers.CharField()
    unpriced_gpu_hours = _hours("In no cost, for their model has no price.")
    share_percent = _money("Of the capacity.")
    previous_gpu_hours = _money("Of the period before; null: nothing was recorded.")
    previous_cost = _money("Of the period before.")
    budget = _money("Of a month; null in other periods, and for a person who does not see all clusters.")
    budget_left = _money("Negative: overspent.")


class StatementOut(serializers.Serializer[Any]):
    start = serializers.DateField()
    end = serializers.DateField(help_text="The day after the last.")
    is_running = serializers.BooleanField(help_text="Today is one of its days.")
    before_start = serializers.DateField(allow_null=True, help_text="Of what it is compared with; null: no record.")
    before_end = serializers.DateField(allow_null=True)
    recorded_since = serializers.DateField(allow_null=True)
    workloads_since = serializers.DateField(allow_null=True)
    sees_all_clusters = serializers.BooleanField()
    unpriced_models = serializers.ListField(child=serializers.CharField(allow_blank=True))
    total = StatementLineOut()


class StatementView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(operation_id="gpus_statement", parameters=_PERIOD, responses=StatementOut)
    def get(self, request: UserApiRequest) -> Response:
        """The period and its sum, which is the capacity; `/lines` has the teams."""
        shown = statement.of(request.user, _period(request, *_NAMES))
        return Response(
            StatementOut(
                {
                    "start": shown.period.start,
                    "end": shown.period.end,
                    "is_running": shown.period.is_running,
                    "before_start": shown.before.start if shown.before else None,
                    "before_end": shown.before.end if shown.before else None,
                    "recorded_since": shown.since,
                    "workloads_since": shown.teams_since,
                    "sees_all_clusters": shown.sees_all,
                    "unpriced_models": shown.unpriced_models,
                    "total": files.record(shown.total, shown.currency),
                }
            ).data
        )


class StatementLinesOut(serializers.Serializer[Any]):
    """A page of lines, as lists of the API have them."""

    count = serializers.IntegerField()
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = StatementLineOut(many=True)


class StatementLinesView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(
        operation_id="gpus_statement_lines",
        parameters=[
            *_PERIOD,
            OpenApiParameter("limit", OpenApiTypes.INT, description="Lines of a page."),
            OpenApiParameter("offset", OpenApiTypes.INT, description="Lines to skip."),
        ],
        responses=StatementLinesOut,
    )
    def get(self, request: UserApiRequest) -> Response:
        """Teams by cost, then what is unassigned, not attributed and unheld: together the capacity."""
        shown = statement.of(request.user, _period(request, *_NAMES, "limit", "offset"))
        paging = Paging()
        page = paging.paginate_queryset(list(shown.lines), request, self)
        rows = [files.record(line, shown.currency) for line in page]
        return paging.get_paginated_response(StatementLineOut(rows, many=True).data)


class StatementExportView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(
        operation_id="gpus_statement_export",
        parameters=[*_PERIOD, OpenApiParameter("as", OpenApiTypes.STR, enum=["csv", "focus"], default="csv")],
        responses={(200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: UserApiRequest) -> HttpResponseBase:
        """The statement as CSV, or its daily charges in FOCUS 1.3, the FinOps Open Cost and Usage Specification."""
        period = _period(request, *_NAMES, "as")
        form = request.query_params.get("as", "csv")
        if form not in ("csv", "focus"):
            raise ValidationError({"as": [f"Write csv or focus, not {form[:40]!r}."]})
        return views.as_file(request, form, period)


def _period(request: UserApiRequest, *names: str) -> Period:
    query = checked_parameters(request, *names)
    return periods.parse(query["month"], query["from"], query["to"])
