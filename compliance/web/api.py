"""REST over the same selectors and services as the pages: views translate, and nothing else."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from clusters.models import Cluster, Node
from common import hooks
from common.api import ApiView, ApiViewSet, accepted, form_of_file
from common.requests import UserApiRequest
from compliance import tasks
from compliance.models import Assignment, Outlier, SettingChange, SettingState
from compliance.reports import exports, filters, pages, selectors, shares
from compliance.services import assignments
from compliance.web import serializers

_ROWS = {"type": "array", "items": {"type": "object", "additionalProperties": True}}
"""A file's rows; their names are the columns of the CSV."""
_AS = OpenApiParameter("as", OpenApiTypes.STR, enum=["csv", "json"], default="csv", description="Of the file.")
_WHERE = [
    OpenApiParameter("cluster", OpenApiTypes.STR, description="A cluster's name."),
    OpenApiParameter("environment", OpenApiTypes.STR, enum=Cluster.Environment.values),
]


class _Exported(mixins.ListModelMixin, ApiViewSet):
    """A list that can be had as a file, under the same filters."""

    request: UserApiRequest
    scope_for = {"GET": "read"}
    lookup_value_converter = "int"
    kind: str

    @property
    def also_accepts(self) -> tuple[str, ...]:
        return ("as",) if self.action == "export" else ()

    @extend_schema(parameters=[_AS], responses={(200, "text/csv"): OpenApiTypes.STR, (200, "application/json"): _ROWS})
    @action(detail=False, methods=["get"], url_path="export", pagination_class=None)
    def export(self, request: UserApiRequest) -> HttpResponseBase:
        """The whole list as a file, streamed by key. Cells that begin like a formula get an apostrophe."""
        form = form_of_file(request)
        answer: StreamingHttpResponse = exports.answer(self.kind, self.filter_queryset(self.get_queryset()), form)
        return answer


class NodeComplianceViewSet(_Exported):
    """State of each present node: compliant, drifted, pending or unknown; unassigned if no plan ever applied to it."""

    queryset = Node.objects.none()
    serializer_class = serializers.NodeComplianceOut
    filterset_class = filters.NodeFilter
    ordering_fields = ("name",)
    kind = "nodes"

    def get_queryset(self) -> QuerySet[Node]:
        return selectors.nodes(self.request.user)


class SettingStateViewSet(_Exported):
    """Every assigned setting of every present node: desired, written, effective, original, and who won."""

    queryset = SettingState.objects.none()
    serializer_class = serializers.SettingStateOut
    filterset_class = filters.SettingFilter
    ordering_fields = ("key", "since")
    kind = "settings"

    def get_queryset(self) -> QuerySet[SettingState]:
        return selectors.settings_of(self.request.user).order_by("key", "node_id")

    def counted(self, rows: QuerySet[SettingState]) -> int:
        """Return the number of rows, for `common.paging`."""
        node_shares = shares.by_node(self.request.user, self.request.query_params)
        return sum(
            share.settings for share in shares.in_states(node_shares, self.request.query_params.getlist("state"))
        )


class SettingChangeViewSet(_Exported):
    """History: what settings became, a row only when something changed. Follow it with `?start=<last id>`."""

    queryset = SettingChange.objects.none()
    serializer_class = serializers.SettingChangeOut
    filterset_class = filters.ChangeFilter
    ordering_fields = ("at",)
    kind = "changes"

    def get_queryset(self) -> QuerySet[SettingChange]:
        return selectors.changes(self.request.user)


class OutlierViewSet(_Exported):
    """Nodes that answer something else than nine of ten of their peers, asked for or not; looked for every minute."""

    queryset = Outlier.objects.none()
    serializer_class = serializers.OutlierOut
    filterset_class = filters.OutlierFilter
    ordering_fields = ("count", "key", "since")
    kind = "outliers"

    def get_queryset(self) -> QuerySet[Outlier]:
        return selectors.outliers(self.request.user)


class AssignmentViewSet(mixins.ListModelMixin, ApiViewSet):
    """Target revision of each pool, and whether its agents repair drift (`enforce`) or only report it."""

    request: UserApiRequest
    queryset = Assignment.objects.none()
    serializer_class = serializers.AssignmentOut
    filterset_class = filters.AssignmentFilter
    lookup_value_converter = "int"
    ordering_fields = ("set_at",)
    scope_for = {"GET": "read", "observe": "apply"}

    def get_queryset(self) -> QuerySet[Assignment]:
        return selectors.assignments(self.request.user)

    def get_serializer_context(self) -> dict[str, Any]:
        context = dict(super().get_serializer_context())
        if self.action == "list":  # one question for a whole page
            context["live"] = hooks.rollouts_of_pools(list(self.get_queryset().values_list("pool_id", flat=True)))
        return context

    @extend_schema(request=serializers.ObserveIn, responses={202: serializers.AssignmentOut})
    @action(detail=True, methods=["post"], url_path="actions/observe")
    def observe(self, request: UserApiRequest, pk: object) -> Response:
        """Stop repairing drift. This only weakens and needs no plan; to repair again takes one with `enforce`."""
        row = self.get_object()
        form = serializers.ObserveIn(data=request.data)
        form.is_valid(raise_exception=True)
        row = assignments.weaken(row, by=request.user, reason=form.validated_data["reason"])
        tasks.soften_soon()
        return accepted(self.get_serializer(row).data, f"/api/v1/compliance/assignments/{row.pk}")


class _Counted(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    def checked_filters(self) -> dict[str, str]:
        """Raises ValidationError for what is no filter here."""
        params = self.request.query_params
        wrong = {name: ["There is no such filter; there are cluster, environment."] for name in params}
        for name in ("cluster", "environment"):
            wrong.pop(name, None)
        if params.get("environment", "development") not in Cluster.Environment.values:
            wrong["environment"] = [f"Write one of {', '.join(Cluster.Environment.values)}."]
        if wrong:
            raise ValidationError(wrong)
        return {name: params.get(name, "") for name in ("cluster", "environment")}


_EXAMPLE = {
    "counts": {"compliant": 40, "drifted": 1, "pending": 2, "unknown": 0, "unassigned": 5},
    "weakens_security": {"settings": 2, "nodes": 2, "wanted": 1, "observed": 1},
    "clusters": [
        {
            "cluster": "6f1f2c1e-8f2b-4c0e-9a55-2b1f4b6f0b11",
            "cluster_name": "atlas-training",
            "counts": {"compliant": 40, "drifted": 1, "pending": 2, "unknown": 0, "unassigned": 5},
            "weakens_security": {"settings": 2, "nodes": 2, "wanted": 1, "observed": 1},
        }
    ],
    "pools": [],
}


class SummaryView(_Counted):
    @extend_schema(
        operation_id="compliance_summary",
        parameters=_WHERE,
        responses=serializers.SummaryOut,
        examples=[OpenApiExample("One cluster with one drifted node", _EXAMPLE, response_only=True)],
    )
    def get(self, request: UserApiRequest) -> Response:
        """Nodes by state: of the fleet, of each cluster, and of each assigned pool. The counts always sum."""
        return Response(serializers.SummaryOut(pages.summary(request.user, self.checked_filters())).data)


class MatrixView(_Counted):
    @extend_schema(operation_id="compliance_matrix", parameters=_WHERE, responses=serializers.MatrixOut)
    def get(self, request: UserApiRequest) -> Response:
        """Every key of every pool's target against its nodes; each cell's counts sum to the pool's nodes."""
        return Response(serializers.MatrixOut(pages.matrix(request.user, self.checked_filters())).data)
