"""REST: the settings catalog."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.permissions import ANYWHERE, Role, require
from common.api import ApiViewSet
from common.errors import Invalid, Missing
from common.filtering import order_of
from common.requests import UserApiRequest
from contract.keys import ApplyClass
from profiles.catalog import known_settings
from profiles.catalog.known_settings import SettingInfo


class SourceOut(serializers.Serializer[Any]):
    text = serializers.CharField()
    url = serializers.CharField(allow_blank=True)


class LimitOut(serializers.Serializer[Any]):
    platform = serializers.CharField()
    minimum = serializers.IntegerField(allow_null=True)
    maximum = serializers.IntegerField(allow_null=True)


class SettingOut(serializers.Serializer[SettingInfo]):
    key = serializers.CharField()
    kind = serializers.CharField()
    family = serializers.CharField()
    title = serializers.CharField()
    unit = serializers.CharField()
    default = serializers.CharField(allow_null=True)
    default_note = serializers.CharField()
    shape = serializers.CharField()
    minimum = serializers.IntegerField(allow_null=True)
    maximum = serializers.IntegerField(allow_null=True)
    choices = serializers.ListField(child=serializers.CharField())
    range = serializers.CharField(source="range_text")
    operators = serializers.ListField(child=serializers.CharField())
    platforms = LimitOut(many=True)
    namespace = serializers.CharField()
    apply_class = serializers.CharField()
    coupled = serializers.ListField(child=serializers.CharField())
    owner = serializers.CharField()
    observe_only = serializers.BooleanField()
    caution = serializers.CharField()
    effect = serializers.CharField()
    risk = serializers.CharField()
    sources = SourceOut(many=True)
    since_kernel = serializers.CharField()
    until_kernel = serializers.CharField()


FILTERS = ("q", "family", "apply_class", "observe_only")
ORDERS = ("key", "family", "title")


class Settings(ApiViewSet):
    """The catalog: what may be set, its range, its risk and its source."""

    request: UserApiRequest
    scope_for = {"GET": "read"}
    serializer_class = SettingOut
    filter_backends = ()
    lookup_field = "key"
    lookup_value_converter = "str"

    @extend_schema(
        responses=SettingOut(many=True),
        parameters=[
            OpenApiParameter("q", str, description="Every word must occur in key, title, effect or family."),
            OpenApiParameter("family", str, enum=sorted({info.family for info in known_settings.all()})),
            OpenApiParameter("apply_class", str, enum=[str(c) for c in ApplyClass]),
            OpenApiParameter("observe_only", OpenApiTypes.BOOL),
            OpenApiParameter("ordering", str, description=f"By {', '.join(ORDERS)}; -key from behind."),
        ],
    )
    def list(self, request: UserApiRequest) -> Response:
        require(request.user, Role.VIEWER, ANYWHERE, "see the catalog")
        params = request.query_params
        order = order_of(params, FILTERS, ORDERS)
        matching = known_settings.search(params.get("q", ""))
        for name in ("family", "apply_class"):
            if wanted := params.get(name):
                matching = tuple(info for info in matching if str(getattr(info, name)) == wanted)
        if wanted := params.get("observe_only"):
            if wanted not in ("true", "false"):
                raise Invalid("The query is not valid.", fields={"observe_only": ["Write true or false."]})
            matching = tuple(info for info in matching if info.observe_only is (wanted == "true"))
        if order:
            name = order.removeprefix("-")
            matching = tuple(
                sorted(matching, key=lambda info: (getattr(info, name), info.key), reverse=order[0] == "-")
            )
        page = self.paginate_queryset(matching)
        return self.get_paginated_response(self.get_serializer(page, many=True).data)

    @extend_schema(responses=SettingOut)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        require(request.user, Role.VIEWER, ANYWHERE, "see the catalog")
        info = known_settings.get(kwargs["key"])
        if info is None:
            near = known_settings.nearest(kwargs["key"][:128])
            raise Missing(f"There is no such setting{f'; did you mean {near}?' if near else '.'}")
        return Response(self.get_serializer(info).data)
