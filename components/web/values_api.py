"""REST: the values of components that hold for one cluster."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.permissions import Role, may
from clusters.models import Cluster
from clusters.reports import selectors
from common.api import ApiViewSet, expected_version, with_etag
from common.bodies import Body, without_body
from common.errors import Invalid
from common.requests import UserApiRequest
from components.catalog import catalog
from components.cluster_values import overrides
from components.cluster_values.overrides import ComponentInCluster
from components.models import ClusterValues


class LayerOut(serializers.Serializer[Any]):
    path = serializers.CharField()
    value = serializers.JSONField(help_text="Secrets are shown as references.")
    origin = serializers.CharField(help_text="catalog, `preset <name>`, profile or cluster.")
    replaces = serializers.CharField(allow_blank=True, help_text="The origin of what the cluster's value replaces.")


class ValuesFindingOut(serializers.Serializer[Any]):
    path = serializers.CharField(allow_blank=True)
    severity = serializers.ChoiceField(("block", "warn"))
    code = serializers.CharField()
    message = serializers.CharField()
    is_own = serializers.BooleanField(help_text="Because of the cluster's values; such a one that blocks is refused.")


class ValuesBrief(serializers.ModelSerializer[ClusterValues]):
    cluster = serializers.UUIDField(source="cluster_id")
    values = serializers.SerializerMethodField()

    class Meta:
        model = ClusterValues
        fields = ["cluster", "component", "values", "version", "changed_by", "changed_at"]

    @extend_schema_field(serializers.DictField(child=serializers.JSONField()))
    def get_values(self, row: ClusterValues) -> Any:
        return overrides.hidden(row.values)


class ValuesOut(serializers.Serializer[Any]):
    cluster = serializers.UUIDField()
    component = serializers.CharField()
    values = serializers.DictField(child=serializers.JSONField(), help_text="This cluster's own.")
    version = serializers.IntegerField(help_text="0: it has none yet.")
    changed_by = serializers.CharField(allow_blank=True)
    changed_at = serializers.DateTimeField(allow_null=True)
    revision = serializers.CharField(allow_blank=True, help_text="Of the profile that is the layer below here.")
    chart_version = serializers.CharField()
    is_checked = serializers.BooleanField(help_text="The chart is stored: its keys and its schema were asked.")
    layers = LayerOut(many=True)
    findings = ValuesFindingOut(many=True)
    permissions = serializers.DictField(child=serializers.BooleanField())


class ValuesIn(Body[Any]):
    values = serializers.DictField(
        child=serializers.JSONField(allow_null=True), help_text="All of them: what is left out is gone."
    )


_REVISION = OpenApiParameter(
    "revision", int, description="The layer below: a revision that wants the component; else a target of the cluster."
)


class ComponentValues(mixins.ListModelMixin, ApiViewSet):
    """Values of components that hold for one cluster. Saving changes nothing in it: the next plan carries them out."""

    request: UserApiRequest
    scope_for = {"GET": "read", "PUT": "plan", "POST": "plan"}
    serializer_class = ValuesBrief
    queryset = ClusterValues.objects.none()
    ordering_fields = ("component", "changed_at")
    lookup_field = "name"
    lookup_value_converter = "slug"

    def _cluster(self) -> Cluster:
        return get_object_or_404(selectors.clusters_visible_to(self.request.user), pk=self.kwargs["cluster_pk"])

    def _standing(self, name: str) -> ComponentInCluster:
        number = self.request.query_params.get("revision", "")
        if number and not (number.isascii() and number.isdigit() and len(number) < 10):
            raise Invalid("revision is the number of a revision's id.", fields={"revision": ["A whole number."]})
        return overrides.component_in_cluster(self._cluster(), catalog.get(name), int(number) if number else None)

    def _answer(self, here: ComponentInCluster) -> Response:
        own, row = here.own, here.row
        data = {
            "cluster": here.cluster.pk,
            "component": here.component.name,
            "values": overrides.hidden(own),
            "version": here.version_of_row,
            "changed_by": row.changed_by if row else "",
            "changed_at": row.changed_at if row else None,
            "revision": str(here.wish.revision) if here.wish else "",
            "chart_version": here.version,
            "is_checked": here.chart is not None,
            "layers": overrides.lines(here, own),
            "findings": overrides.judge(here, own),
            "permissions": {"update": may(self.request.user, Role.OPERATOR, here.cluster.scopes)},
        }
        return with_etag(Response(self.get_serializer(data).data), row or _none(here))

    def get_queryset(self) -> QuerySet[ClusterValues]:
        if getattr(self, "swagger_fake_view", False):
            return ClusterValues.objects.none()
        return ClusterValues.objects.filter(cluster=self._cluster()).order_by("component")

    def get_serializer_class(self) -> type[Any]:
        return ValuesBrief if self.action == "list" else ValuesOut

    @extend_schema(responses=ValuesOut, parameters=[_REVISION])
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One component's: with every layer, the origin of each key, and what is wrong."""
        return self._answer(self._standing(kwargs["name"]))

    @extend_schema(request=ValuesIn, responses=ValuesOut, parameters=[_REVISION])
    def update(self, request: UserApiRequest, cluster_pk: UUID, name: str) -> Response:
        """Replace the cluster's values of it. What the chart's schema refuses is refused here."""
        here = self._standing(name)
        overrides.may_change(request.user, here.cluster, here.component)
        version = expected_version(request, here.row or _none(here))
        body = ValuesIn(data=request.data)
        body.is_valid(raise_exception=True)
        sent: Any = request.data
        given = sent["values"]  # as it came: 1.0 and 1 are two values to a chart
        overrides.save(here, given, by=request.user, version=version)
        return self._answer(self._standing(name))

    @extend_schema(request=None, responses=ValuesOut, parameters=[_REVISION])
    @action(detail=True, methods=["post"], url_path="actions/fetch-chart", url_name="fetch-chart")
    @without_body
    def fetch_chart(self, request: UserApiRequest, cluster_pk: UUID, name: str) -> Response:
        """Fetch the chart of this version now, so that keys and schema are checked: the first plan would."""
        overrides.fetch_chart(self._standing(name), by=request.user)
        return self._answer(self._standing(name))


def _none(here: ComponentInCluster) -> ClusterValues:
    """Return a stand-in for a row that does not exist yet, for its version."""
    return ClusterValues(cluster=here.cluster, component=here.component.name, version=0)
