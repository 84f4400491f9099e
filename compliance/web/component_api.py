"""REST API of component states in their clusters. Read only: repairs are made by plans."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import mixins, serializers

from clusters.models import Cluster
from common.api import ApiViewSet
from common.requests import UserApiRequest
from compliance.models import ComponentStanding
from compliance.reports import component_selectors, filters


class FieldDifferenceOut(serializers.Serializer[Any]):
    """One field that is not as approved; an object that is gone, or was to be removed and is there, has no path."""

    kind = serializers.CharField(help_text="Of the object; `Values` and `Chart` for the release itself.")
    api_version = serializers.CharField(allow_blank=True)
    namespace = serializers.CharField(allow_blank=True)
    name = serializers.CharField()
    path = serializers.CharField(allow_blank=True)
    approved = serializers.CharField(allow_null=True, help_text="As text, secrets hidden; null: absent.")
    live = serializers.CharField(allow_null=True)
    who = serializers.CharField(allow_blank=True, help_text="The field manager that holds it now.")
    at = serializers.CharField(allow_blank=True)
    note = serializers.CharField(allow_blank=True)


class HelmRevisionOut(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    status = serializers.CharField()
    version = serializers.CharField()
    at = serializers.CharField()
    is_ours = serializers.BooleanField(help_text="Whether Setpoint made it.")
    description = serializers.CharField(allow_blank=True)


class ComponentStandingOut(serializers.ModelSerializer[ComponentStanding]):
    cluster_name = serializers.CharField(source="cluster.name")
    pool_name = serializers.CharField(source="pool.name", default=None, allow_null=True)
    target = serializers.CharField(source="revision", default=None, allow_null=True)
    state = serializers.ChoiceField(choices=ComponentStanding.State.choices, source="shown")
    sentence = serializers.SerializerMethodField(help_text="Why it is so; empty when compliant.")
    differences = serializers.SerializerMethodField(help_text="The worst first, at most 60; `total` counts all.")
    history = serializers.SerializerMethodField(help_text="helm's newest ten revisions.")

    class Meta:
        model = ComponentStanding
        fields = [
            "id", "cluster", "cluster_name", "kind", "name", "pool", "pool_name", "target", "state", "sentence",
            "since", "checked_at", "release", "namespace", "installed", "assigned", "number", "is_ready", "missing",
            "total", "differences", "history", "unwatched",
        ]  # fmt: skip
        read_only_fields = fields

    def get_sentence(self, row: component_selectors.ShownComponent) -> str:
        return component_selectors.why(row)

    @extend_schema_field(FieldDifferenceOut(many=True))
    def get_differences(self, row: ComponentStanding) -> Any:
        return row.differences

    @extend_schema_field(HelmRevisionOut(many=True))
    def get_history(self, row: ComponentStanding) -> Any:
        return row.history


class ComponentStandingFilter(django_filters.FilterSet):  # type: ignore[misc]
    state = django_filters.MultipleChoiceFilter(method="in_state", choices=ComponentStanding.State.choices)
    kind = django_filters.ChoiceFilter(choices=ComponentStanding.Kind.choices)
    name = django_filters.CharFilter(max_length=63)
    cluster = django_filters.CharFilter(method=filters.by_cluster(""), max_length=63, help_text=filters.BY_CLUSTER)
    environment = django_filters.ChoiceFilter(field_name="cluster__environment", choices=Cluster.Environment.choices)
    pool = django_filters.NumberFilter(field_name="pool_id", min_value=1, max_value=2**31 - 1)

    class Meta:
        model = ComponentStanding
        fields: list[str] = []

    def in_state(self, rows: QuerySet[ComponentStanding], name: str, values: list[str]) -> QuerySet[ComponentStanding]:
        return rows.filter(Q(shown__in=values)) if values else rows


class ComponentStandingViewSet(mixins.ListModelMixin, ApiViewSet):
    """Each component, and a cluster's policy objects, held to what is assigned: version, values, every object, who
    changed which field, and readiness. An axis of its own: no node counts as drifted for it."""

    request: UserApiRequest
    queryset = ComponentStanding.objects.none()
    serializer_class = ComponentStandingOut
    filterset_class = ComponentStandingFilter
    lookup_value_converter = "int"
    ordering_fields = ("name", "since", "checked_at")
    scope_for = {"GET": "read"}

    def get_queryset(self) -> QuerySet[ComponentStanding]:
        return component_selectors.components(self.request.user).order_by("name", "pk")
