"""REST of calendar rules, over the same services and selectors as the pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.response import Response

from accounts.permissions import restrict
from clusters.models import Cluster, Pool
from common.api import ApiViewSet, created, expected_version, with_etag
from common.errors import Invalid
from common.requests import UserApiRequest
from jobs.calendars import calendar_imports, rulebook
from jobs.models import CalendarRule
from jobs.reports import calendars
from jobs.web.calendars import file_serializers
from jobs.web.calendars import serializers as calendar_serializers
from jobs.web.calendars.file_answers import calendar_file_answer
from jobs.web.request_bodies import read_body

UNKNOWN = ["It does not exist, or is outside your permissions."]


class CalendarRuleViewSet(mixins.ListModelMixin, ApiViewSet):
    """Maintenance windows and freezes that recur. Where a window applies, steps start only inside one."""

    request: UserApiRequest
    queryset = CalendarRule.objects.none()
    serializer_class = calendar_serializers.CalendarRuleOut
    lookup_value_converter = "int"
    ordering_fields = ("name", "kind", "changed_at")
    is_versioned = True
    scope_for = {"GET": "read", "create": "admin", "partial_update": "admin", "import_": "admin", "destroy": "admin"}

    def get_queryset(self) -> QuerySet[CalendarRule]:
        return calendars.visible_calendar_rules(self.request.user)

    @extend_schema(request=calendar_serializers.CalendarRuleIn, responses={201: calendar_serializers.CalendarRuleOut})
    def create(self, request: UserApiRequest) -> Response:
        body = read_body(calendar_serializers.CalendarRuleIn, request)
        row = rulebook.create(by=request.user, **self._with_rows(body))
        return created(calendar_serializers.CalendarRuleOut(row).data, f"/api/v1/calendar-rules/{row.pk}", row)

    @extend_schema(
        request=calendar_serializers.CalendarRuleIn(partial=True),
        responses={200: calendar_serializers.CalendarRuleOut},
    )
    def partial_update(self, request: UserApiRequest, pk: object) -> Response:
        row = self.get_object()
        version = expected_version(request, row)
        form = calendar_serializers.CalendarRuleIn(data=request.data, partial=True)
        form.is_valid(raise_exception=True)
        row = rulebook.change(row, by=request.user, version=version, **self._with_rows(form.validated_data))
        return with_etag(Response(calendar_serializers.CalendarRuleOut(row).data), row)

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, pk: object) -> Response:
        """End a rule: it applies no more from now on. The audit record keeps what it was."""
        row = self.get_object()
        rulebook.end(row, by=request.user, version=expected_version(request, row))
        return Response(status=204)

    @extend_schema(request=file_serializers.CalendarFileIn, responses={200: file_serializers.CalendarFileOut})
    @action(detail=False, methods=["post"], url_path="actions/import", url_name="import")
    def import_(self, request: UserApiRequest) -> Response:
        """Make a rule of each event of an iCalendar file. Errors name the line and UID of each that is refused."""
        body = self._with_rows(read_body(file_serializers.CalendarFileIn, request))
        content = body.pop("file").encode("utf-8", "surrogatepass")
        result = calendar_imports.import_file(content, by=request.user, **body)
        return Response(file_serializers.CalendarFileOut(result).data)

    @extend_schema(responses={(200, "text/calendar"): OpenApiTypes.STR})
    @action(detail=False, methods=["get"], url_path="export", pagination_class=None)
    def export(self, request: UserApiRequest) -> HttpResponse:
        """All rules that you can see, as an iCalendar file."""
        return calendar_file_answer(self.get_queryset())

    def _with_rows(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Cluster and pool as objects. Raises Invalid."""
        out, user = dict(fields), self.request.user
        if out.get("cluster") is not None:
            out["cluster"] = restrict(Cluster.objects.all(), user, prefix="").filter(pk=out["cluster"]).first()
            if out["cluster"] is None:
                raise Invalid("The rule is not valid.", fields={"cluster": UNKNOWN})
        if out.get("pool") is not None:
            rows = restrict(Pool.objects.select_related("cluster"), user)
            out["pool"] = rows.filter(pk=out["pool"]).first()
            if out["pool"] is None:
                raise Invalid("The rule is not valid.", fields={"pool": UNKNOWN})
        return out
