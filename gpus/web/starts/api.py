"""REST of start times: the twin of the page /gpus/starts/, and starts one by one."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, serializers
from rest_framework.response import Response

from clusters.models import PodStart
from common.api import ApiView, ApiViewSet
from common.requests import UserApiRequest
from gpus.reports.starts import figures, report, selectors
from gpus.reports.starts.figures import Figures, Part
from gpus.reports.starts.report import Line, Report, SlowNode
from gpus.web.api import CLUSTER, checked_parameters, cluster_of


class PodStartOut(serializers.ModelSerializer[PodStart]):
    """The first start of a pod with GPUs. Times are the cluster's own, in whole seconds."""

    cluster_name = serializers.CharField(source="cluster.name")

    class Meta:
        model = PodStart
        fields = [
            "id", "cluster", "cluster_name", "namespace", "name", "uid", "node_name", "gpus", "job_kind", "job_name",
            "image", "model", "has_probe", "restarts", "created_at", "scheduled_at", "sandbox_at", "initialized_at",
            "started_at", "ready_at", "queue_seconds", "prepare_seconds", "load_seconds", "dropped", "outcome",
            "reason", "ended_at",
        ]  # fmt: skip
        read_only_fields = fields


class PodStartViewSet(mixins.ListModelMixin, ApiViewSet):
    """Starts of pods with GPUs that are over: the pod was ready for the first time, or was gone before."""

    request: UserApiRequest
    queryset = PodStart.objects.none()
    serializer_class = PodStartOut
    filterset_class = selectors.StartFilter
    lookup_value_converter = "int"
    ordering_fields = ("ended_at", "gpus")
    scope_for = {"GET": "read"}

    def get_queryset(self) -> QuerySet[PodStart]:
        return selectors.visible_to(self.request.user).order_by("-ended_at", "-pk")


class StartPartOut(serializers.Serializer[Part]):
    count = serializers.IntegerField(help_text="Starts that have it.")
    median = serializers.FloatField(allow_null=True, help_text="Seconds.")
    p95 = serializers.FloatField(
        allow_null=True, help_text=f"Seconds; null where fewer than {figures.LEAST_FOR_P95} have it."
    )
    longest = serializers.IntegerField(allow_null=True, help_text="Seconds.")


class StartFiguresOut(serializers.Serializer[Figures]):
    starts = serializers.IntegerField()
    ready = serializers.IntegerField(help_text="Of them, those whose pod was ready.")
    never_ready = serializers.IntegerField()
    without_probe = serializers.IntegerField(help_text="Ready, but without a probe that says so: no load time.")
    restarted = serializers.IntegerField(help_text="Ready after a container had restarted: no load time.")
    dropped = serializers.IntegerField(help_text="Times that clocks contradicted.")
    queue = StartPartOut(help_text="From creation until the pod was placed on a node.")
    prepare = StartPartOut(help_text="Then until its container started: images, volumes, init containers.")
    load = StartPartOut(help_text="Then until it was ready.")


class StartGroupOut(serializers.Serializer[Line]):
    cluster = serializers.UUIDField(source="cluster.pk")
    cluster_name = serializers.CharField(source="cluster.name")
    name = serializers.CharField(allow_blank=True, help_text="Of the group; empty where pods do not tell.")
    figures = StartFiguresOut()


class SlowNodeOut(serializers.Serializer[SlowNode]):
    cluster = serializers.UUIDField(source="cluster.pk")
    cluster_name = serializers.CharField(source="cluster.name")
    node = serializers.IntegerField(allow_null=True, help_text="Its id; null: it is gone.")
    node_name = serializers.CharField(source="line.node")
    starts = serializers.IntegerField(source="line.starts", help_text="That could be compared.")
    load_median = serializers.FloatField(source="line.median", help_text="Seconds.")
    ratio = serializers.FloatField(
        source="line.ratio", help_text="Median of its load times, each by the median of the same image on other nodes."
    )


class StartSummaryOut(serializers.Serializer[Report]):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    days = serializers.IntegerField(source="query.days")
    by = serializers.CharField(source="query.by")
    whole = StartFiguresOut()
    groups = StartGroupOut(source="lines", many=True, help_text=f"The most starts first; {report.MOST_LINES} at most.")
    more_groups = serializers.IntegerField(source="more_lines")
    slow_nodes = SlowNodeOut(source="nodes", many=True, help_text=f"Slowest first; {report.MOST_NODES} at most.")
    nodes_compared = serializers.IntegerField(source="compared")
    reasons = serializers.SerializerMethodField(help_text="Of starts that were never ready.")
    is_cut = serializers.BooleanField(help_text=f"More than {report.MOST_STARTS:,} starts: the latest count.")

    def get_reasons(self, summary: Report) -> list[dict[str, Any]]:
        return [{"outcome": outcome, "reason": reason, "starts": number} for outcome, reason, number in summary.reasons]


class StartSummaryView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(
        operation_id="gpus_starts_summary",
        parameters=[
            CLUSTER,
            OpenApiParameter("days", OpenApiTypes.INT, enum=list(report.DAYS), default=report.DEFAULT_DAYS),
            OpenApiParameter("by", OpenApiTypes.STR, enum=list(report.GROUPS), default=report.DEFAULT_GROUP),
        ],
        responses=StartSummaryOut,
    )
    def get(self, request: UserApiRequest) -> Response:
        """Return how long pods with GPUs took to start, by group, and nodes against the others."""
        parameters = checked_parameters(request, "cluster", "days", "by")
        if parameters["cluster"]:
            parameters["cluster"] = cluster_of(request, parameters["cluster"]).name
        return Response(StartSummaryOut(report.of(request.user, report.parse(parameters))).data)
