"""REST: how each node keeps pace with its peers, together with its compliance. The twin of the page /gpus/slower/."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import mixins, serializers
from rest_framework.decorators import action

from common.api import ApiViewSet, form_of_file
from common.requests import UserApiRequest
from compliance.models import NodeStanding
from compliance.reports import exports
from gpus.effects import measures
from gpus.models import NodePace
from gpus.peers import comparison, reports

_ROWS = {"type": "array", "items": {"type": "object", "additionalProperties": True}}


class PaceSignalOut(serializers.Serializer[Any]):
    """One signal of one node; each number is a median over the hours that were compared."""

    signal = serializers.ChoiceField(choices=list(comparison.BY_NAME))
    unit = serializers.CharField(help_text="share: 0-1.")
    value = serializers.FloatField(help_text="The node's.")
    usual = serializers.FloatField(help_text="The median of all nodes that did the same work in the same hour.")
    gap = serializers.FloatField(help_text="value ÷ usual - 1 of each hour: -0.12 is 12 % below the usual.")
    bound = serializers.FloatField(help_text="Below it is slower than nodes differ anyway.")
    decides = serializers.BooleanField(help_text="False: shown, and says nothing of slowness by itself.")
    hours = serializers.IntegerField()
    peers = serializers.IntegerField()


class OffSettingOut(serializers.Serializer[Any]):
    key = serializers.CharField()
    state = serializers.ChoiceField(choices=NodeStanding.STATES)
    operator = serializers.CharField()
    desired = serializers.CharField()
    effective = serializers.CharField(allow_null=True)
    since = serializers.DateTimeField()


class NodePaceOut(serializers.ModelSerializer[NodePace]):
    """Both facts of one node. Neither is the other's cause by being true at once."""

    id = serializers.IntegerField(source="node_id", help_text="The node's.")
    node_name = serializers.CharField(source="node.name")
    cluster_name = serializers.CharField(source="cluster.name")
    cell = serializers.ChoiceField(choices=list(reports.CELLS.items()))
    state = serializers.ChoiceField(choices=NodeStanding.STATES, source="shown", help_text="Of its compliance.")
    off_settings = serializers.SerializerMethodField(
        help_text="Settings that are not as its profile wants; empty where on it."
    )
    off_since = serializers.SerializerMethodField(help_text="When its compliance became what it is; null where on it.")
    signals = serializers.SerializerMethodField()
    hours = serializers.IntegerField(help_text="Compared, of the last 24; where nothing was, at work.")
    peers = serializers.IntegerField(help_text="Where nothing was compared, the most that did the same in one hour.")
    reason = serializers.SerializerMethodField(help_text="Why it is not compared; empty where it is.")
    caution = serializers.SerializerMethodField(help_text="What the verdict cannot tell apart; empty: nothing to add.")

    class Meta:
        model = NodePace
        fields = [
            "id", "node_name", "cluster", "cluster_name", "model", "cell", "verdict", "state", "off_settings",
            "off_since", "signal", "gap", "since", "hours", "peers", "in_common", "work", "role", "pod_gpus",
            "reason", "caution", "signals", "until", "looked_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_reason(self, row: reports.JoinedPace) -> str:
        return reports.few(row) if row.verdict == NodePace.Verdict.FEW else ""

    def get_caution(self, row: reports.JoinedPace) -> str:
        return reports.caution(row)

    @extend_schema_field(OffSettingOut(many=True))
    def get_off_settings(self, row: reports.JoinedPace) -> Any:
        node: Any = row.node
        return OffSettingOut(node.off_settings, many=True).data if row.shown in reports.OFF else []

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_off_since(self, row: reports.JoinedPace) -> Any:
        standing = getattr(row.node, "standing", None)
        return standing.since if standing and row.shown in reports.OFF else None

    @extend_schema_field(PaceSignalOut(many=True))
    def get_signals(self, row: reports.JoinedPace) -> Any:
        return [
            reading
            | {
                "unit": "share" if (unit := measures.BY_NAME[reading["signal"]].unit) == "%" else unit,
                "decides": row.in_common in comparison.BY_NAME[reading["signal"]].decides,
            }
            for reading in row.signals
            if reading["signal"] in comparison.BY_NAME
        ]


class PaceViewSet(mixins.ListModelMixin, ApiViewSet):
    """Nodes that are slower than their peers at the same work, and whether they are off their profile as well."""

    request: UserApiRequest
    queryset = NodePace.objects.none()
    serializer_class = NodePaceOut
    filterset_class = reports.PaceFilter
    lookup_value_converter = "int"
    ordering_fields = ("gap", "hours", "peers", "since")
    scope_for = {"GET": "read"}

    @property
    def also_accepts(self) -> tuple[str, ...]:
        return ("as",) if self.action == "export" else ()

    def get_queryset(self) -> QuerySet[Any]:
        return reports.worst_first(reports.whole(self.request.user))

    @extend_schema(
        operation_id="gpus_paces_export",
        parameters=[OpenApiParameter("as", OpenApiTypes.STR, enum=["csv", "json"], default="csv")],
        responses={(200, "text/csv"): OpenApiTypes.STR, (200, "application/json"): _ROWS},
    )
    @action(detail=False, methods=["get"], url_path="export", pagination_class=None)
    def export(self, request: UserApiRequest) -> HttpResponseBase:
        """The whole list as a file, streamed by key. Cells that begin like a formula get an apostrophe."""
        form = form_of_file(request)
        return exports.answer("slower", self.filter_queryset(self.get_queryset()), form, reports.FILE)
