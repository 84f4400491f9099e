"""REST: where a cluster's GPU telemetry comes from. Secrets go in and never come out."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from accounts.permissions import Role, may
from clusters.reports import selectors
from common.api import ApiView, expected_version, with_etag
from common.bodies import Body
from common.requests import UserApiRequest
from gpus.models import TelemetrySource
from gpus.reports import data_quality
from gpus.services import sources


class TelemetryOut(serializers.ModelSerializer[TelemetrySource]):
    has_secret = serializers.SerializerMethodField()
    reads = serializers.SerializerMethodField(help_text="What is read, in words; what `automatic` chose and why.")
    is_current = serializers.BooleanField(help_text="The stored samples say how things are now.")
    generations = serializers.ListField(child=serializers.CharField())
    exporter_versions = serializers.ListField(child=serializers.CharField())
    findings = serializers.ListField(
        child=serializers.ListField(child=serializers.JSONField()), help_text="[code, count, example]"
    )
    reasons = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="[what was asked, why it returned nothing]",
    )
    permissions = serializers.SerializerMethodField()

    class Meta:
        model = TelemetrySource
        fields = [
            "cluster", *sources.FIELDS, "has_secret", "reads", "chosen", "chosen_at", "version", "changed_by",
            "changed_at", "state", "sentence", "since", "is_current", "tried_at", "read_at", "milliseconds", "series",
            "devices", "asked", "unanswered", "reasons", "skew_seconds", "findings", "generations", "honor_labels",
            "has_profiling", "exporter_versions", "ticks", "failures", "dropped", "permissions",
        ]  # fmt: skip

    def get_has_secret(self, source: TelemetrySource) -> bool:
        return bool(source.secret)

    def get_reads(self, source: TelemetrySource) -> str:
        return data_quality.reads(source)

    def get_permissions(self, source: TelemetrySource) -> dict[str, bool]:
        return {"update": may(self.context["request"].user, Role.ADMIN, source.cluster.scopes)}


class TelemetryIn(Body[Any]):
    """All of it: what is left out is as it is by default, but for the secret."""

    is_enabled = serializers.BooleanField(default=True)
    kind = serializers.ChoiceField(choices=TelemetrySource.Kind.choices)
    namespace = serializers.CharField(default="", allow_blank=True, max_length=63, help_text="Of exporters' pods.")
    url = serializers.CharField(default="", allow_blank=True, max_length=500)
    service = serializers.CharField(default="", allow_blank=True, max_length=200, help_text="namespace/name:port")
    selector = serializers.CharField(default="", allow_blank=True, max_length=200)
    auth = serializers.ChoiceField(choices=TelemetrySource.Auth.choices, default="none")
    username = serializers.CharField(default="", allow_blank=True, max_length=200)
    certificate = serializers.CharField(default="", allow_blank=True, max_length=131_072, help_text="PEM.")
    ca = serializers.CharField(default="", allow_blank=True, max_length=131_072, help_text="PEM.")
    secret = serializers.CharField(
        required=False,
        allow_blank=True,
        write_only=True,
        trim_whitespace=False,
        max_length=sources.LONGEST_SECRET,
        help_text="Token, password or key. Left out: the stored one stays; empty: it is forgotten.",
    )


class TrustPoint(serializers.Serializer[Any]):
    severity = serializers.ChoiceField(choices=["fail", "warn", "unknown", "ok"])
    title = serializers.CharField()
    text = serializers.CharField(allow_blank=True)


class TelemetryVerdict(serializers.Serializer[Any]):
    state = serializers.ChoiceField(choices=TelemetrySource.State.choices)
    sentence = serializers.CharField(allow_blank=True)
    devices = serializers.IntegerField()
    series = serializers.IntegerField()
    asked = serializers.IntegerField(help_text="Exporters, or queries.")
    unanswered = serializers.IntegerField(help_text="Of those, how many returned nothing.")
    reads = serializers.CharField(help_text="What was read, in words; what `automatic` chose and why.")
    points = TrustPoint(many=True, help_text="What there is to know of it, the worst first.")


class _OfCluster(ApiView):
    request: UserApiRequest

    def source(self) -> TelemetrySource:
        visible = selectors.clusters_visible_to(self.request.user)
        return sources.of_cluster(get_object_or_404(visible, pk=self.kwargs["cluster_pk"]))

    def sent(self) -> dict[str, Any]:
        form = TelemetryIn(data=self.request.data)
        form.is_valid(raise_exception=True)
        return dict(form.validated_data)


class Telemetry(_OfCluster):
    """GPU telemetry source of one cluster, and the result of its last reading."""

    scope_for = {"GET": "read", "PUT": "admin"}

    def _answer(self, source: TelemetrySource) -> Response:
        return with_etag(Response(TelemetryOut(source, context={"request": self.request}).data), source)

    @extend_schema(operation_id="clusters_telemetry_retrieve", responses=TelemetryOut)
    def get(self, request: UserApiRequest, cluster_pk: UUID) -> Response:
        return self._answer(self.source())

    @extend_schema(operation_id="clusters_telemetry_update", request=TelemetryIn, responses=TelemetryOut)
    def put(self, request: UserApiRequest, cluster_pk: UUID) -> Response:
        """Set it up again. It is read at once; nothing of the source before is stored any more."""
        source = self.source()
        sources.may_change(request.user, source.cluster)
        version = expected_version(request, source)
        sources.update(source, by=request.user, version=version, **self.sent())
        return self._answer(source)


class TelemetryTest(_OfCluster):
    scope_for = {"POST": "admin"}
    once_only = False

    @extend_schema(operation_id="clusters_telemetry_test", request=TelemetryIn, responses=TelemetryVerdict)
    def post(self, request: UserApiRequest, cluster_pk: UUID) -> Response:
        """Read it once as it would be set up so. Stores nothing; the stored secret goes only to its own host."""
        source = self.source()
        sources.may_change(request.user, source.cluster)
        return Response(TelemetryVerdict(sources.probe(sources.filled(source, **self.sent()), by=request.user)).data)
