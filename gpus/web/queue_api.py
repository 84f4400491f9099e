"""REST of queues over time: the twin of the page /gpus/queues/."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from common.api import ApiView, ApiViewSet, form_of_file
from common.requests import UserApiRequest
from compliance.reports import exports
from gpus.capacity import queue_report, reclaimed, wait_lists
from gpus.capacity.queue_report import Evictions, Figures, Point, QueueLine, Report
from gpus.capacity.reclaimed import Reclaimed
from gpus.models import WorkloadWait
from gpus.reports import ranges
from gpus.web.api import CLUSTER, checked_parameters, cluster_of

_ROWS = {"type": "array", "items": {"type": "object", "additionalProperties": True}}
_RANGE = ("window", "from", "to", "zone", "compare")
_PARAMETERS = [
    CLUSTER,
    OpenApiParameter("queue", OpenApiTypes.STR, description="The whole name of a ClusterQueue or Queue."),
    OpenApiParameter("window", OpenApiTypes.STR, enum=list(ranges.BANDS.presets), default=ranges.BANDS.default),
    OpenApiParameter("from", OpenApiTypes.STR, description="In place of `window`: a time, such as 2026-11-21T08:00Z."),
    OpenApiParameter("to", OpenApiTypes.STR, description="The same; now if it is left out."),
    OpenApiParameter("zone", OpenApiTypes.STR, description="IANA time zone of times without an offset; else UTC."),
    OpenApiParameter("compare", OpenApiTypes.STR, enum=["before"], description="With the period before, as long."),
]


class WorkloadWaitOut(serializers.ModelSerializer[WorkloadWait]):
    """One wait of a gang; a workload that is evicted waits again, with the next number."""

    cluster_name = serializers.CharField(source="cluster.name")
    outcome = serializers.ChoiceField(
        choices=WorkloadWait.Outcome.choices, allow_blank=True, help_text="Empty: it has not ended."
    )
    waited_seconds = serializers.SerializerMethodField(help_text="Until admitted, gone or last read; null: not known.")

    class Meta:
        model = WorkloadWait
        fields = [
            "id", "cluster", "cluster_name", "system", "kind", "namespace", "name", "uid", "number", "queue",
            "local_queue", "owner_kind", "owner_name", "gpus", "priority", "is_active", "created_at", "queued_at",
            "admitted_at", "running_at", "ended_at", "outcome", "reason", "evictions", "waited_seconds",
        ]  # fmt: skip
        read_only_fields = fields

    def get_waited_seconds(self, row: WorkloadWait) -> int | None:
        return round(row.waited) if row.is_measured else None


class WorkloadWaitViewSet(mixins.ListModelMixin, ApiViewSet):
    """Waits of gangs for GPUs: Kueue's Workloads, Volcano's PodGroups, and pods without a queue."""

    request: UserApiRequest
    queryset = WorkloadWait.objects.none()
    serializer_class = WorkloadWaitOut
    filterset_class = wait_lists.WaitFilter
    lookup_value_converter = "int"
    ordering_fields = ("queued_at", "gpus")
    scope_for = {"GET": "read"}

    @property
    def also_accepts(self) -> tuple[str, ...]:
        return ("as",) if self.action == "export" else ()

    def get_queryset(self) -> QuerySet[WorkloadWait]:
        return wait_lists.visible_to(self.request.user).order_by("-queued_at", "-pk")

    @extend_schema(
        operation_id="gpus_waits_export",
        parameters=[OpenApiParameter("as", OpenApiTypes.STR, enum=["csv", "json"], default="csv")],
        responses={(200, "text/csv"): OpenApiTypes.STR, (200, "application/json"): _ROWS},
    )
    @action(detail=False, methods=["get"], url_path="export", pagination_class=None)
    def export(self, request: UserApiRequest) -> HttpResponseBase:
        """The whole list as a file, streamed by key. Cells that begin like a formula get an apostrophe."""
        form = form_of_file(request)
        return exports.answer("gpu-waits", self.filter_queryset(self.get_queryset()), form, wait_lists.FILE)


class WaitQuantileOut(serializers.Serializer[Any]):
    seconds = serializers.FloatField()
    is_least = serializers.BooleanField(help_text="It is at least so long: too few were admitted to say more.")


class WaitFiguresOut(serializers.Serializer[Figures]):
    """Quantiles of the waits that began in the time; one that is not over counts as at least so long (Kaplan–Meier)."""

    count = serializers.IntegerField()
    admitted = serializers.IntegerField(help_text="Of them, those that were admitted.")
    p50 = WaitQuantileOut(source="median", allow_null=True)
    p90 = WaitQuantileOut(source="ninety", allow_null=True)
    longest = WaitQuantileOut(allow_null=True)


class QueueWaitsOut(serializers.Serializer[QueueLine]):
    cluster = serializers.UUIDField(source="cluster.pk")
    cluster_name = serializers.CharField(source="cluster.name")
    system = serializers.ChoiceField(choices=WorkloadWait.System.choices)
    queue = serializers.CharField(allow_blank=True, help_text="Empty: none, or not known.")
    waits = WaitFiguresOut(source="figures")
    before = WaitFiguresOut(allow_null=True, help_text="Of the period before; null: not compared.")
    waiting = serializers.IntegerField(help_text="Gangs that wait now, whenever they began.")
    waiting_gpus = serializers.IntegerField()
    longest_waiting_seconds = serializers.SerializerMethodField()
    evictions = serializers.IntegerField(help_text="In the time.")
    used = serializers.IntegerField(allow_null=True, help_text="GPUs, by its scheduler's word; null: not told.")
    quota = serializers.IntegerField(allow_null=True, help_text="GPUs; null: without a limit.")

    def get_longest_waiting_seconds(self, line: QueueLine) -> int | None:
        return None if line.longest is None else round(line.longest.total_seconds())


class WaitSizeOut(serializers.Serializer[Any]):
    size = serializers.CharField(source="words")
    waits = WaitFiguresOut(source="figures")
    before = WaitFiguresOut(allow_null=True)


class EvictionsOut(serializers.Serializer[Evictions]):
    cluster_name = serializers.CharField(source="cluster.name")
    system = serializers.ChoiceField(choices=WorkloadWait.System.choices)
    queue = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True, help_text="As the scheduler names it; empty: it does not.")
    count = serializers.IntegerField()
    workloads = serializers.IntegerField()


class QueueStepOut(serializers.Serializer[Point]):
    """GPUs on the average of the step, summed over queues; null: not recorded."""

    start = serializers.DateTimeField()
    used = serializers.FloatField(allow_null=True)
    quota = serializers.FloatField(allow_null=True)
    held_idle = serializers.FloatField(source="idle", allow_null=True)
    waiting_gpus = serializers.FloatField(source="pending", allow_null=True)


class QueuesOut(serializers.Serializer[Report]):
    start = serializers.DateTimeField(source="window.start")
    end = serializers.DateTimeField(source="window.end")
    step_seconds = serializers.SerializerMethodField()
    waits = WaitFiguresOut(source="whole")
    before = WaitFiguresOut(source="whole_before", allow_null=True)
    queues = QueueWaitsOut(source="lines", many=True)
    sizes = WaitSizeOut(many=True)
    evictions = EvictionsOut(many=True)
    steps = QueueStepOut(source="points", many=True)
    unmeasured = serializers.IntegerField(help_text="Waits in no figure, for how long they lasted is not known.")
    is_cut = serializers.BooleanField(help_text=f"More than {queue_report.MOST_WAITS:,} waits: the latest count.")

    def get_step_seconds(self, report: Report) -> int:
        return int(report.window.step.total_seconds())


class QueuesView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(operation_id="gpus_queues", parameters=_PARAMETERS, responses=QueuesOut)
    def get(self, request: UserApiRequest) -> Response:
        """Waits by queue and size, quota against use and held idle over time, and evictions by reason."""
        query = checked_parameters(request, "cluster", "queue", *_RANGE)
        shown = ranges.BANDS.parse(query)
        name = cluster_of(request, query["cluster"]).name if query["cluster"] else ""
        return Response(QueuesOut(queue_report.of(request.user, shown, cluster=name, queue=query["queue"])).data)


class ReclaimGangOut(serializers.Serializer[Any]):
    id = serializers.IntegerField(source="wait.pk", help_text="Of its wait.")
    system = serializers.CharField(source="wait.system")
    queue = serializers.CharField(source="wait.queue", allow_blank=True)
    namespace = serializers.CharField(source="wait.namespace")
    name = serializers.CharField(source="wait.name")
    gpus = serializers.IntegerField(source="answer.gang.gpus")
    priority = serializers.IntegerField(source="answer.gang.priority")
    queued_at = serializers.DateTimeField(source="wait.queued_at")
    starts = serializers.BooleanField(source="answer.starts")
    starts_now = serializers.BooleanField(help_text="Without anything given back, as far as is modeled.")
    model = serializers.CharField(source="answer.model", allow_blank=True, help_text="Of GPU, where it would start.")
    why_not = serializers.CharField(source="answer.why", allow_blank=True)


class ReclaimOut(serializers.Serializer[Reclaimed]):
    cluster = serializers.UUIDField(source="cluster.pk")
    read_at = serializers.DateTimeField(allow_null=True)
    idle_minutes = serializers.IntegerField(help_text="What is held idle for less may be loading, and is not counted.")
    has_telemetry = serializers.SerializerMethodField()
    free = serializers.IntegerField(help_text="GPUs that are free now, on nodes that take pods.")
    freed = serializers.IntegerField(help_text="GPUs held idle on such nodes.")
    gpus_started = serializers.IntegerField()
    gangs = ReclaimGangOut(source="judged", many=True, help_text="In the order in which they are tried.")
    left_out = serializers.IntegerField(help_text=f"Beyond the first {reclaimed.MOST_JUDGED:,}.")
    not_modeled = serializers.CharField()

    def get_has_telemetry(self, answer: Reclaimed) -> bool:
        return answer.idle is not None


class ReclaimView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(
        operation_id="gpus_queues_reclaim",
        parameters=[OpenApiParameter("cluster", OpenApiTypes.STR, required=True, description="Its id or name.")],
        responses=ReclaimOut,
    )
    def get(self, request: UserApiRequest) -> Response:
        """Answer which pending gangs would start if what pods hold idle were free."""
        query = checked_parameters(request, "cluster")
        if not query["cluster"]:
            raise ValidationError({"cluster": ["Say which."]})
        return Response(ReclaimOut(reclaimed.of(request.user, cluster_of(request, query["cluster"]))).data)
