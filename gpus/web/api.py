"""REST twins of the pages: the same selectors, the same words."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import django_filters
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import QuerySet
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import mixins, serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from clusters.models import Cluster
from clusters.reports.selectors import clusters_visible_to
from common.api import ApiView, ApiViewSet
from common.clock import now
from common.filtering import ClusterReferenceFilter
from common.requests import UserApiRequest
from gpus.metrics.states import Tally
from gpus.models import GpuDevice, TelemetrySource
from gpus.reports import data_quality, idle_gpus, selectors
from gpus.web import context
from gpus.web.source_api import TrustPoint

MOST_IDLE = 500
"""Pods in one answer; the file has all of them."""
CLUSTER = OpenApiParameter("cluster", OpenApiTypes.STR, description="A cluster's id or name.")


class TallyOut(serializers.Serializer[Any]):
    """The states `effective`, `low`, `held_idle`, `free`, `out` and `no_telemetry` sum to `total`."""

    total = serializers.IntegerField(help_text="GPUs that the nodes offer; a MIG instance counts as one.")
    allocated = serializers.IntegerField(help_text="Held by pods, according to the API server.")
    active = serializers.IntegerField(help_text="Held, and busy or engine activity is 5 % or more.")
    effective = serializers.IntegerField(help_text="SM activity (else engine, else busy) is 50 % or more.")
    low = serializers.IntegerField(help_text="Active and not effective.")
    held_idle = serializers.IntegerField(help_text="Held, and busy and engine activity are both below 5 %.")
    free = serializers.IntegerField()
    out = serializers.IntegerField(help_text="Free, on nodes that are cordoned or not ready.")
    no_telemetry = serializers.IntegerField(help_text="Held or not: what they do is unknown. Never counted as zero.")


class ClusterTallyOut(TallyOut):
    cluster = serializers.UUIDField()
    cluster_name = serializers.CharField()
    read_at = serializers.DateTimeField(allow_null=True, help_text="When telemetry was last read; null: never.")
    trust = TrustPoint(many=True, help_text="The worst first.")


class ModelTallyOut(TallyOut):
    model = serializers.CharField()


class GpuSummaryOut(TallyOut):
    clusters = ClusterTallyOut(many=True)
    models = ModelTallyOut(many=True)


class IdlePodOut(serializers.Serializer[Any]):
    cluster = serializers.UUIDField()
    cluster_name = serializers.CharField()
    node = serializers.IntegerField(allow_null=True)
    node_name = serializers.CharField()
    namespace = serializers.CharField()
    pod = serializers.CharField()
    owner = serializers.CharField(allow_blank=True)
    gpus = serializers.IntegerField(help_text="MIG instances count as one each.")
    share = serializers.FloatField(help_text="In whole GPUs: an instance its part, a shared GPU divided by its pods.")
    idle_since = serializers.DateTimeField(help_text="All of its GPUs have done nothing at every reading since.")
    idle_seconds = serializers.IntegerField(help_text="From then to the last reading.")
    is_young = serializers.BooleanField(help_text="Idle for less than SETPOINT_GPU_IDLE_MINUTES: it may be loading.")
    gpu_hours = serializers.FloatField(help_text="Whole GPUs' idle time since then, as far as readings cover it.")
    cost = serializers.FloatField(allow_null=True, help_text="GPU-hours times the model's price; null: it has none.")
    currency = serializers.CharField(allow_blank=True)
    power = serializers.FloatField(allow_null=True, help_text="Watts of all of them; null: not reported.")
    has_xid = serializers.BooleanField()
    started_at = serializers.DateTimeField(allow_null=True, help_text="The pod's start, not that of its idleness.")


class HeldIdleOut(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Pods; `pods` has at most 500 of them, the most GPU-hours first.")
    gpus = serializers.IntegerField(help_text="Of the funnel, also of pods that use some of theirs.")
    gpu_hours = serializers.FloatField(help_text="Of those that are not young.")
    cost = serializers.FloatField(allow_null=True)
    currency = serializers.CharField()
    pods = IdlePodOut(many=True)


class GpuOut(serializers.ModelSerializer[GpuDevice]):
    cluster_name = serializers.CharField(source="cluster.name")
    values = serializers.DictField(
        child=serializers.FloatField(), help_text="By metric, in base units (docs/gpu.md). Absent: not reported."
    )
    holders = serializers.SerializerMethodField()
    xids = serializers.SerializerMethodField()

    class Meta:
        model = GpuDevice
        fields = [
            "id", "cluster", "cluster_name", "node", "node_name", "uuid", "instance", "index", "model", "profile",
            "driver", "values", "holders", "held_since", "xids", "is_suspect", "seen_at", "missing_since",
        ]  # fmt: skip

    @extend_schema_field({"type": "array", "items": {"type": "string"}})
    def get_holders(self, device: GpuDevice) -> list[str]:
        return ["/".join(holder) for holder in device.holders]

    @extend_schema_field({"type": "array", "items": {"type": "integer"}})
    def get_xids(self, device: GpuDevice) -> list[int]:
        return [code for code, *_ in device.xids]


class GpuFilter(django_filters.FilterSet):  # type: ignore[misc]
    cluster = ClusterReferenceFilter()
    node_name = django_filters.CharFilter(max_length=253, help_text="Whole name.")
    model = django_filters.CharFilter(lookup_expr="icontains", max_length=120)
    missing = django_filters.BooleanFilter(
        field_name="missing_since", lookup_expr="isnull", exclude=True, help_text="Lacking in the last reading."
    )

    class Meta:
        model = GpuDevice
        fields: list[str] = []


class GpuViewSet(mixins.ListModelMixin, ApiViewSet):
    """GPUs that pods can hold, each with its latest sample, MIG instances in place of the GPU that is split."""

    request: UserApiRequest
    queryset = GpuDevice.objects.none()
    serializer_class = GpuOut
    filterset_class = GpuFilter
    lookup_value_converter = "int"
    ordering_fields = ("node_name", "seen_at")
    scope_for = {"GET": "read"}

    def get_queryset(self) -> QuerySet[GpuDevice]:
        return selectors.devices(self.request.user)


class _Bare(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    def refuse_filters(self) -> None:
        """Raises ValidationError: a filter that is ignored would widen what a program acts on."""
        if wrong := {name: ["There is no such filter; there are none."] for name in self.request.query_params}:
            raise ValidationError(wrong)


class SummaryView(_Bare):
    @extend_schema(operation_id="gpus_summary", responses=GpuSummaryOut)
    def get(self, request: UserApiRequest) -> Response:
        """GPUs from total to effective: of the fleet, of each cluster and of each model, as of the last readings."""
        self.refuse_filters()
        sources = {source.cluster_id: source for source in selectors.sources(request.user)}
        funnel = context.funnel(
            request.user, sources, {visible.pk: visible for visible in clusters_visible_to(request.user)}
        )
        meetings = selectors.meetings(request.user, sources.values())
        clusters = [
            _figures(row["tally"])
            | {
                "cluster": row["cluster"].pk,
                "cluster_name": row["cluster"].name,
                "read_at": row["source"].read_at if row["source"] else None,
                "trust": data_quality.points(row["source"], row["tally"], meetings.get(row["cluster"].pk)),
            }
            for row in funnel["clusters"]
        ]
        models = [_figures(tally) | {"model": model} for model, tally in funnel["models"]]
        whole = _figures(funnel["tally"]) | {"clusters": clusters, "models": models}
        return Response(GpuSummaryOut(whole).data)


class HeldIdleView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(operation_id="gpus_held_idle", parameters=[CLUSTER], responses=HeldIdleOut)
    def get(self, request: UserApiRequest) -> Response:
        """Pods that hold GPUs which do nothing now, since when, and what that has come to."""
        named = checked_parameters(request, "cluster")["cluster"]
        cluster, sources = cluster_of(request, named) if named else None, list(selectors.sources(request.user))
        idle = _held_idle(request, sources, cluster)
        gpus = sum(group.tally.held_idle for group in selectors.groups(request.user, sources, cluster))
        whole = idle_gpus.together(idle)
        figures = {"gpu_hours": round(whole.gpu_hours, 4), "cost": whole.cost, "currency": whole.currency}
        rows = [idle_gpus.record(row) for row in idle[:MOST_IDLE]]
        return Response(HeldIdleOut({"count": len(idle), "gpus": gpus, "pods": rows, **figures}).data)


class HeldIdleExportView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(
        operation_id="gpus_held_idle_export",
        parameters=[CLUSTER, OpenApiParameter("as", OpenApiTypes.STR, enum=["csv", "json"], default="csv")],
        responses={(200, "text/csv"): OpenApiTypes.STR, (200, "application/json"): IdlePodOut(many=True)},
    )
    def get(self, request: UserApiRequest) -> HttpResponseBase:
        """All of them as a file. Cells that begin like a formula get an apostrophe."""
        query = checked_parameters(request, "as", "cluster")
        form = query["as"] or "csv"
        if form not in ("csv", "json"):
            raise ValidationError({"as": [f"Write csv or json, not {form[:40]!r}."]})
        cluster = cluster_of(request, query["cluster"]) if query["cluster"] else None
        idle = _held_idle(request, selectors.sources(request.user), cluster)
        if form == "json":
            answer = HttpResponse(
                json.dumps([idle_gpus.record(row) for row in idle], cls=DjangoJSONEncoder), "application/json"
            )
        else:
            answer = HttpResponse(idle_gpus.as_csv(idle), "text/csv; charset=utf-8")
        answer["Content-Disposition"] = f'attachment; filename="setpoint-held-idle-{now():%Y-%m-%dT%H%M%SZ}.{form}"'
        return answer


def _held_idle(
    request: UserApiRequest, sources: Iterable[TelemetrySource], of: Cluster | None
) -> list[idle_gpus.IdlePod]:
    clusters = {cluster.pk: cluster for cluster in clusters_visible_to(request.user)}
    return idle_gpus.idle(request.user, sources, clusters, of=of)


def checked_parameters(request: UserApiRequest, *names: str) -> dict[str, str]:
    """Raises ValidationError for a parameter that there is not: ignored, it would widen what a program acts on."""
    known = ", ".join(names)
    if wrong := {name: [f"There is no such filter; there are {known}."] for name in {*request.query_params} - {*names}}:
        raise ValidationError(wrong)
    return {name: request.query_params.get(name, "").strip() for name in names}


def _figures(tally: Tally) -> dict[str, Any]:
    return {str(name): getattr(tally, str(name)) for name in TallyOut().fields}


def cluster_of(request: UserApiRequest, text: str) -> Cluster:
    """Raises ValidationError where there is none that the person may see."""
    rows = clusters_visible_to(request.user)
    try:
        row = rows.filter(pk=UUID(text)).first()
    except ValueError:
        row = rows.filter(name=text).first()
    if row is None:
        raise ValidationError({"cluster": ["There is no such cluster."]})
    return row
