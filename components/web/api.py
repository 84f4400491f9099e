"""REST: the catalog of components."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.permissions import ANYWHERE, Role, require
from common.api import ApiViewSet
from common.filtering import order_of
from common.requests import UserApiRequest
from components.catalog import catalog, presentation
from components.catalog.entry import (
    DISRUPTIONS,
    INTENTS,
    POD_SECURITY,
    Component,
    ComponentConflict,
    Preset,
    ReadinessTest,
)

ORDERS = ("name", "title")
FILTERS = ("q", "intent", "namespace")


class CitedOut(serializers.Serializer[Any]):
    text = serializers.CharField()
    url = serializers.CharField(allow_blank=True)


class ChartOut(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(("http", "oci"), help_text="A repository with an index.yaml, or a registry.")
    url = serializers.CharField()
    chart = serializers.CharField()


class TestedOut(serializers.Serializer[Any]):
    version = serializers.CharField()
    kubernetes_from = serializers.CharField(allow_blank=True)
    kubernetes_to = serializers.CharField(allow_blank=True, help_text="Included; empty: no bound is named.")
    note = serializers.CharField(allow_blank=True)


class PresetOut(serializers.Serializer[Preset]):
    name = serializers.CharField()
    title = serializers.CharField()
    why = serializers.CharField()
    values = serializers.DictField(child=serializers.JSONField(), help_text="As in the chart's values.yaml.")
    intents = serializers.ListField(child=serializers.ChoiceField(INTENTS))
    excludes = serializers.ListField(child=serializers.CharField())
    needs = serializers.ListField(
        child=serializers.CharField(), help_text="Presets without whose values this one does not work."
    )
    requires = serializers.ListField(child=serializers.CharField())
    versions = serializers.CharField(help_text="Range of chart versions that it works with, `>=1.16`; empty: all.")
    sources = CitedOut(many=True)


class DecisionOut(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="The value that a person must give.")
    question = serializers.CharField()
    presets = serializers.ListField(
        child=serializers.CharField(), help_text="Asked only with one of these; empty: always."
    )
    unless = serializers.ListField(child=serializers.CharField(), help_text="Not asked where one of these holds.")
    is_required = serializers.BooleanField()
    example = serializers.CharField(allow_blank=True)


class ConflictOut(serializers.Serializer[ComponentConflict]):
    component = serializers.CharField(
        source="other", allow_blank=True, help_text="Empty: something the catalog does not install."
    )
    title = serializers.CharField(
        allow_blank=True, help_text="Of what the catalog does not install; empty for a component."
    )
    workloads = serializers.SerializerMethodField(
        help_text="By which it is recognized in a cluster; empty: by its release alone."
    )
    why = serializers.CharField()
    is_block = serializers.BooleanField(help_text="A profile that wants both cannot be published, nor a plan approved.")

    def get_workloads(self, conflict: ComponentConflict) -> str:
        return str(conflict.workloads or "")


class TestOut(serializers.Serializer[ReadinessTest]):
    kind = serializers.CharField()
    sentence = serializers.SerializerMethodField()
    what = serializers.DictField(child=serializers.JSONField())
    why = serializers.CharField(allow_blank=True)
    is_optional = serializers.BooleanField()
    unless = serializers.ListField(child=serializers.CharField())

    @extend_schema_field(serializers.CharField())
    def get_sentence(self, test: ReadinessTest) -> str:
        return presentation.test_sentence(test)


class HazardOut(serializers.Serializer[Any]):
    text = serializers.CharField()
    since = serializers.CharField(allow_blank=True, help_text="Of which versions; empty: of all.")
    sources = CitedOut(many=True)


class UpgradesOut(serializers.Serializer[Any]):
    rule = serializers.CharField()
    lines = serializers.ListField(child=serializers.CharField())
    why = serializers.CharField(allow_blank=True)


class ComponentOut(serializers.Serializer[Component]):
    name = serializers.CharField()
    title = serializers.CharField()
    summary = serializers.CharField()
    documentation = serializers.CharField()
    chart = ChartOut()
    newest = serializers.CharField(help_text="The version that a profile gets which names none.")
    versions = TestedOut(many=True)
    is_site_entry = serializers.SerializerMethodField(help_text="An entry of the site's own describes it.")
    is_untested = serializers.BooleanField(
        help_text="No one but its authors has read that entry: its class is the strictest."
    )
    namespace = serializers.CharField()
    pod_security = serializers.ChoiceField(POD_SECURITY)
    disruption = serializers.ChoiceField(tuple(DISRUPTIONS))
    disruption_text = serializers.CharField()
    values = serializers.DictField(child=serializers.JSONField(), help_text="Under every preset.")
    requires = serializers.ListField(child=serializers.CharField())
    after = serializers.ListField(child=serializers.CharField(), help_text="When wanted, too, these come first.")
    conflicts = ConflictOut(many=True)
    presets = serializers.SerializerMethodField()
    decisions = DecisionOut(many=True)
    readiness = TestOut(many=True)
    upgrades = UpgradesOut()
    upgrade_hazards = HazardOut(many=True)
    removal_hazards = HazardOut(many=True)
    running_hazards = HazardOut(many=True)
    crds = serializers.ListField(child=serializers.CharField())
    crds_stay = serializers.BooleanField(help_text="Whether an uninstall leaves its CRDs.")

    def get_is_site_entry(self, component: Component) -> bool:
        return bool(component.entry)

    @extend_schema_field(PresetOut(many=True))
    def get_presets(self, component: Component) -> Any:
        presets: Any = list(component.presets.values())
        return PresetOut(presets, many=True).data


class Components(ApiViewSet):
    """The catalog: Helm charts that a profile can want, their presets, decisions, readiness and hazards."""

    request: UserApiRequest
    scope_for = {"GET": "read"}
    serializer_class = ComponentOut
    filter_backends = ()
    lookup_field = "name"
    lookup_value_converter = "str"

    @extend_schema(
        responses=ComponentOut(many=True),
        parameters=[
            OpenApiParameter("q", str, description="Every word must occur in name, title, summary or presets."),
            OpenApiParameter("intent", str, enum=list(INTENTS), description="Those with a preset for it."),
            OpenApiParameter("namespace", str),
            OpenApiParameter(
                "ordering", str, description=f"By {', '.join(ORDERS)}; empty: in the order of installation."
            ),
        ],
    )
    def list(self, request: UserApiRequest) -> Response:
        require(request.user, Role.VIEWER, ANYWHERE, "see the catalog")
        params = request.query_params
        order = order_of(params, FILTERS, ORDERS, intent=INTENTS)
        matching = catalog.search(params.get("q", ""))
        if intent := params.get("intent"):
            matching = tuple(
                component
                for component in matching
                if any(intent in preset.intents for preset in component.presets.values())
            )
        if namespace := params.get("namespace"):
            matching = tuple(component for component in matching if component.namespace == namespace)
        if order:
            name = order.removeprefix("-")
            matching = tuple(
                sorted(
                    matching, key=lambda component: (getattr(component, name), component.name), reverse=order[0] == "-"
                )
            )
        page = self.paginate_queryset(matching)
        return self.get_paginated_response(self.get_serializer(page, many=True).data)

    @extend_schema(responses=ComponentOut)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        require(request.user, Role.VIEWER, ANYWHERE, "see the catalog")
        return Response(self.get_serializer(catalog.get(kwargs["name"])).data)
