"""REST of schedules: checks that repeat by themselves on idle nodes."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.reports.selectors import clusters_visible_to
from common.api import ApiViewSet, created, expected_version, with_etag
from common.bodies import Body
from common.errors import Invalid
from common.requests import UserApiRequest
from gpus.models import CheckSchedule
from gpus.services.checks import schedule_lines, schedules
from gpus.services.checks.schedule_lines import CheckScheduleFilter, ScheduleLine


class CheckScheduleOut(serializers.Serializer[ScheduleLine]):
    id = serializers.IntegerField(source="schedule.pk")
    check_name = serializers.CharField(source="schedule.check_name", help_text="As /gpus/checks has it.")
    cluster = serializers.UUIDField(source="schedule.cluster_id")
    cluster_name = serializers.CharField(source="schedule.cluster.name")
    every_days = serializers.IntegerField(source="schedule.every_days")
    at_once = serializers.IntegerField(source="schedule.at_once")
    nodes = serializers.IntegerField(source="coverage.nodes", help_text="With whole GPUs that the check can take.")
    nodes_checked = serializers.IntegerField(
        source="coverage.checked", help_text="Of nodes, those that passed or failed within the interval."
    )
    runs = serializers.IntegerField(source="state.live", help_text="That wait or run now.")
    reason = serializers.CharField(
        allow_blank=True,
        help_text="Why nothing is queued now, or how many nodes are due. Empty: every node was checked in time.",
    )
    last_at = serializers.DateTimeField(source="state.last_at", allow_null=True, help_text="End of its newest run.")
    next_at = serializers.DateTimeField(allow_null=True, help_text="When a node is due; null: some are now, or none.")
    created_by = serializers.CharField(source="schedule.created_by")
    created_at = serializers.DateTimeField(source="schedule.created_at")
    changed_by = serializers.CharField(source="schedule.changed_by")
    changed_at = serializers.DateTimeField(source="schedule.changed_at")
    version = serializers.IntegerField(source="schedule.version")


class CheckSchedulePatch(Body[Any]):
    every_days = serializers.IntegerField(
        required=False,
        min_value=CheckSchedule.LEAST_DAYS,
        max_value=CheckSchedule.MOST_DAYS,
        help_text="From one result of a node to its next run.",
    )
    at_once = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=CheckSchedule.MOST_AT_ONCE,
        help_text="Never more than the cluster's budget.",
    )


class CheckScheduleIn(CheckSchedulePatch):
    check_name = serializers.CharField(max_length=40)
    cluster = serializers.UUIDField()
    every_days = serializers.IntegerField(
        min_value=CheckSchedule.LEAST_DAYS,
        max_value=CheckSchedule.MOST_DAYS,
        help_text="From one result of a node to its next run.",
    )
    at_once = serializers.IntegerField(
        default=1,
        min_value=1,
        max_value=CheckSchedule.MOST_AT_ONCE,
        help_text="Never more than the cluster's budget.",
    )


class CheckScheduleViewSet(mixins.ListModelMixin, ApiViewSet):
    """Checks that repeat by themselves on the nodes of a cluster, each node when it is idle."""

    request: UserApiRequest
    queryset = CheckSchedule.objects.none()
    serializer_class = CheckScheduleOut
    filterset_class = CheckScheduleFilter
    lookup_value_converter = "int"
    ordering_fields = ("check_name", "every_days", "created_at")
    is_versioned = True
    scope_for = {"GET": "read", "POST": "apply", "PATCH": "apply", "DELETE": "apply"}

    def get_queryset(self) -> QuerySet[CheckSchedule]:
        return schedules.visible_to(self.request.user)

    def paginate_queryset(self, queryset: Any) -> Any:
        return schedule_lines.lines(list(super().paginate_queryset(queryset) or ()))

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        row = self.get_object()
        (line,) = schedule_lines.lines([row])
        return with_etag(Response(self.get_serializer(line).data), row)

    @extend_schema(request=CheckScheduleIn, responses={201: CheckScheduleOut})
    def create(self, request: UserApiRequest) -> Response:
        """A check has one schedule in a cluster."""
        schedules.require_change_anywhere(request.user)
        body = CheckScheduleIn(data=request.data)
        body.is_valid(raise_exception=True)
        given = dict(body.validated_data)
        cluster = clusters_visible_to(request.user).filter(pk=given.pop("cluster")).first()
        if cluster is None:
            raise Invalid(
                "No check was scheduled.", fields={"cluster": ["It does not exist, or is outside your permissions."]}
            )
        row = schedules.add(given.pop("check_name"), cluster, **given, by=request.user)
        return created(_shown(row), f"/api/v1/gpus/check-schedules/{row.pk}", row)

    @extend_schema(request=CheckSchedulePatch, responses=CheckScheduleOut)
    def partial_update(self, request: UserApiRequest, pk: int) -> Response:
        row = self.get_object()
        schedules.require_change(request.user, row.cluster)
        version = expected_version(request, row)
        body = CheckSchedulePatch(data=request.data)
        body.is_valid(raise_exception=True)
        fields = {"every_days": row.every_days, "at_once": row.at_once} | body.validated_data
        row = schedules.change(row, **fields, version=version, by=request.user)
        return with_etag(Response(_shown(row)), row)

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, pk: int) -> Response:
        """Its runs that wait are stopped; those on a node end by themselves."""
        row = self.get_object()
        schedules.require_change(request.user, row.cluster)
        schedules.remove(row, version=expected_version(request, row), by=request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _shown(row: CheckSchedule) -> Any:
    (line,) = schedule_lines.lines([row])
    return CheckScheduleOut(line).data
