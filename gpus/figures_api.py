"""REST twins of the pages: the same selectors, the same words."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from clusters.selectors import clusters_visible_to
from common.api import ApiView, ApiViewSet
from common.filtering import ClusterFilter
from common.requests import UserApiRequest
from gpus import pages, selectors, trust
from gpus.models import GpuDevice
from gpus.selectors import IdlePod
from gpus.source_api import TrustPoint
from gpus.states import Tally


class TallyOut(serializers.Serializer[Any]):
    """The states `effective`, `low`, `held_idle`, `free`, `out` and `no_telemetry` sum to `total`."""

    total = serializers.IntegerField(help_text="GPUs that the nodes offer.")
    allocated = serializers.IntegerField(help_text="Held by pods, by the API server's word.")
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
    node = serializers.IntegerField()
    node_name = serializers.CharField()
    namespace = serializers.CharField()
    pod = serializers.CharField()
    owner = serializers.CharField(allow_blank=True)
    gpus = serializers.IntegerField()
    power = serializers.FloatField(allow_null=True, help_text="Watts of all of them; null: not reported.")
    has_xid = serializers.BooleanField()
    started_at = serializers.DateTimeField(allow_null=True, help_text="The pod's start, not that of its idleness.")


class HeldIdleOut(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Pods; `pods` has at most 500 of them, the most GPUs first.")
    gpus = serializers.IntegerField()
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
        return ["/".join(one) for one in device.holders]

    @extend_schema_field({"type": "array", "items": {"type": "integer"}})
    def get_xids(self, device: GpuDevice) -> list[int]:
        return [code for code, *_ in device.xids]


class GpuFilter(django_filters.FilterSet):  # type: ignore[misc]
    cluster = ClusterFilter()
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
        found = pages.fleet(request.user)
        clusters = [
            _figures(row["tally"])
            | {
                "cluster": row["cluster"].pk,
                "cluster_name": row["cluster"].name,
                "read_at": row["source"].read_at if row["source"] else None,
                "trust": trust.points(row["source"], row["tally"]),
            }
            for row in found["clusters"]
        ]
        models = [_figures(tally) | {"model": model} for model, tally in found["models"]]
        whole = _figures(found["tally"]) | {"clusters": clusters, "models": models}
        return Response(GpuSummaryOut(whole).data)


class HeldIdleView(_Bare):
    @extend_schema(operation_id="gpus_held_idle", responses=HeldIdleOut)
    def get(self, request: UserApiRequest) -> Response:
        """Pods that hold GPUs which do nothing now."""
        self.refuse_filters()
        clusters = {cluster.pk: cluster for cluster in clusters_visible_to(request.user)}
        found = selectors.nodes(request.user, selectors.sources(request.user))
        idle = selectors.held_idle(request.user, found, clusters)
        gpus = selectors.total(found).held_idle
        rows = [_idle(row) for row in idle[: selectors.MOST_NAMES]]
        return Response(HeldIdleOut({"count": len(idle), "gpus": gpus, "pods": rows}).data)


def _figures(tally: Tally) -> dict[str, Any]:
    return {str(name): getattr(tally, str(name)) for name in TallyOut().fields}


def _idle(row: IdlePod) -> dict[str, Any]:
    return {
        "cluster": row.node.cluster_id,
        "cluster_name": row.cluster.name if row.cluster else "",
        "node": row.node.pk,
        "node_name": row.node.name,
        "namespace": row.namespace,
        "pod": row.name,
        "owner": row.owner,
        "gpus": len(row.gpus),
        "power": row.watts,
        "has_xid": row.has_xid,
        "started_at": row.started_at,
    }
