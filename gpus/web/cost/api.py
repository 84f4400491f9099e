"""REST of prices, teams and the rules that map what is held to teams."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.response import Response

from clusters.models import Cluster
from clusters.reports.selectors import clusters_visible_to
from common.api import ApiView, ApiViewSet, created, expected_version, with_etag
from common.bodies import Body, without_body
from common.requests import UserApiRequest
from gpus.models import GpuPrice, Team, TeamRules
from gpus.showback import prices, pricing, rules, teams
from gpus.web.cost.filters import PriceFilter


class GpuPriceOut(serializers.ModelSerializer[GpuPrice]):
    cluster_name = serializers.SerializerMethodField(help_text="Empty: every cluster.")
    currency = serializers.SerializerMethodField()

    class Meta:
        model = GpuPrice
        fields = [
            "id", "kind", "model", "cluster", "cluster_name", "valid_from", "amount", "pue", "currency", "created_at",
            "created_by", "withdrawn_at", "withdrawn_by",
        ]  # fmt: skip

    def get_cluster_name(self, row: GpuPrice) -> str:
        return row.cluster.name if row.cluster else ""

    def get_currency(self, row: GpuPrice) -> str:
        return prices.currency()


class GpuPriceIn(Body[Any]):
    kind = serializers.ChoiceField(choices=GpuPrice.Kind.choices)
    model = serializers.CharField(
        required=False, allow_blank=True, max_length=120, help_text="As nodes are labeled; empty for energy."
    )
    cluster = serializers.PrimaryKeyRelatedField(
        queryset=Cluster.objects.all(), required=False, allow_null=True, help_text="Null: every cluster."
    )
    amount = serializers.DecimalField(
        max_digits=14, decimal_places=pricing.PLACES, help_text="Of a GPU-hour, or of a kWh."
    )
    pue = serializers.DecimalField(max_digits=5, decimal_places=3, required=False)
    valid_from = serializers.DateField(help_text="Its first day, UTC: today or later, or where no price held so far.")


class GpuPriceViewSet(mixins.ListModelMixin, ApiViewSet):
    """Prices of GPU-hours and of energy, each from a day on, with those that are over or withdrawn."""

    request: UserApiRequest
    queryset = GpuPrice.objects.none()
    serializer_class = GpuPriceOut
    filterset_class = PriceFilter
    lookup_value_converter = "int"
    ordering_fields = ("valid_from", "model", "created_at")
    scope_for = {"GET": "read", "POST": "admin"}

    def get_queryset(self) -> QuerySet[GpuPrice]:
        return pricing.visible_to(self.request.user)

    @extend_schema(request=GpuPriceIn, responses={201: GpuPriceOut})
    def create(self, request: UserApiRequest) -> Response:
        """Set a price. What is over keeps its price."""
        pricing.require_change(request.user)
        body = GpuPriceIn(data=request.data)
        body.fields["cluster"].queryset = clusters_visible_to(request.user)  # type: ignore[attr-defined]
        body.is_valid(raise_exception=True)
        row = pricing.set_price(by=request.user, **body.validated_data)
        return created(GpuPriceOut(row).data, f"/api/v1/gpus/prices/{row.pk}")

    @extend_schema(request=None, responses=GpuPriceOut)
    @action(detail=True, methods=["post"], url_path="actions/withdraw")
    @without_body
    def withdraw(self, request: UserApiRequest, pk: int) -> Response:
        """Take back a price whose first day is not over."""
        pricing.require_change(request.user)
        return Response(GpuPriceOut(pricing.withdraw(self.get_object(), by=request.user)).data)


class GpuTeamOut(serializers.ModelSerializer[Team]):
    class Meta:
        model = Team
        fields = ["id", "name", "budget", "version", "changed_at"]


class GpuTeamIn(Body[Any]):
    name = serializers.CharField(max_length=63)
    budget = serializers.DecimalField(
        max_digits=14, decimal_places=2, required=False, allow_null=True, help_text="Of a month; null: none."
    )


class GpuTeamPatch(GpuTeamIn):
    name = serializers.CharField(max_length=63, required=False)


class GpuTeamViewSet(mixins.ListModelMixin, ApiViewSet):
    """Teams with their budgets. What is whose is in the rules."""

    request: UserApiRequest
    queryset = Team.objects.all()
    serializer_class = GpuTeamOut
    lookup_value_converter = "int"
    ordering_fields = ("name", "budget")
    is_versioned = True
    scope_for = {"GET": "read", "POST": "admin", "PATCH": "admin", "DELETE": "admin"}

    @extend_schema(request=GpuTeamIn, responses={201: GpuTeamOut})
    def create(self, request: UserApiRequest) -> Response:
        pricing.require_change(request.user)
        body = GpuTeamIn(data=request.data)
        body.is_valid(raise_exception=True)
        team = teams.add(by=request.user, **body.validated_data)
        return created(GpuTeamOut(team).data, f"/api/v1/gpus/teams/{team.pk}", team)

    @extend_schema(request=GpuTeamPatch, responses=GpuTeamOut)
    def partial_update(self, request: UserApiRequest, pk: int) -> Response:
        pricing.require_change(request.user)
        team = self.get_object()
        version = expected_version(request, team)
        body = GpuTeamPatch(data=request.data)
        body.is_valid(raise_exception=True)
        fields = {"name": team.name, "budget": team.budget} | body.validated_data
        teams.change(team, by=request.user, version=version, **fields)
        return with_etag(Response(GpuTeamOut(team).data), team)

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, pk: int) -> Response:
        """Possible while no rule names it."""
        pricing.require_change(request.user)
        teams.remove(self.get_object(), by=request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)


class TeamRuleOut(serializers.Serializer[Any]):
    by = serializers.ChoiceField(choices=list(rules.WAYS.items()))
    pattern = serializers.CharField(
        help_text="A whole name, or its beginning and *. Of an owner Kind/name, of which the name may be a beginning.",
        max_length=rules.LONGEST,
    )
    team = serializers.CharField(help_text="Its name.", max_length=63)


class TeamRuleIn(TeamRuleOut, Body[Any]):
    pass


class TeamRulesOut(serializers.ModelSerializer[TeamRules]):
    rules = serializers.SerializerMethodField()

    class Meta:
        model = TeamRules
        fields = ["rules", "version", "changed_at"]

    @extend_schema_field(TeamRuleOut(many=True))
    def get_rules(self, row: TeamRules) -> list[dict[str, Any]]:
        names = teams.names()
        return [{**rule, "team": names.get(rule["team"], "")} for rule in row.rules]


class TeamRulesIn(Body[Any]):
    rules = TeamRuleIn(many=True, help_text="All of them, the first match first.")


class TeamRulesView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read", "PUT": "admin"}

    @extend_schema(operation_id="gpus_team_rules", responses=TeamRulesOut)
    def get(self, request: UserApiRequest) -> Response:
        """The rules that say whose GPUs a namespace or a workload holds; what none matches is unassigned."""
        row = teams.current()
        return with_etag(Response(TeamRulesOut(row).data), row)

    @extend_schema(operation_id="gpus_team_rules_replace", request=TeamRulesIn, responses=TeamRulesOut)
    def put(self, request: UserApiRequest) -> Response:
        """Replace all rules. They hold for all time that is kept."""
        pricing.require_change(request.user)
        version = expected_version(request, teams.current())
        row = teams.save(_rows(request), by=request.user, version=version)
        return with_etag(Response(TeamRulesOut(row).data), row)


class TeamPreviewOut(serializers.Serializer[Any]):
    namespace = serializers.CharField(allow_blank=True, help_text="Empty: not known.")
    team = serializers.CharField(allow_blank=True, help_text="By the rules that are sent; empty: unassigned.")
    now_team = serializers.CharField(allow_blank=True, help_text="By the rules that are saved.")
    moves = serializers.BooleanField()
    gpu_hours = serializers.FloatField(help_text="Held in the last 30 days.")


class TeamRulesPreviewView(ApiView):
    request: UserApiRequest
    scope_for = {"POST": "admin"}
    once_only = False

    @extend_schema(
        operation_id="gpus_team_rules_preview", request=TeamRulesIn, responses=TeamPreviewOut(many=True), filters=False
    )
    def post(self, request: UserApiRequest) -> Response:
        """Say where rules send what each namespace held in the last 30 days, the most first. Nothing is saved."""
        pricing.require_change(request.user)
        lines = teams.preview(teams.judge(_rows(request)), by=request.user)
        return Response(TeamPreviewOut(lines, many=True).data)


def _rows(request: UserApiRequest) -> list[dict[str, str]]:
    body = TeamRulesIn(data=request.data)
    body.is_valid(raise_exception=True)
    rows: list[dict[str, str]] = body.validated_data["rules"]
    return rows
