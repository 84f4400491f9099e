"""REST of what GPUs did over time: state bands with all that the pages make of them, and single devices' history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from django import forms
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from accounts.permissions import restrict
from common.api import ApiView
from common.clock import now
from common.errors import Invalid
from common.filtering import InstantField
from common.requests import UserApiRequest
from gpus.metrics.buckets import Bucket, Device
from gpus.models import GpuBand
from gpus.reports import ranges, state_bands
from gpus.reports.ranges import History
from gpus.storage import history
from gpus.web.api import CLUSTER, checked_parameters, cluster_of

LONGEST = {history.FINE: timedelta(days=3), history.COARSE: timedelta(days=100)}
"""In one answer, by the seconds of a step."""
MOST_NODES, MOST_ROWS = 50, 20_000
_START = OpenApiParameter(
    "start", OpenApiTypes.STR, description="In place of `from`: an instant, a day, or how long ago: 24h, 7d."
)
_END = OpenApiParameter("end", OpenApiTypes.STR, description="The same, in place of `to`.")
T = TypeVar("T")
_SPAN = ("seconds", "start", "end", "from", "to", "zone")
_FROM = OpenApiParameter("from", OpenApiTypes.STR, description="A time, such as 2026-11-21T08:00Z.")
_TO = OpenApiParameter("to", OpenApiTypes.STR, description="The same; now if it is left out.")
_ZONE = OpenApiParameter(
    "zone", OpenApiTypes.STR, description="IANA time zone of `from` and `to` where they have no offset; else UTC."
)
_SECONDS = OpenApiParameter("seconds", OpenApiTypes.INT, enum=[300, 3600], default=3600, description="Of a step.")


class BandOut(serializers.ModelSerializer[GpuBand]):
    """GPU-seconds of one step by state. Divided by `recorded` they are GPUs on the average; they sum to capacity."""

    cluster_name = serializers.CharField(source="cluster.name")

    class Meta:
        model = GpuBand
        fields = [
            "cluster", "cluster_name", "scope", "name", "seconds", "start", "recorded", "effective", "low", "held",
            "held_unknown", "free", "out", "free_unknown", "joules",
        ]  # fmt: skip


class BandsView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(
        operation_id="gpus_bands",
        parameters=[
            CLUSTER,
            OpenApiParameter("scope", OpenApiTypes.STR, enum=GpuBand.Scope.values, default="cluster"),
            OpenApiParameter("name", OpenApiTypes.STR, description="Of the pool, model, namespace or node."),
            _SECONDS, _START, _END, _FROM, _TO, _ZONE,
        ],
        responses=BandOut(many=True),
    )  # fmt: skip
    def get(self, request: UserApiRequest) -> Response:
        """List the data behind the pages' bands, GPU-hours and energy, by cluster, scope, name and time."""
        query = checked_parameters(request, "cluster", "scope", "name", *_SPAN)
        seconds, start, end = _span(query, ranges.BANDS)
        scope = query["scope"] or str(GpuBand.Scope.CLUSTER)
        if scope not in GpuBand.Scope.values:
            raise ValidationError({"scope": [f"There is no such scope; there are {', '.join(GpuBand.Scope.values)}."]})
        rows = restrict(GpuBand.objects.select_related("cluster"), request.user)
        rows = rows.filter(scope=scope, seconds=seconds, start__gte=start, start__lt=end)
        if query["cluster"]:
            rows = rows.filter(cluster=cluster_of(request, query["cluster"]))
        if query["name"]:
            rows = rows.filter(name=query["name"])
        bands = list(rows.order_by("start", "cluster__name", "name")[: MOST_ROWS + 1])
        if len(bands) > MOST_ROWS:
            raise ValidationError({"start": [f"That is more than {MOST_ROWS:,} rows: ask for less time, or a name."]})
        return Response(BandOut(bands, many=True).data)


class BucketOut(serializers.Serializer[Any]):
    start = serializers.DateTimeField()
    covered = serializers.FloatField(help_text="0-1: share of the step that readings cover.")
    held = serializers.FloatField(help_text="0-1: share of the covered time with a holder.")
    holder = serializers.CharField(allow_blank=True, help_text="namespace/pod, where one held it throughout.")
    values = serializers.DictField(
        child=serializers.FloatField(),
        help_text="By metric, in base units: means of gauges, increases of counters. Absent: not reported.",
    )


class DeviceHistoryOut(serializers.Serializer[Any]):
    uuid = serializers.CharField()
    instance = serializers.CharField(allow_blank=True)
    node_name = serializers.CharField()
    model = serializers.CharField(allow_blank=True)
    steps = BucketOut(many=True)


class DeviceHistoryView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(
        operation_id="gpus_history",
        parameters=[
            OpenApiParameter("cluster", OpenApiTypes.STR, required=True, description="A cluster's id or name."),
            OpenApiParameter("node", OpenApiTypes.STR, required=True, many=True, description="Nodes' names."),
            _SECONDS, _START, _END, _FROM, _TO, _ZONE,
        ],
        responses=DeviceHistoryOut(many=True),
    )  # fmt: skip
    def get(self, request: UserApiRequest) -> Response:
        """Each device of some nodes, in steps of five minutes or an hour."""
        query = checked_parameters(request, "cluster", "node", *_SPAN)
        seconds, start, end = _span(query, ranges.DEVICES)
        names = request.query_params.getlist("node")
        if not query["cluster"] or not names:
            raise ValidationError({"cluster" if not query["cluster"] else "node": ["Say which."]})
        if len(names) > MOST_NODES:
            raise ValidationError({"node": [f"At most {MOST_NODES} at once."]})
        cluster = cluster_of(request, query["cluster"])
        read = history.buckets if seconds == history.FINE else history.hours
        by_device = read(cluster.pk, start, end, nodes=names)
        rows = [_device(device, steps) for device, steps in sorted(by_device.items(), key=lambda pair: pair[0][2::-1])]
        return Response(DeviceHistoryOut(rows, many=True).data)


def _device(device: Device, steps: list[Bucket]) -> dict[str, Any]:
    return {
        **device._asdict(),
        "steps": [
            {
                "start": bucket.start,
                "covered": bucket.covered,
                "held": bucket.held,
                "holder": bucket.holder,
                "values": {str(name): value for name, value in bucket.means.items()},
            }
            for bucket in steps
        ],
    }


def _span(query: dict[str, str], kept: History) -> tuple[int, datetime, datetime]:
    """Seconds of a step, start and end. Raises ValidationError, naming the parameter."""
    if query["seconds"] not in ("", "300", "3600"):
        raise ValidationError({"seconds": ["Write 300 or 3600."]})
    seconds = int(query["seconds"] or history.COARSE)
    if query["from"] or query["to"] or query["zone"]:
        if both := [name for name in ("start", "end") if query[name]]:
            raise ValidationError({name: ["Leave it out where from, to or zone are given."] for name in both})
        start, end = _refusing(kept.instants, {name: query[name] for name in ("from", "to", "zone")})
        if end - start > LONGEST[seconds]:
            reason = f"At most {LONGEST[seconds].days} days at once in steps of {seconds} s."
            raise ValidationError({"from": [reason]})
        return seconds, ranges.floor(start, seconds), ranges.ceiling(end, seconds)
    field, times = InstantField(required=False), {}
    for name, otherwise in (("start", now() - timedelta(days=1)), ("end", now())):
        try:
            times[name] = field.clean(query[name]) or otherwise
        except forms.ValidationError as error:
            raise ValidationError({name: error.messages}) from error
    if not times["start"] < times["end"]:
        raise ValidationError({"start": ["It must be before the end."]})
    if times["end"] - times["start"] > LONGEST[seconds]:
        raise ValidationError({"start": [f"At most {LONGEST[seconds].days} days at once in steps of {seconds} s."]})
    return seconds, times["start"].astimezone(UTC), times["end"].astimezone(UTC)


def _refusing(read: Callable[[Mapping[str, str]], T], params: Mapping[str, str]) -> T:
    """Raises ValidationError, naming the parameter."""
    try:
        return read(params)
    except Invalid as refusal:
        raise ValidationError(refusal.fields) from refusal


class UsageOut(serializers.Serializer[Any]):
    """GPU-hours; `total` is the capacity that was recorded, of a namespace what its pods held."""

    cluster = serializers.UUIDField(source="cluster_id", allow_null=True)
    cluster_name = serializers.CharField(source="cluster", allow_blank=True)
    name = serializers.CharField(allow_blank=True)
    total = serializers.FloatField()
    allocated = serializers.FloatField()
    active = serializers.FloatField()
    effective = serializers.FloatField()
    held_idle = serializers.FloatField(source="held")
    no_telemetry = serializers.FloatField(source="unknown")
    kwh = serializers.FloatField()
    held_idle_cost = serializers.FloatField(source="cost", allow_null=True, help_text="Null: no price is set.")


class MarkOut(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    revision = serializers.CharField(source="name")
    rollout = serializers.UUIDField(source="rollout.pk")
    cluster = serializers.UUIDField(source="rollout.cluster_id")


class ComparisonLineOut(serializers.Serializer[Any]):
    """GPUs on the average of the recorded steps, rounded to a tenth as on the page."""

    state = serializers.CharField()
    gpus = serializers.FloatField()
    gpus_before = serializers.FloatField()
    difference = serializers.FloatField(help_text="Higher or lower than before; no verdict on why.")


class ComparisonOut(serializers.Serializer[Any]):
    start = serializers.DateTimeField(source="window.start")
    end = serializers.DateTimeField(source="window.end")
    recorded_seconds = serializers.ListField(
        child=serializers.FloatField(), help_text="Of the range itself, and of the period before."
    )
    states = ComparisonLineOut(source="lines", many=True, help_text="Empty: one of both is not recorded at all.")


class WholeUsageOut(serializers.Serializer[Any]):
    start = serializers.DateTimeField(source="window.start")
    end = serializers.DateTimeField(source="window.end")
    since = serializers.DateTimeField(allow_null=True, help_text="The first step that is recorded; null: none is.")
    whole = UsageOut()
    parts = UsageOut(many=True)
    rollouts = MarkOut(source="marks", many=True, help_text="That began in the window, at most 40.")
    before = ComparisonOut(
        source="comparison", allow_null=True, help_text="The equally long period before; null unless `compare` asks."
    )


class UsageView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(
        operation_id="gpus_usage",
        parameters=[
            OpenApiParameter("window", OpenApiTypes.STR, enum=list(ranges.BANDS.presets), default="24h"),
            OpenApiParameter("by", OpenApiTypes.STR, enum=[str(part) for part in state_bands.PARTS], default="cluster"),
            CLUSTER, _FROM, _TO, _ZONE,
            OpenApiParameter("compare", OpenApiTypes.STR, enum=[ranges.BEFORE]),
        ],
        responses=WholeUsageOut,
    )  # fmt: skip
    def get(self, request: UserApiRequest) -> Response:
        """The funnel in GPU-hours over a time range: by cluster, pool, model or namespace."""
        query = checked_parameters(request, "by", "cluster", *ranges.NAMES)
        by, known = query["by"] or "cluster", [str(part) for part in state_bands.PARTS]
        if by not in known:
            raise ValidationError({"by": [f"There is no such by; there are {', '.join(known)}."]})
        window = _refusing(ranges.BANDS.parse, query)
        cluster = cluster_of(request, query["cluster"]) if query["cluster"] else None
        return Response(WholeUsageOut(state_bands.over(request.user, window, by, cluster)).data)
